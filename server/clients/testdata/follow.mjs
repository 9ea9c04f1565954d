// Follows a channel with the centrifuge client and prints one line for everything that happens.
// Usage: node follow.mjs URL CHANNEL. On standard input: presence, stats, history.
import { createInterface } from 'node:readline'
import { Centrifuge } from 'centrifuge'
import WebSocket from 'ws'

const [url, channel] = process.argv.slice(2)
const say = (...words) => console.log(words.join(' '))

const client = new Centrifuge(url, { websocket: WebSocket, minReconnectDelay: 20, maxReconnectDelay: 200 })
client.on('disconnected', (c) => say('disconnected', c.code, c.reason))

const subscription = client.newSubscription(channel, { joinLeave: true })
subscription.on('subscribed', (c) => say('subscribed', c.wasRecovering, c.recovered))
subscription.on('error', (c) => say('subscription-error', c.error.code, c.error.message))
subscription.on('publication', (c) => say('publication', JSON.stringify(c.data)))
subscription.on('join', (c) => say('join', c.info.client))
subscription.on('leave', (c) => say('leave', c.info.client))

subscription.subscribe()
client.connect()

const ask = {
  presence: async () => say('presence', Object.keys((await subscription.presence()).clients).length),
  stats: async () => { const s = await subscription.presenceStats(); say('stats', s.numClients, s.numUsers) },
  history: async () => { const h = await subscription.history({ limit: 10 }); say('history', h.publications.length, h.offset) },
}
createInterface({ input: process.stdin })
  .on('line', (line) => ask[line]().catch((e) => say('error', e.code, e.message)))
  .on('close', () => process.exit(0))
