// Connects with the centrifuge client, subscribes, and prints one line for everything that happens.
// Usage: node client.mjs URL CHANNEL [TOKEN [SUBSCRIPTION-TOKEN NEXT-SUBSCRIPTION-TOKEN]]. A line on standard input is published to the channel.
import { createInterface } from 'node:readline'
import { Centrifuge } from 'centrifuge'
import WebSocket from 'ws'

const [url, channel, token = '', ...own] = process.argv.slice(2)
const say = (...words) => console.log(words.join(' '))

const client = new Centrifuge(url, { websocket: WebSocket, token, minReconnectDelay: 100 })
client.on('connected', () => say('connected'))
client.on('connecting', (c) => say('connecting', c.code, c.reason))
client.on('disconnected', (c) => say('disconnected', c.code, c.reason))
client.on('error', (c) => say('error', c.type, c.error.code, c.error.message))
client.on('subscribed', (c) => say('server-subscribed', c.channel))
client.on('publication', (c) => say('server-publication', c.channel, JSON.stringify(c.data)))

const renew = async () => {
  say('renewed')
  return own[1]
}
const subscription = client.newSubscription(channel, own.length ? { token: own[0], getToken: renew } : {})
subscription.on('subscribed', () => say('subscribed'))
subscription.on('unsubscribed', (c) => say('unsubscribed', c.code, c.reason))
subscription.on('error', (c) => say('subscription-error', c.error.code, c.error.message))
subscription.on('publication', (c) => say('publication', JSON.stringify(c.data)))

subscription.subscribe()
client.connect()

createInterface({ input: process.stdin })
  .on('line', (line) => subscription.publish(JSON.parse(line)).then(() => say('published'), (e) => say('publish-error', e.code)))
  .on('close', () => process.exit(0))
