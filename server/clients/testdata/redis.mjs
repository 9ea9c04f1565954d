// Speaks to a server with ioredis and prints "ok" if all of its answers are right.
// Usage: node redis.mjs HOST PORT PROTOCOL store|door|listen [PASSWORD]
import assert from 'node:assert/strict'
import { once } from 'node:events'
import Redis from 'ioredis'

const [host, port, protocol, what, password] = process.argv.slice(2)
const connect = () =>
  new Redis({ host, port: Number(port), protocol: Number(protocol), password, connectionName: 'test', retryStrategy: null })
const client = connect()

async function store() {
  assert.equal(await client.client('GETNAME'), 'test')
  await client.flushall()
  assert.equal(await client.set('k', 'v', 'EX', 60), 'OK')
  assert.equal(await client.get('k'), 'v')
  assert.equal(await client.get('none'), null)
  assert.equal(await client.set('k', 'w', 'NX'), null)
  assert.equal(await client.mset('a', '1', 'b', '2'), 'OK')
  assert.deepEqual(await client.mget('a', 'none', 'b'), ['1', null, '2'])
  assert.equal(await client.hset('h', { x: '1', y: '2' }), 2)
  assert.deepEqual({ ...(await client.hgetall('h')) }, { x: '1', y: '2' })
  assert.equal(await client.incrby('a', 41), 42)
  assert.equal(await client.del('a', 'b'), 2)
  await assert.rejects(client.get('h'), /^ReplyError: WRONGTYPE /)
  await assert.rejects(client.call('NOPE', 'x'), /unknown command 'NOPE'/)
  const pipeline = client.pipeline()
  for (let i = 0; i < 1000; i++) pipeline.set(`p${i}`, 'x'.repeat(i)).get(`p${i}`)
  const replies = await pipeline.exec()
  replies.forEach(([error, reply], i) => assert.deepEqual([error, reply], [null, i % 2 ? 'x'.repeat((i - 1) / 2) : 'OK']))
  const big = '0123456789abcdef'.repeat(65536)
  await client.set('big', big)
  assert.equal(await client.get('big'), big)
  assert.match(await client.info('server'), /redis_version:7.0.15/)
  await channels()
}

async function door() {
  assert.equal(await client.ping(), 'PONG')
  await channels()
  await assert.rejects(client.get('k'), /unknown command 'get'/i)
  const sharded = connect()
  await sharded.ssubscribe('shard')
  const got = once(sharded, 'smessage')
  await client.spublish('shard', 'hello')
  assert.deepEqual(await got, ['shard', 'hello'])
  sharded.disconnect()
  assert.deepEqual(await client.multi().publish('nobody', '1').echo('two').exec(), [[null, 0], [null, 'two']])
  await assert.rejects(client.multi().publish('nobody', '1').get('k').exec(), /EXECABORT/)
}

async function channels() {
  const subscriber = connect()
  assert.equal(await subscriber.subscribe('news', 'other'), 2)
  assert.equal(await subscriber.psubscribe('n*'), 3)
  const both = Promise.all([once(subscriber, 'message'), once(subscriber, 'pmessage')])
  assert.equal(await client.publish('news', 'hello'), 2)
  assert.deepEqual(await both, [['news', 'hello'], ['n*', 'news', 'hello']])
  assert.equal(await subscriber.punsubscribe('n*'), 2)
  assert.equal(await subscriber.unsubscribe('other'), 1)
  assert.equal(await client.publish('other', 'nobody'), 0)
  const again = once(subscriber, 'message')
  assert.equal(await client.publish('news', 'again'), 1)
  assert.deepEqual(await again, ['news', 'again'])
  subscriber.disconnect()
}

// Prints each message, until it is "end". No connection is made anew meanwhile.
async function listen() {
  const id = await client.client('ID')
  const subscriber = connect()
  await subscriber.subscribe('news')
  console.log('subscribed')
  await new Promise((resolve, reject) => {
    subscriber.on('close', () => reject(new Error('the connection has ended')))
    subscriber.on('message', (_, data) => {
      Promise.all([client.client('ID'), client.client('GETNAME')]).then((got) => {
        assert.deepEqual(got, [id, 'test'])
        console.log('got', data)
        if (data === 'end') resolve()
      }, reject)
    })
  })
  subscriber.disconnect()
}

await { store, door, listen }[what]()
client.disconnect()
console.log('ok')
