package clients

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// audit is a script that checks a page in one size and colour scheme, and returns complaints. Text
// must have the contrast of WCAG AA, and each control a name. Figures and times must stay on one
// line. The page must not overflow to the right, and must load nothing from other servers.
const audit = `
const found = []
const shown = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
	e.getClientRects().length > 0
const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true })
const channels = (colour) => {
	canvas.clearRect(0, 0, 1, 1)
	canvas.fillStyle = colour
	canvas.fillRect(0, 0, 1, 1)
	return [...canvas.getImageData(0, 0, 1, 1).data]
}
const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255)
	.map((c) => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
	.reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0)
const behind = (e) => {
	for (; e; e = e.parentElement) {
		const colour = channels(getComputedStyle(e).backgroundColor)
		if (colour[3] === 255) return colour
		if (colour[3] !== 0) found.push('a background that shines through: ' + e.outerHTML.slice(0, 80))
	}
	return [255, 255, 255]
}
const contrast = (a, b) => {
	const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p)
	return (x + .05) / (y + .05)
}
for (const e of document.querySelectorAll('body *')) {
	if (!shown(e) || e.closest('.unseen, .skip, noscript, option')) continue
	const texts = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) ||
		e.matches('input, textarea, select')
	if (texts) {
		const style = getComputedStyle(e)
		const ratio = contrast(channels(e instanceof SVGElement ? style.fill : style.color), behind(e))
		if (ratio < 4.5) found.push('contrast ' + ratio.toFixed(2) + ' of ' + e.outerHTML.slice(0, 120))
		if (parseFloat(style.fontSize) < 10)
			found.push('letters of ' + style.fontSize + ' in ' + e.outerHTML.slice(0, 80))
	}
	const box = e.getBoundingClientRect()
	if (box.right > screen.width + 1 && !e.closest('.scroll, pre'))
		found.push('overflows by ' + (box.right - screen.width).toFixed(0) + ': ' + e.outerHTML.slice(0, 120))
	if (e.matches('tbody td.figure, #slow td:first-child')) {
		const text = document.createRange()
		text.selectNodeContents(e)
		if (text.getClientRects().length > 1) found.push('broken over lines: ' + e.outerHTML.slice(0, 120))
	}
	if (e.matches('input, textarea, select, button')) {
		const name = e.getAttribute('aria-label') ||
			[...(e.labels ?? [])].map((l) => l.textContent.trim()).join() ||
			(e.matches('button') && e.textContent.trim())
		if (!name) found.push('no name: ' + e.outerHTML.slice(0, 120))
		if (box.width < 24 || box.height < 24)
			found.push('hard to touch, ' + box.width + ' x ' + box.height + ': ' + e.outerHTML.slice(0, 120))
	}
}
for (const entry of performance.getEntriesByType('resource'))
	if (new URL(entry.name).origin !== location.origin) found.push('loaded ' + entry.name)
const ids = [...document.querySelectorAll('[id]')].map((e) => e.id)
if (new Set(ids).size !== ids.length) found.push('an id is used twice')
const levels = [...document.querySelectorAll('h1, h2, h3')].map((h) => h.tagName).join(' ')
if (!/^H1( H2( H3)*)*$/.test(levels)) found.push('headings ' + levels)
return found`

// focusable is a script that returns the elements that Tab should reach, in order.
const focusable = `const all = 'a[href], button, input, select, textarea, summary, [tabindex="0"]'
return [...document.querySelectorAll(all)]
	.filter((e) => e.checkVisibility() && !e.disabled)
	.map((e, i) => { e.dataset.order = i; return e.outerHTML.slice(0, 100) })`

const focused = `const e = document.activeElement, style = getComputedStyle(e)
return { order: Number(e.dataset.order ?? -1),
	visible: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
	html: e.outerHTML.slice(0, 100) }`

func checkFocusOrder(t *testing.T, b *browser) {
	t.Helper()
	var stops []string
	b.run("document.querySelector('.skip').focus(); "+focusable, &stops)
	if len(stops) < 10 {
		t.Errorf("only %d elements can be focused", len(stops))
	}
	for i, want := range stops[1:] {
		var now struct {
			Order   int
			Visible bool
			HTML    string
		}
		b.press(tab)
		b.run(focused, &now)
		if now.Order != i+1 || !now.Visible {
			t.Fatalf("tab %d focuses %s (visibly: %v), want %s", i+1, now.HTML, now.Visible, want)
		}
	}
}

// subscribers keeps n subscriptions open until the test ends, so that the console has figures to
// show.
func subscribers(t *testing.T, s server, n int, channel string) {
	t.Helper()
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	for range n {
		r, err := (&http.Client{Transport: transport}).Get("http://" + s.addr + "/events?channel=" + channel)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Body.Close() })
		if r.StatusCode != 200 {
			t.Fatal(r.Status)
		}
		go func() {
			for lines := bufio.NewScanner(r.Body); lines.Scan(); { // until the body is closed
			}
		}()
	}
}

