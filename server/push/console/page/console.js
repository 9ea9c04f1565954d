// The console requests data only from its own server: figures by polling while the page is visible, messages by a stream of
// events, publications by the HTTP API.

import * as api from './api.js'
import * as channel from './channel.js'
import * as cluster from './cluster.js'
import * as clients from './clients.js'
import { byId, say } from './element.js'
import * as figures from './figures.js'
import { duration } from './format.js'
import * as namespaces from './namespaces.js'
import * as publish from './publish.js'
import * as refusals from './refusals.js'
import { Refused, getJSON, key, setKey } from './request.js'
import { showChannels, showLoops, showSlow } from './tables.js'
import * as token from './token.js'
import * as watch from './watch.js'

const pollEvery = 1000 // ms
const listEvery = 2 // polls between two updates of the channels and clients
const rulesEvery = 30 // of the namespaces

const themeName = 'myriad-theme'

function startTheme() {
  const choice = byId('theme')
  const use = () => { document.documentElement.dataset.theme = choice.value }
  choice.value = localStorage.getItem(themeName) ?? ''
  use()
  choice.addEventListener('change', () => {
    localStorage.setItem(themeName, choice.value)
    use()
  })
}

// open shows the console, or the form for the key.
function open(isOpen, why = '') {
  const door = byId('door')
  if (!isOpen && door.hidden) byId('unlock').elements.key.value = ''
  const wasOpen = !byId('main').hidden
  byId('main').hidden = !isOpen
  door.hidden = isOpen
  byId('leave').hidden = !isOpen || !key()
  if (isOpen && !wasOpen && key()) byId('main').focus()
  byId('range').disabled = !isOpen
  say(byId('door-state'), why, true)
}

function state(text, kind) {
  say(byId('state'), text)
  byId('state').dataset.kind = kind
}

function show(stats) {
  open(true)
  state('Live', 'good')
  say(byId('about'), `${stats.version} · up ${duration(stats.uptime_seconds)}`)
  byId('development').hidden = !stats.development
  figures.add(stats)
  showLoops(stats.loops)
  showSlow(stats)
}

function fail(error) {
  if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
    open(false, error.status === 403 ? error.message : key() ? 'Refused: this is not the key.' : '')
    byId('unlock').hidden = byId('door-why').hidden = error.status === 403 // no key would help
    state('Locked', 'quiet')
    setKey('')
    return false
  }
  state('No answer', 'bad')
  return true
}

const pick = { watch: watch.show, look: channel.look }

let polls = 0
let timer

// poll runs while the page is visible and the server accepts its requests.
async function poll() {
  clearTimeout(timer)
  if (document.hidden) return
  let goOn = true
  try {
    show(await getJSON(`console/stats?after=${figures.newest()}`))
    await refusals.show()
    if (polls % listEvery === 0) {
      await showChannels(pick)
      await channel.show()
      await cluster.show()
      await clients.show()
    }
    if (polls % rulesEvery === 0) {
      await namespaces.show()
      await api.show()
    }
    polls++
  } catch (error) {
    goOn = fail(error)
  }
  clearTimeout(timer)
  if (goOn) timer = setTimeout(poll, pollEvery)
}

byId('unlock').addEventListener('submit', (event) => {
  event.preventDefault()
  setKey(new FormData(event.target).get('key'))
  poll()
})
byId('leave').addEventListener('click', () => {
  setKey('')
  location.reload()
})
byId('match').addEventListener('input', () => showChannels(pick).catch(fail))
document.addEventListener('visibilitychange', poll)

startTheme()
figures.start()
watch.start()
channel.start()
clients.start()
publish.start()
api.start()
token.start()
poll()
