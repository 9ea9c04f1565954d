// The log of refusals: what the server has refused, and why.

import { byId, element, say } from './element.js'
import * as format from './format.js'
import { getJSON } from './request.js'

const kept = 100

let last = 0 // the number of the latest that is shown

// show adds the refusals since the last call.
export async function show() {
  const answer = await getJSON(`console/refusals?after=${last}`)
  const list = byId('refusals')
  if (answer.last < last) { // another process answers, whose numbers begin again
    last = 0
    return list.replaceChildren()
  }
  last = answer.last
  list.prepend(...answer.refusals.map(line))
  while (list.children.length > kept) list.lastChild.remove()
  byId('refusals-none').hidden = list.children.length > 0
  const counts = Object.entries(answer.counts).filter(([, n]) => n > 0).map(([reason, n]) => `${reason} ${format.exact(n)}`)
  say(byId('refusals-state'), counts.join(', '))
}

function line({ at, reason, remote, details, omitted }) {
  const text = omitted ? `${details} (${format.exact(omitted)} before it are not shown)` : details
  return element('li', {}, element('time', {}, format.clock(at)), element('span', { class: 'channel' }, remote ? `${reason}, ${remote}` : reason), element('code', {}, text))
}
