// The namespaces and their rules, in the words of the options.

import { byId, element, fill, say } from './element.js'
import { getJSON } from './request.js'

export async function show() {
  const { namespaces, deny_client_publish: denied } = await getJSON('console/namespaces')
  say(byId('namespaces-state'), denied ? 'Only the API publishes: --deny-client-publish.' : '')
  fill(byId('namespaces'), namespaces, ({ name }) => `${name}:`, ({ name }) => element('tr', {},
    element('th', { scope: 'row', class: 'name' }, name || 'all other channels'), element('td', {}, element('ul', { class: 'chips' }))),
  (row, { rules }) => fill(row.querySelector('ul'), rules.map(({ name, value }) => value ? `${name}=${value}` : name), (text) => text,
    (text) => element('li', {}, element('span', {}, text)), () => {}))
}
