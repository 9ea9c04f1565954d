// Subscribes with an EventSource and prints one line for everything that happens. Usage: node events.mjs URL
import { EventSource } from 'eventsource'

const events = new EventSource(process.argv[2])
events.onopen = () => console.log('open')
events.onmessage = (event) => console.log('publication', event.data)
events.onerror = (event) => console.log('error', event.code ?? '')
process.stdin.on('data', () => {}).on('end', () => process.exit(0))
