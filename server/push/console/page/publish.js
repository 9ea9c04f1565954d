// The form that publishes, with the same request that any program sends.

import { byId, say } from './element.js'
import { micros } from './format.js'
import { call, key } from './request.js'

export function start() {
  const form = byId('publish')
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    publish(new FormData(form))
  })
  form.addEventListener('input', () => showCommand(form))
  showCommand(form)
}

async function publish(form) {
  const state = byId('published')
  let data
  try {
    data = JSON.parse(form.get('data'))
  } catch (error) {
    return say(state, `The data is not JSON: ${error.message}`, true)
  }
  const began = performance.now()
  try {
    await call('publish', { channel: form.get('channel'), data })
    say(state, `Published to ${form.get('channel')} in ${micros((performance.now() - began) * 1000)}.`)
  } catch (error) {
    say(state, `Not published: ${error.message}`, true)
  }
}

function showCommand(form) {
  const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`
  let data = form.elements.data.value
  try {
    data = JSON.stringify(JSON.parse(data))
  } catch {
    // An incomplete value is shown as it is.
  }
  const lines = ['curl']
  if (key()) lines.push('-H "X-API-Key: $MYRIAD_API_KEY"')
  lines.push(`-d ${quote(`{"channel": ${JSON.stringify(form.elements.channel.value)}, "data": ${data}}`)}`, String(new URL('api/publish', document.baseURI)))
  say(byId('curl'), lines.join(' \\\n  '))
}
