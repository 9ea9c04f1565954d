// Subscribes to a Mercure hub with an EventSource, and prints one line for everything that happens.
// Usage: node mercure.mjs URL [TOKEN]
import { EventSource } from 'eventsource'

const [url, token] = process.argv.slice(2)
const events = new EventSource(url, {
  withCredentials: true,
  fetch: (input, init) =>
    fetch(input, { ...init, headers: { ...init.headers, ...(token && { Cookie: `mercureAuthorization=${token}` }) } }),
})
events.onopen = () => console.log('open')
events.onmessage = (event) => console.log('update', event.lastEventId, JSON.stringify(event.data))
events.addEventListener('added', (event) => console.log('added', JSON.stringify(event.data)))
events.onerror = (event) => console.log('error', event.code ?? '')
process.stdin.on('data', () => {}).on('end', () => process.exit(0))
