// The tables: event loops, slow clients, and channels to browse.

import * as format from './format.js'
import { byId, element, fill, say } from './element.js'
import { getJSON } from './request.js'

const cells = (n, figures) => Array.from({ length: n }, (_, i) => element('td', { class: figures.includes(i) ? 'figure' : false }))

function put(row, texts) {
  texts.forEach((text, i) => { if (text !== undefined) say(row.children[i], text) })
}

let before // the loops' counters, with the time of their arrival

export function showLoops(loops) {
  const now = performance.now()
  const last = before?.loops.length === loops.length ? before : undefined
  before = { loops, now }
  const list = loops.map((loop, i) => {
    const old = last?.loops[i] ?? loop
    const seconds = last ? (now - last.now) / 1000 : 1
    const rate = (name) => Math.max(0, loop[name] - old[name]) / seconds
    return { i, loop, busy: Math.min(100, rate('busy_us') / 10_000), turns: rate('turns'), in: rate('bytes_in'), out: rate('bytes_out') }
  })
  fill(byId('loops'), list, ({ i }) => `${i}`, ({ i }) => {
    const row = element('tr', {}, element('th', { scope: 'row' }, `${i}`), ...cells(7, [0, 2, 3, 4, 5, 6]))
    row.children[2].append(element('meter', { min: 0, max: 100, 'aria-label': 'busy' }), element('span'))
    return row
  }, (row, { loop, busy, turns, ...rates }) => {
    put(row, [undefined, format.exact(loop.conns), undefined, format.rate(turns), format.byteRate(rates.in), format.byteRate(rates.out),
      format.bytes(loop.queued), format.micros(loop.longest_us)])
    row.querySelector('meter').value = busy
    say(row.querySelector('span'), format.percent(busy))
  })
}

export function showSlow({ slow, slow_disconnects: total, queue_limit: limit }) {
  say(byId('slow-state'), total > slow.length ? `${format.exact(total)} in all, the last ${slow.length} shown` : total ? `${format.exact(total)} in all` : '')
  say(byId('slow-limit'), format.limit(limit))
  byId('slow-table').hidden = !slow.length
  byId('slow-none').hidden = slow.length > 0
  fill(byId('slow'), slow, ({ at, client }) => `${at} ${client}`, () => element('tr', {}, element('td', { class: 'when' }), ...cells(3, [2])), (row, item) => {
    const who = item.user ? `${item.user} (${item.client})` : item.client
    put(row, [format.clock(item.at), who, item.channel ?? 'none', format.bytes(item.queued)])
  })
}

// showChannels requests the channels that match the input. A row's buttons call pick.watch(name) and pick.look(name).
export async function showChannels(pick) {
  const match = byId('match').value
  const { total, channels } = await getJSON(`console/channels?${new URLSearchParams({ match })}`)
  if (match !== byId('match').value) return // the input has changed: another answer follows
  say(byId('channels-state'), total > channels.length ? `${format.exact(total)}, the ${channels.length} largest shown` : format.exact(total))
  const button = (text, label, act) => element('button', { class: 'plain', 'aria-label': label, onclick: act }, text)
  fill(byId('channels'), channels, ({ name }) => name, ({ name }) => element('tr', {},
    element('th', { scope: 'row', class: 'name' }, name), element('td', { class: 'figure' }),
    element('td', {}, element('div', { class: 'actions' }, button('Look', `Look at ${name}`, () => pick.look(name)),
      button('Watch', `Subscribe to ${name}`, () => pick.watch(name))))),
  (row, { num_clients: subscribers }) => put(row, [undefined, format.exact(subscribers)]))
  byId('channels-none').hidden = channels.length > 0
  say(byId('channels-none'), match ? 'No channel with this in its name has subscribers.' : 'No channel has subscribers yet. Channels appear here when a client subscribes.')
}
