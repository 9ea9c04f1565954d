// Requests, which all go to the server of this page. The operator's key stays in this tab.

import { byId } from './element.js'

const keyName = 'myriad-key'

export const key = () => sessionStorage.getItem(keyName) ?? ''

export function setKey(value) {
  if (value) sessionStorage.setItem(keyName, value)
  else sessionStorage.removeItem(keyName)
}

// A Refused is an error response, with its status.
export class Refused extends Error {
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

// request returns the response, or throws a Refused. It sends the given key, or else the operator's.
export async function request(path, { headers = {}, as = key(), ...options } = {}) {
  if (as) headers['X-API-Key'] = as
  const response = await fetch(path, { cache: 'no-store', ...options, headers })
  if (response.ok) return response
  let message = `status ${response.status}`
  try {
    message = (await response.json()).error.message
  } catch {
    // A proxy may have answered with another body: use the status.
  }
  throw new Refused(response.status, message)
}

// call calls a method of the HTTP API, and returns its result, or throws a Refused. The operator's key may be one that the API refuses.
// Then it asks for the key of the API.
export async function call(method, body) {
  const row = byId('api-key')
  try {
    const answer = await (await request(`api/${method}`, {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, as: row.querySelector('input').value || key(), body: JSON.stringify(body),
    })).json()
    if (answer.error) throw new Refused(200, answer.error.message)
    return answer.result ?? answer
  } catch (error) {
    if (error.status !== 401) throw error
    row.hidden = false
    throw new Refused(401, 'this needs the key of --api-key, which you can enter at the top')
  }
}

export const getJSON = async (path) => (await request(path)).json()
