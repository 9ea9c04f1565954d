package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/examples/exampletest"
	"time"
)

// compare starts the program that it is in: here the test's own binary.
func TestMain(m *testing.M) { exampletest.Main(m, main) }

// A replica is what a page knows: it applies changes as the page does.
type replica map[string]map[uint32]message

func newReplica() replica {
	r := replica{}
	for _, name := range mailboxNames {
		r[name] = map[uint32]message{}
	}
	return r
}

func (r replica) apply(c change) {
	if c.Kind == "gone" {
		delete(r[c.Mailbox], c.UID)
		return
	}
	r[c.Mailbox][c.UID] = *c.Message
}

func (r replica) equals(t *testing.T, s *store, user string) {
	t.Helper()
	for _, name := range mailboxNames {
		v, err := s.list(user, name)
		if err != nil {
			t.Fatal(err)
		}
		if len(v.Messages) != len(r[name]) {
			t.Errorf("%s has %d messages, the replica %d", name, len(v.Messages), len(r[name]))
		}
		for i, m := range v.Messages {
			if got, ok := r[name][m.UID]; !ok || got != *m {
				t.Errorf("%s, UID %d: the replica has %+v, want %+v", name, m.UID, got, *m)
			}
			if i > 0 && v.Messages[i-1].UID >= m.UID {
				t.Errorf("%s: UID %d after %d", name, m.UID, v.Messages[i-1].UID)
			}
		}
	}
}

// A client that applies the published changes, or at any time requests the changes since its last
// number, has the same state as the store.
func TestReplicasFollow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	published := newReplica()
	last := uint64(0)
	s := newStore(func(user string, text []byte) {
		var c change
		if err := json.Unmarshal(text, &c); err != nil || user != "ann" {
			t.Fatalf("%s: %s, %v", user, text, err)
		}
		if c.ModSeq != last+1 {
			t.Errorf("change %d follows %d", c.ModSeq, last)
		}
		last = c.ModSeq
		published.apply(c)
	})
	s.now = func() time.Time { return time.Unix(1_800_000_000, 0).UTC() }
	asking, known := newReplica(), uint64(0)
	for i := range 5000 {
		from, to := mailboxNames[random.IntN(3)], mailboxNames[random.IntN(3)]
		uid := uint32(random.IntN(i/4 + 1))
		var err error
		switch random.IntN(4) {
		case 0, 1:
			err = s.deliver("ann", "bob", fmt.Sprint("number ", i), "text")
		case 2:
			err = s.setSeen("ann", from, uid, random.IntN(2) == 0)
		case 3:
			err = s.move("ann", from, uid, to)
		}
		if err != nil && !errors.Is(err, errNoMessage) {
			t.Fatal(err)
		}
		if random.IntN(100) == 0 {
			u, err := s.since("ann", known)
			if err != nil || u.Reload {
				t.Fatalf("since %d: %+v, %v", known, u, err)
			}
			for _, c := range u.Changes {
				asking.apply(c)
			}
			if known = u.ModSeq; known != last {
				t.Errorf("the last change is %d, want %d", known, last)
			}
			asking.equals(t, s, "ann")
		}
	}
	published.equals(t, s, "ann")
}

