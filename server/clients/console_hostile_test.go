package clients

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// hostile is what an attacker sends in every string: markup that calls a function of the page.
const hostile = `<img src=x onerror="window.hacked=1">'"&<script>window.hacked=1</script>${hacked}`

// hostileClient opens a WebSocket in the page, whose client has hostile strings wherever a client
// has a choice: its user, what others may learn of it, its channels, its data, and what is refused.
func hostileClient(t *testing.T, b *browser) (token string) {
	t.Helper()
	claims := jwt.MapClaims{"sub": hostile, "exp": time.Now().Add(time.Hour).Unix(), "info": hostile,
		hostile: hostile,
		"meta":  hostile}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal([]string{token, hostile})
	if err != nil {
		t.Fatal(err)
	}
	b.run(`const [token, hostile] = `+string(text)+`
		window.ws = new WebSocket('ws://' + location.host + '/connection/websocket')
		ws.onopen = () => ws.send([
			{ id: 1, connect: { token, name: hostile, version: hostile, data: hostile } },
			{ id: 2, subscribe: { channel: 'h:' + hostile } },
			{ id: 3, publish: { channel: 'h:' + hostile, data: hostile } },
			{ id: 4, subscribe: { channel: 'p:' + hostile, token: hostile } },
		].map((c) => JSON.stringify(c)).join('\n'))
		ws.onmessage = ({ data }) => { window.answers = (window.answers ?? '') + data }
		ws.onclose = ({ code }) => { window.closeCode = code }`, nil)
	b.until(`window.answers?.includes('"id":4')`)
	return token
}

// js returns text as a JavaScript string.
func js(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(quoted)
}

// An operator finds a client by its user, looks at its subscriptions, its refusals and its token,
// and disconnects it with the key of the API. All its strings are hostile, and appear as text.
func TestConsoleWithHostileStrings(t *testing.T) {
	s := serve(t, "--api-key", "the key", "--console-key", "view", "--token-secret", secret, "--namespace",
		"name=h history-size=10 presence", "--namespace", "name=p subscribe-token")
	b := startBrowser(t)
	b.look(1440, "light")
	b.open("http://" + s.addr + "/")
	b.until(`!document.getElementById('door').hidden`)
	b.run(`document.querySelector('#unlock input').focus()`, nil)
	b.press("view" + enter)
	b.until(`document.getElementById('state').textContent === 'Live'`)
	token := hostileClient(t, b)

	b.run(`document.querySelector('#find input').focus()`, nil)
	b.press(`onerror="window` + enter)
	b.until(`document.querySelector('#clients th')?.textContent === ` + js(hostile))
	b.run(`document.querySelector('#clients button').click()`, nil)
	b.until(`document.querySelector('#client-channels span')?.textContent === ` + js("h:"+hostile))
	b.until(`document.activeElement.id === 'client-name'`)

	b.until(`document.querySelector('#refusals code')?.textContent.includes('subscribe ')`)
	b.until(`document.getElementById('refusals-state').textContent.includes('permission 1')`)

	b.until(`document.querySelectorAll('#channels button').length === 2`)
	b.run(`document.querySelector('#channels button').click()`, nil)
	b.until(`JSON.parse(document.querySelector('#channel-publications code')?.textContent ?? '0') === ` + js(hostile))
	b.until(`document.querySelector('#channel-clients span')?.textContent.startsWith(` + js(hostile) + `)`)
	b.run(`document.querySelectorAll('#channels button')[1].click()`, nil)
	b.until(`document.querySelector('#watched span')?.textContent === ` + js("h:"+hostile))
	b.run(`ws.send(JSON.stringify({ id: 5, publish: { channel: `+js("h:"+hostile)+`, data: `+js(hostile)+` } }))`,
		nil)
	b.until(`document.querySelector('#messages .channel')?.textContent === ` + js("h:"+hostile))

	b.run(`const f = document.getElementById('token').elements; f.token.value = `+js(token)+`; f.channels.value = `+
		js("p:"+hostile+"\nh:1")+`; document.querySelector('#token button').click()`, nil)
	b.until(`document.getElementById('token-state').textContent.startsWith(` +
		js("Accepted for connections of "+hostile) + `)`)
	b.until(`[...document.querySelectorAll('#token-claims th')].some((th) => th.textContent === ` + js(hostile) + `)`)
	b.until(`document.querySelectorAll('#token-channels tr')[1].children[1].textContent === 'yes: every client may'`)
	b.until(`[...document.querySelectorAll('#namespaces tr')].some((tr) => tr.textContent.includes('subscribe-token'))`)

	const disconnect = `document.querySelectorAll('#clients button')[1].click()`
	b.run(disconnect, nil)
	b.until(`document.getElementById('clients-acted').textContent.startsWith('Not done: this needs the key')`)
	b.run(`document.querySelector('#api-key input').focus()`, nil)
	b.press("the key")
	checkCallAPI(b)
	var found []string
	if b.run(audit, &found); len(found) > 0 {
		t.Errorf("%s", strings.Join(found, "\n"))
	}
	b.run(disconnect, nil)
	b.until(`window.closeCode === 3503`)
	b.until(`document.querySelectorAll('#clients tr').length === 0`)

	var hacked bool
	b.run(`return 'hacked' in window || document.querySelectorAll('main img, main script').length > 0`, &hacked)
	if hacked {
		t.Error("a string of the client has become markup")
	}
	for _, complaint := range b.complaints() {
		if !strings.Contains(complaint, "401 (Unauthorized)") {
			t.Errorf("the browser complains: %s", complaint)
		}
	}
}

// checkCallAPI calls a method of the API by the console's form.
func checkCallAPI(b *browser) {
	b.t.Helper()
	b.until(`document.querySelectorAll('#api option').length > 12`)
	b.run(`const method = document.getElementById('api').elements.method; method.value = 'connections';
		method.dispatchEvent(new Event('change'))`, nil)
	b.until(`document.getElementById('api').elements.request.value.includes('"user": ""')`)
	b.run(`document.querySelector('#api button').click()`, nil)
	b.until(`Object.values(JSON.parse(document.getElementById('api-answer').textContent || '{}').connections ?? ` +
		`{})[0]?.user === ` + js(hostile))
}
