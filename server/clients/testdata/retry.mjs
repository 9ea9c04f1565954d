// Publishes once. Usage: node retry.mjs HOST PORT
import { Redis } from 'ioredis'

const client = new Redis({ host: process.argv[2], port: Number(process.argv[3]) })
client.on('error', () => {}) // the connection is made again
try {
  console.log('published', await client.publish('news', '1'))
} catch (error) {
  console.log('refused', error.message)
}
client.disconnect()
