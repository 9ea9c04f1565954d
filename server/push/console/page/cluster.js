// The cluster: its nodes, which of them hear each other, and its logs. A server on its own shows none of it.

import * as format from './format.js'
import { byId, element, fill, say } from './element.js'
import { getJSON } from './request.js'

// row makes a row whose first cell is a name. figures are the numbers of the cells that hold one.
function row(cells, figures) {
  return element('tr', {}, element('th', { scope: 'row', class: 'name' }),
    ...Array.from({ length: cells - 1 }, (_, i) => element('td', { class: figures.includes(i + 1) ? 'figure' : false })))
}

const put = (row, texts) => texts.forEach((text, i) => say(row.children[i], text))

// hears names the others that a node has a sign of life from.
function hears(node, nodes) {
  const deaf = nodes.filter((other) => other.name !== node.name && !node.hears.includes(other.name))
  if (!deaf.length) return nodes.length > 1 ? 'all' : 'no other'
  return node.hears.length ? `${node.hears.join(', ')}; not ${deaf.map((other) => other.name).join(', ')}` : 'no other'
}

function texts(node, nodes) {
  if (node.silent !== undefined) {
    return [node.name, `silent for ${format.duration(Math.round(node.silent / 1e9))}`, '', '', '', '', '', '', '']
  }
  return [node.name, node.problem || 'ready', hears(node, nodes), format.exact(node.num_clients), format.exact(node.num_channels),
    format.exact(node.led), format.exact(node.lag), format.duration(node.uptime), node.version]
}

// show requests the cluster's state.
export async function show() {
  const { links, logs, nodes } = await getJSON('console/cluster')
  byId('cluster').hidden = !links
  if (!links) return
  const gone = links.filter((link) => !nodes.some((node) => node.name === link.name))
    .map(({ name, seen }) => ({ uid: name, name, silent: seen }))
  const all = [...nodes, ...gone]
  const clients = nodes.reduce((sum, node) => sum + node.num_clients, 0)
  const bad = all.filter((node) => node.problem || node.silent !== undefined)
  say(byId('cluster-state'), `Nodes that answer: ${format.exact(nodes.length)} · clients: ${format.exact(clients)}` +
    (bad.length ? ` · not ready: ${bad.map((node) => node.name).join(', ')}` : ''), bad.length > 0)
  fill(byId('nodes'), all, ({ uid }) => uid, () => row(9, [3, 4, 5, 6, 7]), (r, node) => {
    put(r, texts(node, nodes))
    r.children[1].classList.toggle('bad', Boolean(node.problem) || node.silent !== undefined)
  })
  byId('logs-none').hidden = Boolean(logs?.length)
  fill(byId('logs'), logs ?? [], ({ name }) => name, () => row(5, [2, 3, 4]), (r, log) => {
    put(r, [log.name, log.leader || 'none', format.exact(log.last), format.exact(log.last - Math.min(log.followed, log.last)),
      `${log.current} of ${log.replicas}`])
    r.children[1].classList.toggle('bad', !log.leader)
    r.children[4].classList.toggle('bad', log.current < log.replicas)
  })
}