func TestStoreLimits(t *testing.T) {
	s := newStore(func(string, []byte) {})
	for i := range maxMessages + 1 {
		if err := s.deliver("ann", "bob", "", ""); (err == errFull) != (i == maxMessages) {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	for known, reload := range map[uint64]bool{0: true, maxMessages - keptChanges - 1: true,
		maxMessages - keptChanges: false, maxMessages: false, maxMessages + 1: true} {
		u, err := s.since("ann", known)
		if err != nil || u.Reload != reload || !reload && len(u.Changes) != maxMessages-int(known) {
			t.Errorf("since %d: reload %v with %d changes, %v", known, u.Reload, len(u.Changes), err)
		}
	}
	for name, err := range map[string]error{
		"a sender":  s.deliver("ann", strings.Repeat("x", maxLine+1), "", ""),
		"a text":    s.deliver("ann", "", "", strings.Repeat("x", maxText+1)),
		"a user":    s.deliver("ann:bob", "", "", ""),
		"nobody":    s.deliver("", "", "", ""),
		"a mailbox": s.move("ann", "INBOX", 1, "Nowhere"),
		"a UID":     s.setSeen("ann", "INBOX", maxMessages+1, true),
	} {
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func started(t *testing.T) (base string) {
	t.Helper()
	m, err := start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := m.stop(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + m.listener.Addr().String()
}

func form(t *testing.T, url string, fields url.Values) (status int, answer string) {
	t.Helper()
	res, err := http.PostForm(url, fields)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// A listening page receives a message, its flag and its move, in order, and nothing of other users.
func TestPageIsTold(t *testing.T) {
	base := started(t)
	told := listenIn(t, base)
	for _, c := range []struct {
		path   string
		fields url.Values
	}{
		{"/api/deliver", url.Values{"to": {"bob"}, "subject": {"not for ann"}}},
		{"/api/deliver", url.Values{"to": {"ann"}, "from": {"bob"}, "subject": {"<b>Lunch?</b>"}, "text": {"ü"}}},
		{"/api/seen", url.Values{"user": {"ann"}, "mailbox": {"INBOX"}, "uid": {"1"}, "seen": {"true"}}},
		{"/api/move", url.Values{"user": {"ann"}, "mailbox": {"INBOX"}, "uid": {"1"}, "to": {"Archive"}}},
	} {
		if status, answer := form(t, base+c.path, c.fields); status != 200 {
			t.Fatalf("%s: %d %s", c.path, status, answer)
		}
	}
	want := []string{"1 new INBOX 1 false", "2 flags INBOX 1 true", "3 new Archive 1 true", "4 gone INBOX 1"}
	for c := range told {
		got := fmt.Sprint(c.ModSeq, " ", c.Kind, " ", c.Mailbox, " ", c.UID)
		if c.Message != nil {
			got += fmt.Sprint(" ", c.Message.Seen)
		}
		if got != want[0] {
			t.Fatalf("change %q, want %q", got, want[0])
		}
		if want = want[1:]; len(want) == 0 {
			break
		}
	}
	if len(want) > 0 {
		t.Errorf("never told: %q", want)
	}
}

// listenIn has the page of ann listen, and returns what it is told. It is subscribed once it
// receives messages for zoe, its last channel: the head of the answer comes before.
func listenIn(t *testing.T, base string) <-chan change {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), exampletest.Patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", base+"/events?channel=mail:ann&channel=mail:zoe", nil)
	if err != nil {
		t.Fatal(err)
	}
	events, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { events.Body.Close() })
	told := make(chan change, 1000)
	go read(t, events.Body, told)
	for sent, heard := uint64(0), uint64(0); heard == 0 || heard < sent; {
		if heard == 0 {
			form(t, base+"/api/deliver", url.Values{"to": {"zoe"}})
			sent++
		}
		select {
		case c, ok := <-told:
			if heard = c.ModSeq; !ok {
				t.Fatal("the page is told nothing")
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
	return told
}

func read(t *testing.T, events io.Reader, told chan<- change) {
	defer close(told)
	for lines := bufio.NewScanner(events); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var c change
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Error(err)
			return
		}
		told <- c
	}
}

func TestMistakesAreAnswered(t *testing.T) {
	base := started(t)
	for path, fields := range map[string]url.Values{
		"/api/deliver": {"to": {"a b"}},
		"/api/seen":    {"user": {"ann"}, "mailbox": {"INBOX"}, "uid": {"x"}},
		"/api/move":    {"user": {"ann"}, "mailbox": {"INBOX"}, "uid": {"7"}, "to": {"Trash"}},
	} {
		if status, answer := form(t, base+path, fields); status != 400 || !strings.Contains(answer, `"error":"mail: `) {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	r, err := http.NewRequest("POST", base+"/api/deliver", strings.NewReader("to=ann"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 403 {
		t.Errorf("from another site: %s", res.Status)
	}
}

func TestPageFiles(t *testing.T) {
	base := started(t)
	for path, contentType := range map[string]string{"/": "text/html", "/mail.js": "text/javascript",
		"/mail.css": "text/css", "/icon.svg": "image/svg+xml"} {
		res, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), contentType) ||
			res.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %s %v", path, res.Status, res.Header)
		}
	}
}

// Both ways bring messages; only polling asks, and most of it in vain; and no message is lost on
// either.
func TestCompare(t *testing.T) {
	t.Setenv(exampletest.AsProgram, "1")
	p := plan{users: 20, poll: 200 * time.Millisecond, quiet: .6}
	for _, way := range []struct {
		name   string
		listen listener
		asks   bool
	}{{"polling", polling, true}, {"push", pushing, false}} {
		r := p.found(t, way.listen, way.asks)
		if r.messages == 0 || len(r.lates) != r.messages || (r.requests > 0) != way.asks || r.vain > r.requests ||
			r.bytes == 0 {
			t.Errorf("%s: %d requests, %d in vain, %d messages, %d times, %d bytes", way.name, r.requests, r.vain,
				r.messages, len(r.lates), r.bytes)
		}
		if row := r.row(way.name, p.last); strings.Count(row, "|") != 10 {
			t.Errorf("row %s", row)
		}
	}
}

// found measures with doubled durations until there is a figure, because a delayed process may
// deliver nothing in a second.
func (p *plan) found(t *testing.T, listen listener, asks bool) result {
	t.Helper()
	for p.last = time.Second; ; p.last *= 2 {
		r, err := p.measure(t.Context(), listen)
		if err != nil {
			t.Fatal(err)
		}
		if r.messages > 0 && (r.requests > 0 || !asks) || p.last > exampletest.Patience {
			return r
		}
	}
}