// post publishes over HTTP without starting curl.
func (s server) post(channel, data string) {
	s.t.Helper()
	r, err := http.Post("http://"+s.addr+"/api/publish", "application/json",
		strings.NewReader(fmt.Sprintf(`{"channel":%q,"data":%s}`, channel, data)))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != 200 {
		s.t.Fatal(r.Status)
	}
}

// slowSubscribers opens n subscriptions that do not read. It publishes until the server has
// disconnected them.
func slowSubscribers(t *testing.T, s server, n int, channel string) {
	t.Helper()
	for range n {
		nc, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		nc.(*net.TCPConn).SetReadBuffer(4 << 10) // fewer bytes fit into the kernel's buffers
		fmt.Fprintf(nc, "GET /events?channel=%s HTTP/1.1\r\nHost: localhost\r\n\r\n", channel)
		begin := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(nc, begin); err != nil || string(begin) != "HTTP/1.1 200" {
			t.Fatalf("%q, %v", begin, err)
		}
	}
	data := `"` + strings.Repeat("x", 200<<10) + `"`
	for range 200 {
		s.post(channel, data)
		r, err := http.Get("http://" + s.addr + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), fmt.Sprintf("\nmyriad_slow_disconnects_total %d\n", n)) {
			return
		}
	}
	t.Fatal("after 40 MB the server has not disconnected all clients that do not read")
}

// An operator subscribes, publishes, sees the message and unsubscribes, with the keyboard only. One
// client is subscribed throughout; the figures do not count the operator.
func TestConsoleByKeyboard(t *testing.T) {
	s := serve(t, "--namespace", "name=rooms history-size=10 presence publish=nobody")
	subscribers(t, s, 1, url.QueryEscape("rooms:<b>1</b>"))
	b := startBrowser(t)
	b.look(1440, "light")
	b.open("http://" + s.addr + "/")
	b.until(`document.getElementById('state').textContent === 'Live'`)
	b.until(`document.querySelectorAll('#charts .stroke').length > 0`)
	b.run(`document.querySelector('#watch input').focus()`, nil)
	b.press(all)
	b.press("rooms:<b>1</b>" + enter)
	b.until(`document.getElementById('watch-state').textContent === 'Subscribed to rooms:<b>1</b>.'`)
	b.until(`[...document.querySelectorAll('#channels tr')].some((r) => r.children[0].textContent === ` +
		`'rooms:<b>1</b>' && r.children[1].textContent === '1')`)

	b.run(`document.querySelector('#publish input').focus()`, nil)
	b.press(all)
	b.press("rooms:<b>1</b>" + tab)
	b.press(all)
	b.press(`{"text": "<img src=x onerror=alert(1)> ü 世界"}` + tab)
	b.press(enter)
	b.until(`document.querySelector('#messages code')?.textContent === '{"text":"<img src=x onerror=alert(1)> ü 世界"}'`)
	b.until(`document.getElementById('published').textContent.startsWith('Published to rooms:<b>1</b> in ')`)
	var text string
	b.run(`return document.getElementById('curl').textContent`, &text)
	if !strings.Contains(text, "/api/publish") || strings.Contains(text, "X-API-Key") {
		t.Errorf("the command is %q", text)
	}

	b.run(`document.querySelector('#channels button').focus()`, nil)
	b.press(enter)
	b.until(`document.querySelector('#channel-publications code')?.textContent === '{"text":"<img src=x ` +
		`onerror=alert(1)> ü 世界"}'`)
	b.until(`document.getElementById('channel-rules').textContent === 'Namespace rooms: only the API publishes, ` +
		`slow clients are disconnected.'`)
	b.until(`document.getElementById('channel-presence').textContent === 'Present: 1' && document.activeElement.id ` +
		`=== 'channel-name'`)
	b.press(tab + enter)
	b.until(`document.getElementById('channel').hidden`)

	b.run(`document.querySelector('#publish textarea').focus()`, nil)
	b.press(all)
	b.press(`{"text": ` + tab)
	b.press(enter)
	b.until(`document.getElementById('published').textContent.startsWith('The data is not JSON')`)

	b.run(`document.querySelector('#watched button').focus()`, nil)
	b.press(enter)
	b.until(`document.getElementById('watch-state').textContent === 'Nothing is watched.'`)
	b.until(`document.querySelectorAll('#channels tr').length === 1`)
	if found := b.complaints(); found != nil {
		t.Errorf("the browser complains: %q", found)
	}
}

