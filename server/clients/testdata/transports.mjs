// Connects with the centrifuge client over one of its transports, and prints one line for everything
// that happens. Usage: node transports.mjs TRANSPORT CODEC ADDRESS CHANNEL [TOKEN]. A line on standard
// input is published to the channel. The subscription asks for deltas.
import { createInterface } from 'node:readline'
import { Centrifuge as JSONClient } from 'centrifuge'
import { Centrifuge as ProtobufClient } from 'centrifuge/build/protobuf'
import { EventSource } from 'eventsource'
import WebSocket from 'ws'

const [transport, codec, address, channel, token = ''] = process.argv.slice(2)
const say = (...words) => console.log(words.join(' '))
const endpoint = `${transport === 'websocket' ? 'ws' : 'http'}://${address}/connection/${transport}`
const binary = codec === 'protobuf'
const encode = (value) => binary ? new TextEncoder().encode(JSON.stringify(value)) : value
const decode = (data) => binary ? new TextDecoder().decode(data) : JSON.stringify(data)

const client = new (binary ? ProtobufClient : JSONClient)([{ transport, endpoint }], {
  websocket: WebSocket, fetch, eventsource: EventSource, readableStream: ReadableStream,
  emulationEndpoint: `http://${address}/emulation`, token, minReconnectDelay: 100,
})
client.on('connected', () => say('connected'))
client.on('connecting', (c) => say('connecting', c.code, c.reason))
client.on('disconnected', (c) => say('disconnected', c.code, c.reason))
client.on('error', (c) => say('error', c.type, c.error.code, c.error.message))
client.on('subscribed', (c) => say('server-side', c.channel))
client.on('publication', (c) => say('server-side-publication', c.channel, decode(c.data)))

const subscription = client.newSubscription(channel, { delta: 'fossil' })
subscription.on('subscribed', () => say('subscribed'))
subscription.on('error', (c) => say('subscription-error', c.error.code, c.error.message))
subscription.on('publication', (c) => say('publication', decode(c.data)))

subscription.subscribe()
client.connect()

const ask = {
  rpc: () => client.rpc('method', encode({})).then(() => say('answered'), (e) => say('rpc-error', e.code)),
  deltas: async () => say('deltas', subscription.deltaStats().numDeltaPayloads),
}
createInterface({ input: process.stdin })
  .on('line', (line) => ask[line] ? ask[line]()
    : subscription.publish(encode(JSON.parse(line))).then(() => say('published'), (e) => say('publish-error', e.code)))
  .on('close', () => process.exit(0))
