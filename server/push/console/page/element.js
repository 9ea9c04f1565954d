// Helpers that create and change elements. They set text as text: input from clients is never parsed as HTML.

export const byId = (id) => document.getElementById(id)

export function element(name, attributes = {}, ...children) {
  const e = document.createElement(name)
  set(e, attributes)
  e.append(...children)
  return e
}

export function svg(name, attributes = {}, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name)
  set(e, attributes)
  e.append(...children)
  return e
}

function set(e, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value)
    else if (value !== false) e.setAttribute(name, value === true ? '' : value)
  }
}

// say sets a line of text only if it differs, so that screen readers do not read the same text again.
export function say(e, text, bad = false) {
  if (e.textContent !== text) e.textContent = text
  e.classList.toggle('bad', bad)
}

// fill makes a table's rows match the list, and reuses existing rows, so that focus is not lost: make(item) returns
// a row, change(row, item) updates it.
export function fill(body, list, keyOf, make, change) {
  const old = new Map([...body.children].map((row) => [row.dataset.key, row]))
  list.forEach((item, i) => {
    const key = keyOf(item)
    let row = old.get(key)
    if (row) old.delete(key)
    else {
      row = make(item)
      row.dataset.key = key
    }
    change(row, item)
    if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null)
  })
  for (const row of old.values()) row.remove()
}
