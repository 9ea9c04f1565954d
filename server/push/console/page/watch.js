// Watching channels: one stream of Server-Sent Events for all of them, read with fetch because an EventSource cannot send a key.

import { byId, element, say } from './element.js'
import * as format from './format.js'
import { Refused, request } from './request.js'

const kept = 200 // messages
const again = 2000 // ms before a lost stream is requested again

const channels = new Set()
let stream // the AbortController of the open stream
let received = 0
let paused = false

export function watch(channel) {
  channels.add(channel)
  reopen()
}

// show watches a channel that was picked elsewhere on the page, and scrolls to the messages.
export function show(channel) {
  watch(channel)
  byId('watch').elements.channel.value = channel
  byId('watch-title').closest('section').scrollIntoView({ block: 'nearest' })
}

function unwatch(channel) {
  channels.delete(channel)
  reopen()
  byId('watch').elements.channel.focus()
}

function reopen() {
  stream?.abort()
  stream = undefined
  byId('watched').replaceChildren(...[...channels].map((name) => element('li', {}, element('span', {}, name),
    element('button', { class: 'plain', 'aria-label': `Unsubscribe from ${name}`, onclick: () => unwatch(name) }, '×'))))
  if (channels.size) run(stream = new AbortController())
  else say(byId('watch-state'), 'Nothing is watched.')
}

async function run(mine) {
  const query = new URLSearchParams([...channels].map((name) => ['channel', name]))
  while (!mine.signal.aborted) {
    try {
      const response = await request(`console/events?${query}`, { signal: mine.signal })
      say(byId('watch-state'), channels.size === 1 ? `Subscribed to ${[...channels][0]}.` : `Subscribed to ${channels.size} channels.`)
      await read(response.body, (channel, data) => addMessage(channel, data))
    } catch (error) {
      if (mine.signal.aborted) return
      if (error instanceof Refused && error.status < 500) return say(byId('watch-state'), `Refused: ${error.message}`, true)
    }
    if (mine.signal.aborted) return
    say(byId('watch-state'), 'Connection lost, trying again…', true)
    await new Promise((done) => setTimeout(done, again))
  }
}

// read parses a stream of events (WHATWG HTML §9.2.6): fields end with their line, events with an empty one.
async function read(body, onEvent) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = '', name = '', data = []
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    const lines = (rest + value).split('\n')
    rest = lines.pop()
    for (const line of lines) {
      if (line === '' && data.length && channels.has(name)) onEvent(name, data.join('\n')) // other events are about the stream itself
      if (line === '') [name, data] = ['', []]
      else if (line.startsWith('event: ')) name = line.slice(7)
      else if (line.startsWith('data: ')) data.push(line.slice(6))
    }
  }
}

function addMessage(channel, data) {
  received++
  byId('messages-none').hidden = true
  byId('tools').hidden = false
  say(byId('received'), `${format.exact(received)} received${received > kept ? `, the last ${kept} shown` : ''}`)
  if (paused) return
  const list = byId('messages')
  list.prepend(element('li', {}, element('time', {}, format.clock(Date.now())), element('span', { class: 'channel' }, channel), element('code', {}, data)))
  while (list.children.length > kept) list.lastChild.remove()
}

export function start() {
  byId('watch').addEventListener('submit', (event) => {
    event.preventDefault()
    watch(new FormData(event.target).get('channel'))
  })
  byId('clear').addEventListener('click', () => {
    received = 0
    byId('messages').replaceChildren()
    byId('messages-none').hidden = false
    byId('tools').hidden = true
    byId('watch').elements.channel.focus()
  })
  byId('pause').addEventListener('click', ({ target }) => {
    paused = !paused
    target.setAttribute('aria-pressed', paused)
    say(target, paused ? 'Go on' : 'Pause')
  })
}
