// The clients that match the search: who they are, what they are subscribed to, and the API's calls to end that.

import { byId, element, fill, say } from './element.js'
import * as format from './format.js'
import { call, getJSON } from './request.js'

let wanted // what is searched for; undefined: nothing is
let opened // the id of the client whose subscriptions are shown

export function start() {
  byId('find').addEventListener('submit', (event) => {
    event.preventDefault()
    wanted = new FormData(event.target).get('match')
    show().catch((error) => say(byId('clients-state'), error.message, true))
  })
  byId('client-close').addEventListener('click', () => close(true))
}

function close(focus) {
  opened = undefined
  byId('client').hidden = true
  if (focus) byId('find').elements.match.focus()
}

// show updates the list, if there is one.
export async function show() {
  if (wanted === undefined) return
  const match = wanted
  const { total, connections } = await getJSON(`console/connections?${new URLSearchParams({ match })}`)
  if (match !== wanted) return
  say(byId('clients-state'), total > connections.length ? `${format.exact(total)}, the first ${connections.length} shown` : `${format.exact(total)} found`)
  byId('clients-table').hidden = !connections.length
  fill(byId('clients'), connections, ({ client }) => client, row, (tr, c) => {
    const texts = [c.user || 'no user', undefined, `${c.transport}, ${c.protocol}`, `${c.remote || 'no address'}, ${c.node}`, format.exact(c.channels.length), format.bytes(c.queued)]
    texts.forEach((text, i) => { if (text !== undefined) say(tr.children[i], text) })
  })
  showSubscriptions(connections.find(({ client }) => client === opened))
}

function row({ client, user }) {
  const button = (text, act) => element('button', { class: 'plain', 'aria-label': `${text} ${user || 'client'} ${client.slice(0, 8)}`, onclick: act }, text)
  return element('tr', {}, element('th', { scope: 'row', class: 'name' }), element('td', { title: client }, client.slice(0, 8)),
    element('td'), element('td'), element('td', { class: 'figure' }), element('td', { class: 'figure' }),
    element('td', {}, element('div', { class: 'actions' },
      button('Look', () => {
        opened = client
        show().then(() => byId('client-name').focus())
      }),
      button('Disconnect', () => act(`Disconnected ${client}.`, 'disconnect', { client })))))
}

function showSubscriptions(c) {
  if (!c) return close(false)
  byId('client').hidden = false
  say(byId('client-name'), c.user ? `${c.user} (${c.client})` : c.client)
  say(byId('client-channels-state'), `Subscriptions: ${format.exact(c.channels.length)}`)
  fill(byId('client-channels'), c.channels, (channel) => channel, (channel) => element('li', {}, element('span', {}, channel),
    element('button', { class: 'plain', 'aria-label': `Unsubscribe the client from ${channel}`,
      onclick: () => act(`Unsubscribed from ${channel}.`, 'unsubscribe', { client: c.client, channel }) }, '×')), () => {})
}

// act calls the API, says what has happened, and shows the clients as they are then.
async function act(done, method, request) {
  try {
    await call(method, request)
    say(byId('clients-acted'), done)
    await show()
  } catch (error) {
    say(byId('clients-acted'), `Not done: ${error.message}`, true)
  }
}
