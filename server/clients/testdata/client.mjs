// Connects with the centrifuge client, subscribes, and prints one line for everything that happens.
// Usage: node client.mjs URL CHANNEL [TOKEN]. A line on standard input is published to the channel.
import { createInterface } from 'node:readline'
import { Centrifuge } from 'centrifuge'
import WebSocket from 'ws'

const [url, channel, token = ''] = process.argv.slice(2)
const say = (...words) => console.log(words.join(' '))

const client = new Centrifuge(url, { websocket: WebSocket, token, minReconnectDelay: 100 })
client.on('connected', () => say('connected'))
client.on('connecting', (c) => say('connecting', c.code, c.reason))
client.on('disconnected', (c) => say('disconnected', c.code, c.reason))
client.on('error', (c) => say('error', c.type, c.error.code, c.error.message))

const subscription = client.newSubscription(channel)
subscription.on('subscribed', () => say('subscribed'))
subscription.on('error', (c) => say('subscription-error', c.error.code, c.error.message))
subscription.on('publication', (c) => say('publication', JSON.stringify(c.data)))

subscription.subscribe()
client.connect()

createInterface({ input: process.stdin })
  .on('line', (line) => subscription.publish(JSON.parse(line)).then(() => say('published'), (e) => say('publish-error', e.code)))
  .on('close', () => process.exit(0))
