// The inbox. It reads a mailbox once, and from then on is told each change. Changes are numbered: when one is missing, because the
// connection was lost for a moment, it asks for what came since the last one that it knows.

const user = new URLSearchParams(location.search).get('user') ?? 'ann'
const byId = (id) => document.getElementById(id)
const mailboxes = ['INBOX', 'Archive', 'Trash']

let shown = 'INBOX'
let known = 0 // the number of the last change that is on the page
let messages = new Map() // by UID, of the mailbox that is shown

async function get(path, query) {
  const response = await fetch(`${path}?${new URLSearchParams({ user, ...query })}`, { cache: 'no-store' })
  const answer = await response.json()
  if (answer.error) throw new Error(answer.error)
  return answer
}

async function post(path, fields) {
  const response = await fetch(path, { method: 'POST', body: new URLSearchParams({ user, ...fields }) })
  const answer = await response.json()
  if (answer.error) throw new Error(answer.error)
}

async function load(mailbox) {
  const view = await get('/api/mailbox', { mailbox })
  shown = mailbox
  known = view.modseq
  messages = new Map(view.messages.map((m) => [m.uid, m]))
  draw()
}

// take applies a change, or finds that it does not follow what is known.
async function take(change) {
  if (change.modseq <= known) return
  if (change.modseq > known + 1) return catchUp()
  apply(change)
  draw()
}

function apply(change) {
  known = change.modseq
  if (change.mailbox !== shown) return
  if (change.kind === 'gone') messages.delete(change.uid)
  else messages.set(change.uid, change.message)
}

async function catchUp() {
  const update = await get('/api/changes', { since: known })
  if (update.reload) return load(shown)
  update.changes.filter((c) => c.modseq > known).forEach(apply)
  draw()
}

function element(name, properties, ...children) {
  const e = Object.assign(document.createElement(name), properties)
  e.append(...children)
  return e
}

// key names the button across drawings, so that the focus stays where it is when the list changes.
function button(key, text, label, act) {
  const b = element('button', { type: 'button', textContent: text, onclick: () => act().catch(fail) })
  b.dataset.key = key
  b.setAttribute('aria-label', label)
  return b
}

function row(m) {
  const move = (to) => () => post('/api/move', { mailbox: shown, uid: m.uid, to })
  const seen = () => post('/api/seen', { mailbox: shown, uid: m.uid, seen: !m.seen })
  const others = mailboxes.filter((name) => name !== shown || name === 'Trash')
  return element('li', { className: m.seen ? '' : 'unseen' },
    element('span', { className: 'subject', textContent: m.subject }),
    element('time', { dateTime: m.at, textContent: new Date(m.at).toLocaleTimeString('en-GB') }),
    element('span', { className: 'from', textContent: m.from }),
    element('p', { className: 'text', textContent: m.text }),
    element('div', { className: 'actions' },
      button(`${shown} ${m.uid} seen`, m.seen ? 'Mark unread' : 'Mark read', `${m.seen ? 'Mark unread' : 'Mark read'}: ${m.subject}`, seen),
      ...others.map((to) => {
        const text = to === shown ? 'Delete' : `To ${to}`
        return button(`${shown} ${m.uid} ${to}`, text, `${text}: ${m.subject}`, move(to))
      })))
}

function draw() {
  const focused = document.activeElement?.dataset.key
  const list = [...messages.values()].sort((a, b) => b.uid - a.uid)
  const unseen = list.filter((m) => !m.seen).length
  document.title = unseen ? `(${unseen}) ${shown} of ${user}` : `${shown} of ${user}`
  byId('title').textContent = `Mail of ${user}`
  byId('none').hidden = list.length > 0
  byId('messages').replaceChildren(...list.map(row))
  byId('mailboxes').replaceChildren(...mailboxes.map((name) => {
    const b = button(name, name === shown && unseen ? `${name} (${unseen})` : name, name, () => load(name))
    b.setAttribute('aria-current', name === shown)
    return b
  }))
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus()
}

function fail(error) { byId('state').textContent = error.message }

byId('write').addEventListener('submit', (event) => {
  event.preventDefault()
  const form = new FormData(event.target)
  post('/api/deliver', { to: form.get('to'), from: user, subject: form.get('subject'), text: form.get('text') })
    .then(() => {
      event.target.reset()
      byId('sent').textContent = `Sent to ${form.get('to')}.`
    }).catch((error) => { byId('sent').textContent = error.message })
})

// Listen first and read then: what comes in between waits for its turn, and is known already or is not.
const events = new EventSource(`/events?${new URLSearchParams({ channel: `mail:${user}` })}`)
let turn = Promise.resolve()
const next = (act) => { turn = turn.then(act).catch(fail) }
let loaded = false
events.onopen = () => next(async () => {
  await (loaded ? catchUp() : load(shown))
  loaded = true
  byId('state').textContent = 'Live'
})
events.onmessage = (event) => next(() => take(JSON.parse(event.data)))
events.onerror = () => { byId('state').textContent = 'Connection lost, trying again…' }
