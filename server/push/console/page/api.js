// Every method of the HTTP API, from the server's own description of it.

import { byId, element, say } from './element.js'
import { call, getJSON } from './request.js'

const empty = { string: '', integer: 0, boolean: false, array: [] }

let requests // an empty request for each method

export function start() {
  const form = byId('api')
  form.elements.method.addEventListener('change', () => fillIn(form))
  form.addEventListener('submit', async (event) => {
    event.preventDefault()
    const method = form.elements.method.value
    let body
    try {
      body = JSON.parse(form.elements.request.value)
    } catch (error) {
      return say(byId('api-state'), `The request is not JSON: ${error.message}`, true)
    }
    byId('api-answer').hidden = true
    try {
      const result = await call(method, body)
      say(byId('api-state'), `${method} has succeeded.`)
      byId('api-answer').hidden = false
      say(byId('api-answer'), JSON.stringify(result, undefined, 1))
    } catch (error) {
      say(byId('api-state'), `Not done: ${error.message}`, true)
    }
  })
}

// show reads the description once.
export async function show() {
  if (requests) return
  const { paths } = await getJSON('api/openapi.json')
  requests = {}
  for (const [path, { post }] of Object.entries(paths)) {
    const { properties } = post.requestBody.content['application/json'].schema
    requests[path.slice('/api/'.length)] = Object.fromEntries(Object.entries(properties).map(([name, { type }]) => [name, empty[type] ?? null]))
  }
  const form = byId('api')
  form.elements.method.replaceChildren(...Object.keys(requests).sort().map((name) => element('option', {}, name)))
  form.elements.method.value = 'info'
  fillIn(form)
}

function fillIn(form) {
  const method = form.elements.method.value
  form.elements.request.value = JSON.stringify(requests[method], undefined, 1)
}
