// The charts, and the samples that they show.

import { Chart } from './chart.js'
import * as format from './format.js'
import { byId } from './element.js'

const keep = 600_000 // ms
const least = 60_000 // ms; the shortest range, so that the charts of a new server fill sooner

const charts = [
  { title: 'Connections', lines: [{ field: 'connections', name: 'now', format: format.count }], least: 10 },
  { title: 'Messages delivered', lines: [{ field: 'messages', name: 'delivered', format: format.rate }, { field: 'publishes', name: 'published', format: format.rate }], least: 10 },
  { title: 'Publish latency, 99 %', lines: [{ field: 'p99', name: '99 %', format: latency, skipZero: true }, { field: 'p50', name: '50 %', format: latency, skipZero: true }], least: 100 },
  { title: 'Channels', lines: [{ field: 'channels', name: 'now', format: format.count }], least: 10 },
  { title: 'Loops busy', lines: [{ field: 'busy', name: 'busy', format: (n) => format.percent(n / 10) }], least: 10 },
  { title: 'Loops and tasks late', lines: [{ field: 'late', name: 'loops', format: format.micros }, { field: 'tasks_late', name: 'tasks', format: format.micros }], least: 1000 },
  { title: 'Traffic out', lines: [{ field: 'out', name: 'out', format: format.byteRate }, { field: 'in', name: 'in', format: format.byteRate }], least: 1000 },
  { title: 'Memory', lines: [{ field: 'rss', name: 'process', format: format.bytes }, { field: 'heap', name: 'heap', format: format.bytes }], least: 1e6 },
  { title: 'Goroutines', lines: [{ field: 'goroutines', name: 'now', format: format.count }], least: 10 },
  { title: 'Waiting for slow clients', lines: [{ field: 'queued', name: 'waiting', format: format.bytes }], note: (stats) => `${format.count(stats.slow_disconnects)} disconnected as too slow`, least: 1000 },
].map((options) => new Chart(options))

function latency(micros) { return micros ? format.micros(micros) : '–' }

let samples = []
let stats
let at // the time at the pointer, in every chart

export const newest = () => samples.at(-1)?.time ?? 0

export function start() {
  byId('charts').append(...charts.map((chart) => chart.figure))
  for (const chart of charts) {
    chart.onpoint = (time) => {
      at = time
      draw()
    }
  }
  byId('range').addEventListener('change', draw)
}

// add appends the server's samples. If another process answers, it drops the old samples.
export function add(next) {
  if (stats && next.uptime_seconds < stats.uptime_seconds) samples = []
  stats = next
  const rows = next.samples.map((row) => Object.fromEntries(next.fields.map((name, i) => [name, row[i]])))
  samples.push(...rows.filter((row) => row.time > newest()))
  samples = samples.filter((s) => s.time > newest() - keep)
  draw()
}

function draw() {
  if (!samples.length) return
  const to = newest()
  const from = to - Math.min(Number(byId('range').value) * 1000, Math.max(least, to - samples[0].time))
  const shown = samples.filter((s) => s.time >= from)
  for (const chart of charts) chart.show(stats, shown, from, to, at)
}
