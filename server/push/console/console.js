// The console asks this server only: counters by polling, messages by EventSource, publications by the HTTP API.

const pollEvery = 1000 // ms
const keptMessages = 200

const byId = (id) => document.getElementById(id)
const number = new Intl.NumberFormat()

function say(element, text, bad = false) {
  element.textContent = text
  element.classList.toggle('bad', bad)
}

let last // the counters before, with the time at which they came

function show(stats) {
  const now = performance.now()
  for (const field of document.querySelectorAll('[data-count]')) {
    field.textContent = number.format(stats[field.dataset.count])
  }
  for (const field of document.querySelectorAll('[data-rate]')) {
    const name = field.dataset.rate
    if (last) field.textContent = `${number.format(Math.round((stats[name] - last.stats[name]) / (now - last.at) * 1000))} a second`
  }
  last = { stats, at: now }
  for (const field of document.querySelectorAll('.secured')) field.hidden = stats.development
  say(byId('about'), stats.development ? `${stats.version}, development mode: no key and no token needed` : stats.version)
}

async function poll() {
  try {
    const response = await fetch('/console/stats', { cache: 'no-store' })
    if (!response.ok) throw new Error(`status ${response.status}`)
    show(await response.json())
  } catch (error) {
    last = undefined
    say(byId('about'), `The server does not answer (${error.message})`, true)
  }
  setTimeout(poll, pollEvery)
}

let events

function subscribe(form) {
  const channel = form.get('channel')
  const query = new URLSearchParams({ channel })
  if (form.get('token')) query.set('token', form.get('token'))
  events?.close()
  events = new EventSource(`/events?${query}`)
  events.onopen = () => say(byId('subscribed'), `Subscribed to ${channel}.`)
  events.onmessage = (event) => addMessage(event.data)
  events.onerror = () => {
    const gone = events.readyState === EventSource.CLOSED
    say(byId('subscribed'), gone ? 'Refused: is the token right?' : 'Connection lost, trying again…', true)
  }
}

function addMessage(data) {
  const item = document.createElement('li')
  const time = document.createElement('time')
  time.textContent = new Date().toLocaleTimeString()
  item.append(time, data)
  const list = byId('messages')
  list.prepend(item)
  while (list.children.length > keptMessages) list.lastChild.remove()
}

async function publish(form) {
  const status = byId('published')
  let data
  try {
    data = JSON.parse(form.get('data'))
  } catch (error) {
    return say(status, `The data is not JSON: ${error.message}`, true)
  }
  const headers = { 'Content-Type': 'application/json' }
  if (form.get('key')) headers['X-API-Key'] = form.get('key')
  try {
    const response = await fetch('/api/publish', { method: 'POST', headers, body: JSON.stringify({ channel: form.get('channel'), data }) })
    const answer = await response.json()
    if (answer.error) say(status, answer.error.message, true)
    else say(status, `Published to ${form.get('channel')} at ${new Date().toLocaleTimeString()}.`)
  } catch (error) {
    say(status, `Not published: ${error.message}`, true)
  }
}

function onSubmit(id, action) {
  byId(id).addEventListener('submit', (event) => {
    event.preventDefault()
    action(new FormData(event.target))
  })
}

onSubmit('subscription', subscribe)
onSubmit('publication', publish)
poll()
