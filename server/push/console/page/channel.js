// The open channel: its rules, its present clients and its last publications.

import { byId, element, fill, say } from './element.js'
import * as format from './format.js'
import { getJSON } from './request.js'

const publish = { clients: 'every client may publish', subscribers: 'subscribers may publish', token: 'clients with a token for it may publish', nobody: 'only the API publishes' }
const slow = { disconnect: 'slow clients are disconnected', 'drop-oldest': 'slow clients lose the oldest', 'latest-only': 'slow clients get the latest only' }

let looked // the name of the open channel, if any

export function look(name) {
  looked = name
  say(byId('channel-name'), name)
  for (const id of ['channel-clients', 'channel-publications']) byId(id).replaceChildren()
  for (const id of ['channel-rules', 'channel-presence', 'channel-history']) say(byId(id), '')
  byId('channel').hidden = false
  show().then(() => {
    byId('channel').scrollIntoView({ block: 'nearest' })
    byId('channel-name').focus({ preventScroll: true })
  })
}

export function start() {
  byId('channel-close').addEventListener('click', () => {
    looked = undefined
    byId('channel').hidden = true
    byId('match').focus()
  })
}

// show updates the open channel, if any. It is called with each update of the list of channels.
export async function show() {
  if (looked === undefined) return
  const name = looked
  const channel = await getJSON(`console/channel?${new URLSearchParams({ name })}`)
  if (name !== looked) return
  const recovery = channel.recovery ? ', returning clients recover' : ''
  say(byId('channel-rules'), `${channel.namespace ? `Namespace ${channel.namespace}` : 'Default namespace'}: ${publish[channel.publish]}, ${slow[channel.slow]}${recovery}.`)
  showClients(channel.presence && Object.values(channel.presence.presence))
  showHistory(channel.history && channel.history.publications)
}

function showClients(clients) {
  say(byId('channel-presence'), clients ? `Present: ${format.exact(clients.length)}` : 'Its namespace has no presence.')
  const shown = (clients ?? []).slice(0, 100)
  fill(byId('channel-clients'), shown, ({ client }) => client, () => element('li', {}, element('span')),
    (row, { client, user }) => say(row.firstChild, user ? `${user} (${client.slice(0, 8)})` : client.slice(0, 8)))
}

function showHistory(publications) {
  say(byId('channel-history'), publications ? `Last publications: ${format.exact(publications.length)}` : 'Its namespace keeps no history.')
  fill(byId('channel-publications'), publications ?? [], ({ offset }) => `${offset}`,
    ({ offset, data }) => element('li', {}, element('span', { class: 'channel' }, `${offset}`), element('code', {}, JSON.stringify(data))), () => {})
}
