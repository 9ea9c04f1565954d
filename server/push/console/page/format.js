// The console's formats of figures: short enough for a phone, with units.

const whole = new Intl.NumberFormat('en')
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 })
const digits = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 })

export const count = (n) => Math.abs(n) < 100_000 ? whole.format(Math.round(n)) : short.format(n)
export const exact = (n) => whole.format(n)
export const rate = (n) => `${count(n)}/s`
export const percent = (n) => `${n.toFixed(n < 10 ? 1 : 0)} %`

export function bytes(n) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  let unit = 0
  while (n >= 1000 && unit < units.length - 1) {
    n /= 1000
    unit++
  }
  return `${digits.format(n)} ${units[unit]}`
}

// limit formats a number of bytes in the notation of the options: 1MiB, not 1.05 MB.
export function limit(n) {
  const unit = ['B', 'KiB', 'MiB', 'GiB'].findLastIndex((_, i) => n % 1024 ** i === 0)
  return `${exact(n / 1024 ** unit)} ${['B', 'KiB', 'MiB', 'GiB'][unit]}`
}

export const byteRate = (n) => `${bytes(n)}/s`

export function micros(n) {
  if (n < 1000) return `${digits.format(n)} µs`
  if (n < 1_000_000) return `${digits.format(n / 1000)} ms`
  return `${digits.format(n / 1_000_000)} s`
}

export function duration(seconds) {
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]]
  const first = Math.max(units.findIndex(([, size]) => seconds >= size), 0)
  if (seconds < 60) return `${seconds} s`
  return units.slice(first, first + 2).map(([name, size], i) => {
    const n = Math.floor(i === 0 ? seconds / size : seconds % units[first][1] / size)
    return `${n} ${name}`
  }).join(' ')
}

export const clock = (ms) => new Date(ms).toLocaleTimeString('en-GB')