// The console passes the audit in both colour schemes, on a phone and on a desktop, and the
// keyboard reaches all of it.
func TestConsoleLooks(t *testing.T) {
	s := serve(t, "--namespace", "name=room history-size=10 recovery presence", "--queue-limit", "256KiB")
	b := startBrowser(t)
	slowSubscribers(t, s, 2, "prices:of-a-market-with-a-long-name")
	subscribers(t, s, 3, "news")
	subscribers(t, s, 7, "room:1")
	subscribers(t, s, 1, "mail/"+strings.Repeat("a-long-name-", 12))
	b.open("http://" + s.addr + "/")
	b.until(`document.getElementById('state').textContent === 'Live'`)
	b.run(`document.querySelector('#watch button').click()`, nil)
	b.until(`document.getElementById('watch-state').textContent === 'Subscribed to news.'`)
	rounds := 5
	if os.Getenv("MYRIAD_SCREENSHOTS") != "" {
		rounds = 600 // fills the charts
	}
	for i := range rounds {
		s.post("news", fmt.Sprintf(`{"text": "message %d", "from": "a program with a long name that fills more `+
			`than one line of a telephone"}`, i))
		for range 1 + i%17 {
			s.post("room:1", `{"n":1}`)
		}
		if rounds > 5 {
			time.Sleep(time.Duration(20+30*(i/100%2)) * time.Millisecond)
		}
	}
	b.until(`document.querySelectorAll('#messages li').length >= 5 && document.querySelectorAll('#slow tr').length ` +
		`=== 2`)
	b.run(`document.querySelector('details').open = true; document.querySelector('[aria-label="Look at `+
		`room:1"]').click()`, nil)
	b.until(`document.querySelectorAll('#channel-publications li').length === 10 && ` +
		`document.querySelectorAll('#channel-clients li').length === 7`)
	for _, width := range []int{360, 1440} {
		for _, scheme := range []string{"light", "dark"} {
			b.look(width, scheme)
			name := fmt.Sprintf("console-%d-%s", width, scheme)
			b.until(`[...document.querySelectorAll('#charts .plot')].every((p) => Math.abs(p.viewBox.baseVal.width ` +
				`- p.getBoundingClientRect().width) < 1)`)
			b.run(`document.activeElement.blur(); scrollTo({ top: 0, behavior: 'instant' })`, nil)
			b.screenshot(name)
			var found []string
			if b.run(audit, &found); len(found) > 0 {
				t.Errorf("%s:\n%s", name, strings.Join(found, "\n"))
			}
			if scheme == "light" {
				checkFocusOrder(t, b)
			}
		}
	}
	var dark, light string
	const page = `return getComputedStyle(document.documentElement).backgroundColor`
	b.run(page, &dark)
	b.run(`const c = document.getElementById('theme'); c.value = 'light'; c.dispatchEvent(new Event('change')); `+page,
		&light)
	if dark == light {
		t.Errorf("choosing light colours leaves the page %s", dark)
	}
	if found := b.complaints(); found != nil {
		t.Errorf("the browser complains: %q", found)
	}
}

// If the server has a key, the page shows nothing until the key is entered, and reports a wrong
// key.
func TestConsoleIsLocked(t *testing.T) {
	s := serve(t, "--api-key", "the key", "--token-secret", secret)
	b := startBrowser(t)
	b.look(360, "dark")
	b.open("http://" + s.addr + "/")
	b.until(`!document.getElementById('door').hidden && document.getElementById('main').hidden`)
	b.run(`document.querySelector('#unlock input').focus()`, nil)
	b.press("wrong" + enter)
	b.until(`document.getElementById('door-state').textContent.startsWith('Refused')`)
	var found []string
	if b.run(audit, &found); len(found) > 0 {
		t.Errorf("the door:\n%s", strings.Join(found, "\n"))
	}
	b.screenshot("console-door-360-dark")
	b.run(`document.querySelector('#unlock input').focus()`, nil)
	b.press(all)
	b.press("the key" + enter)
	b.until(`document.activeElement === document.getElementById('main')`)
	b.run(`document.querySelector('#watch input').focus()`, nil)
	b.press(enter)
	b.until(`document.getElementById('watch-state').textContent === 'Subscribed to news.'`)
	b.run(`document.querySelector('#publish button').click()`, nil)
	b.until(`document.querySelector('#messages code')?.textContent === '{"text":"hello"}'`)
	b.run(`document.getElementById('leave').click()`, nil)
	b.until(`!document.getElementById('door').hidden && document.getElementById('main').hidden`)
}

// When the server has stopped, the page says so, and marks its last figures as old.
func TestConsoleWithoutServer(t *testing.T) {
	s := serve(t, "--queue-limit", "1536KiB")
	b := startBrowser(t)
	b.look(360, "light")
	b.open("http://" + s.addr + "/")
	const figure = `getComputedStyle(document.querySelector('#charts .value')).color`
	b.until(`document.getElementById('state').textContent === 'Live' && ` +
		`document.getElementById('slow-limit').textContent === '1,536 KiB'`)
	var live string
	b.run("return "+figure, &live)
	s.stop()
	b.until(`document.getElementById('state').textContent === 'No answer'`)
	b.until(fmt.Sprintf("%s !== %q", figure, live))
	var found []string
	if b.run(audit, &found); len(found) > 0 {
		t.Errorf("without its server:\n%s", strings.Join(found, "\n"))
	}
}
