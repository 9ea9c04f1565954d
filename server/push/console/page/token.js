// Explains a token: the server says what each claim does, and what the bearer may do in channels.

import { byId, element, say } from './element.js'
import { request } from './request.js'

export function start() {
  byId('token').addEventListener('submit', (event) => {
    event.preventDefault()
    explain(new FormData(event.target)).catch((error) => say(byId('token-state'), error.message, true))
  })
}

async function explain(form) {
  const channels = form.get('channels').split('\n').filter((name) => name !== '')
  byId('token-answer').hidden = true
  const e = await (await request('console/token', { method: 'POST', body: JSON.stringify({ token: form.get('token').trim(), channels }) })).json()
  say(byId('token-state'), e.error ? `Refused: ${e.error}` : accepted(e), !!e.error)
  byId('token-answer').hidden = !e.claims.length
  rows('token-claims', e.claims.map(({ name, value, does }) => [name, JSON.stringify(value), does]))
  byId('token-channels-table').hidden = !e.channels.length
  rows('token-channels', e.channels.map(({ channel, subscribe, publish }) => [channel, subscribe, publish]))
}

function accepted({ user, channel, ends }) {
  const what = channel ? `a subscription of ${user} to ${channel}` : `connections of ${user}`
  return `Accepted for ${what}, ${ends ? `until ${new Date(ends).toLocaleString('en')}` : 'without an end'}.`
}

function rows(id, list) {
  byId(id).replaceChildren(...list.map(([first, ...others]) => element('tr', {}, element('th', { scope: 'row', class: 'name' }, first),
    ...others.map((text) => element('td', {}, text)))))
}
