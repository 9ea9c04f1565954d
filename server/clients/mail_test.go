package clients

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// mailProgram starts examples/mail and returns its address.
func mailProgram(t *testing.T) (addr string) {
	t.Helper()
	// up to ": open http…"
	return example(t, "mail", "--robot", "0").want(`listening on (\S+):`)[1]
}

func deliver(t *testing.T, addr, subject string) {
	t.Helper()
	r, err := http.PostForm("http://"+addr+"/api/deliver", url.Values{"to": {"ann"}, "from": {"bob"},
		"subject": {subject}, "text": {"It is ready."}})
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != 200 {
		t.Fatal(r.Status)
	}
}

// subjects is a script that returns the subjects on the page, newest first.
const subjects = `[...document.querySelectorAll('#messages .subject')].map((e) => e.textContent).join('|')`

// The inbox is live. A delivered message appears, even if it came while the connection was lost. A
// second page shows what the keyboard does to a message. The page passes the audit in every size
// and colour scheme.
func TestMailPage(t *testing.T) {
	addr := mailProgram(t)
	p := newProxy(t, addr)
	b := startBrowser(t)
	b.look(1440, "light")
	b.open("http://" + p.addr + "/?user=ann")
	b.until(`document.getElementById('state').textContent === 'Live' && !document.getElementById('none').hidden`)
	const hostile = `<img src=x onerror=alert(1)> ü 世界`
	deliver(t, addr, "Lunch?")
	deliver(t, addr, hostile)
	b.until(fmt.Sprintf("%s === %q && document.title === '(2) INBOX of ann'", subjects, hostile+"|Lunch?"))

	b.run(`document.querySelector('[aria-label="Mark read: Lunch?"]').focus()`, nil)
	b.press(enter)
	b.until(`document.title === '(1) INBOX of ann' && document.activeElement.getAttribute('aria-label') === 'Mark ` +
		`unread: Lunch?'`)
	b.press(tab + enter) // to the archive
	b.until(fmt.Sprintf("%s === %q", subjects, hostile))

	p.cut(true)
	b.until(`document.getElementById('state').textContent.startsWith('Connection lost')`)
	deliver(t, addr, "While you were away")
	deliver(t, addr, "And again")
	p.up()
	b.until(fmt.Sprintf("%s === %q && document.getElementById('state').textContent === 'Live'", subjects,
		"And again|While you were away|"+hostile))

	b.run(`document.querySelector('summary').click(); document.querySelector('#write input').focus()`, nil)
	b.press("ann" + tab + "To myself" + tab + "Remember." + tab + enter)
	b.until(subjects + `.startsWith('To myself|') && document.getElementById('sent').textContent === 'Sent to ` +
		`ann.' && document.querySelector('#write textarea').value === ''`)
	for _, width := range []int{360, 1440} {
		for _, scheme := range []string{"light", "dark"} {
			b.look(width, scheme)
			name := fmt.Sprintf("mail-%d-%s", width, scheme)
			b.screenshot(name)
			var found []string
			if b.run(audit, &found); len(found) > 0 {
				t.Errorf("%s:\n%s", name, strings.Join(found, "\n"))
			}
		}
	}
	for _, complaint := range b.complaints() {
		if !strings.Contains(complaint, "/events?") { // the connection that was cut
			t.Errorf("the browser complains: %s", complaint)
		}
	}
	b.open("http://" + p.addr + "/?user=ann")
	b.until(`document.getElementById('state').textContent === 'Live'`)
	b.run(`document.querySelector('[data-key=Archive]').click()`, nil)
	b.until(subjects + ` === 'Lunch?' && document.title === 'Archive of ann'`)
}
