// Requests, which all go to the server of this page. The operator's key stays in this tab.

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

export const getJSON = async (path) => (await request(path)).json()
