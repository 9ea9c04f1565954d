// A chart shows a figure's current value, one or two lines over time, and their values at the pointer.

import { clock } from './format.js'
import { element, svg } from './element.js'

const height = 84
const top = 14 // above the highest value, for its label
const gap = 3000 // ms without a sample that break a line

// scale rounds up to 1, 2 or 5 times a power of ten, so that small changes of the values do not move the axis.
function scale(max, least) {
  const wanted = Math.max(max, least)
  const power = 10 ** Math.floor(Math.log10(wanted))
  return [1, 2, 5, 10].find((n) => n * power >= wanted) * power
}

export class Chart {
  // lines are { field, name, format, skipZero }; the first one's format also writes the axis and the large figure. note(stats), if
  // given, is a remark below. least is what the axis reaches to at least.
  constructor({ title, lines, note, least = 1 }) {
    Object.assign(this, { title, lines, note, least })
    this.value = element('p', { class: 'value' }, '–')
    this.legend = element('p', { class: 'legend' })
    this.keys = lines.map((line, i) => element('span', { class: `key line-${i}` }))
    if (lines.length > 1) this.legend.append(...this.keys)
    this.remark = element('span')
    this.legend.append(this.remark)
    this.plot = svg('svg', { class: 'plot', role: 'img', height, 'aria-label': title })
    this.figure = element('figure', { class: 'panel chart' }, element('figcaption', {}, title), this.value, this.plot, this.legend)
    this.samples = []
    this.width = 0
    new ResizeObserver(([entry]) => {
      this.width = entry.contentRect.width
      this.draw()
    }).observe(this.plot)
    this.plot.addEventListener('pointermove', (event) => this.point(event))
    this.plot.addEventListener('pointerleave', () => this.onpoint?.(undefined))
  }

  // show draws rows (objects, newest last) over the given range of time.
  show(stats, samples, from, to, at) {
    Object.assign(this, { stats, samples, from, to, at })
    this.draw()
  }

  point(event) {
    const box = this.plot.getBoundingClientRect()
    this.onpoint?.(this.from + (event.clientX - box.left) / box.width * (this.to - this.from))
  }

  draw() {
    if (!this.width || !this.samples.length) return
    const now = this.samples.at(-1)
    const shown = this.at === undefined ? now : nearest(this.samples, this.at)
    const main = this.lines[0]
    const past = this.at !== undefined
    this.value.textContent = main.format(shown[main.field])
    this.figure.classList.toggle('past', past)
    this.lines.forEach((line, i) => { this.keys[i].textContent = `${line.name} ${line.format(shown[line.field])}` })
    this.remark.textContent = past ? clock(shown.time) : this.note?.(this.stats) ?? ''
    const max = Math.max(...this.lines.flatMap((line) => this.samples.map((s) => s[line.field])))
    const most = scale(max, this.least)
    this.plot.setAttribute('viewBox', `0 0 ${this.width} ${height}`)
    this.plot.setAttribute('aria-label', `${this.title}: ${this.lines.map((line) => `${line.name} ${line.format(now[line.field])}`).join(', ')}; at most ${main.format(max)} in the time shown`)
    this.plot.replaceChildren(...this.grid(most), ...this.lines.flatMap((line, i) => this.line(line, i, most)), ...this.cursor(past && shown))
  }

  x(time) { return (time - this.from) / (this.to - this.from) * this.width }
  y(value, most) { return height - 1 - value / most * (height - 1 - top) }

  grid(most) {
    const label = svg('text', { x: 0, y: top - 4, class: 'axis' })
    label.textContent = this.lines[0].format(most)
    const across = (y) => svg('line', { x1: 0, x2: this.width, y1: y, y2: y, class: 'grid' })
    return [across(top), across(height - .5), label]
  }

  line(line, i, most) {
    const runs = []
    let last
    for (const s of this.samples) {
      if (line.skipZero && s[line.field] === 0) {
        last = undefined
        continue
      }
      if (last === undefined || s.time - last > gap) runs.push([])
      last = s.time
      runs.at(-1).push([this.x(s.time), this.y(s[line.field], most)])
    }
    return runs.flatMap((run) => {
      const [first, end] = [run[0][0], run.at(-1)[0]]
      if (run.length === 1) return [svg('circle', { cx: first, cy: run[0][1], r: 1.5, class: `dot line-${i}` })]
      const path = 'M' + run.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join('L')
      const stroke = svg('path', { d: path, class: `stroke line-${i}` })
      return i > 0 ? [stroke] : [svg('path', { d: `${path}L${end.toFixed(1)} ${height}L${first.toFixed(1)} ${height}Z`, class: `area line-${i}` }), stroke]
    })
  }

  cursor(shown) {
    if (!shown) return []
    const x = this.x(shown.time)
    return [svg('line', { x1: x, x2: x, y1: top, y2: height, class: 'cursor' })]
  }
}

function nearest(samples, time) {
  return samples.reduce((best, s) => Math.abs(s.time - time) < Math.abs(best.time - time) ? s : best)
}
