package bustest

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
)

// This file tests presence and notices.

func present(t *testing.T, subject bus.Bus) {
	a, b, other := newRecorder(), newRecorder(), newRecorder()
	a.clients = []bus.ClientInfo{{Client: "1", User: "ann", ConnInfo: []byte("1")}, {Client: "2"}}
	b.clients = []bus.ClientInfo{{Client: "3", User: "bob", ChanInfo: []byte("{}")}}
	other.clients = []bus.ClientInfo{{Client: "4"}}
	mustSubscribe(t, subject, "news", a)
	mustSubscribe(t, subject, "news", b)
	mustSubscribe(t, subject, "other", other)
	there, err := subject.Present(within(t), "news", 100)
	if err != nil || there.Count != 3 || there.Users != 3 || len(there.Missing) > 0 {
		t.Fatalf("%+v, %v", there, err)
	}
	var got []string
	for _, c := range there.Clients {
		got = append(got, fmt.Sprintf("%s %s %s %s", c.Client, c.User, c.ConnInfo, c.ChanInfo))
	}
	slices.Sort(got)
	if want := []string{"1 ann 1 ", "2   ", "3 bob  {}"}; !slices.Equal(got, want) {
		t.Errorf("present are %q, want %q", got, want)
	}
	if there, err := subject.Present(within(t), "void", 100); len(there.Clients) > 0 || there.Count > 0 || err != nil {
		t.Errorf("in a channel without subscribers are %+v, %v", there, err)
	}
}

func presentWithLimit(t *testing.T, subject bus.Bus) {
	a, b := newRecorder(), newRecorder()
	for i := range 10 {
		info := bus.ClientInfo{Client: strconv.Itoa(i), User: "user " + strconv.Itoa(i%3)}
		a.clients = append(a.clients, info)
		info.Client += "b"
		b.clients = append(b.clients, info)
	}
	mustSubscribe(t, subject, "news", a)
	mustSubscribe(t, subject, "news", b)
	for _, limit := range []int{0, 1, 15, 20, 21} {
		there, err := subject.Present(within(t), "news", limit)
		if err != nil || there.Count != 20 || there.Users != 3 || len(there.Clients) != min(limit, 20) {
			t.Errorf("limit %d: %d clients, count %d, users %d, %v", limit, len(there.Clients), there.Count,
				there.Users, err)
		}
	}
}

func asks(t *testing.T, subject bus.Bus) {
	stop := subject.Serve("double", func(body []byte) []byte { return append(body, body...) })
	var got []string
	missing, err := subject.Ask(within(t), "double", []byte("ab\x00"), func(answer []byte) {
		got = append(got, string(answer))
	})
	if err != nil || len(missing) > 0 || !slices.Equal(got, []string{"ab\x00ab\x00"}) {
		t.Errorf("answers %q, missing %q, %v", got, missing, err)
	}
	missing, err = subject.Ask(within(t), "unknown", nil, func(answer []byte) { t.Errorf("answered %q", answer) })
	if err != nil || len(missing) > 0 {
		t.Errorf("a kind that is not served: missing %q, %v", missing, err)
	}
	stop()
	missing, err = subject.Ask(within(t), "double", nil, func(answer []byte) { t.Errorf("answered %q", answer) })
	if err != nil || len(missing) > 0 {
		t.Errorf("a kind that is no longer served: missing %q, %v", missing, err)
	}
	defer subject.Serve("double", func(body []byte) []byte { return body })()
	stop() // again, which does nothing
	got = nil
	_, err = subject.Ask(within(t), "double", []byte("ab"), func(answer []byte) { got = append(got, string(answer)) })
	if err != nil || !slices.Equal(got, []string{"ab"}) {
		t.Errorf("a kind that is served again: answers %q, %v", got, err)
	}
}

func state(t *testing.T, subject bus.Bus) {
	mustKeep(t, subject, kept("news"), "1")
	if s := subject.State(); s.Problem != "" {
		t.Errorf("%+v", s)
	}
}

func announces(t *testing.T, subject bus.Bus) {
	a, b, other := newRecorder(), newRecorder(), newRecorder()
	mustSubscribe(t, subject, "news", a)
	mustSubscribe(t, subject, "news", b)
	mustSubscribe(t, subject, "other", other)
	for _, joined := range []bool{true, false} {
		if err := subject.Announce(within(t), "news",
			bus.Notice{ClientInfo: bus.ClientInfo{Client: "1", User: "ann"}, Joined: joined}); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []*recorder{a, b} {
		e.waitFor(t, func() bool { return len(e.notices) == 2 })
		slices.Sort(e.notices)
		if want := []string{"news 1 ann false", "news 1 ann true"}; !slices.Equal(e.notices, want) {
			t.Errorf("noticed %q, want %q", e.notices, want)
		}
	}
	subject.Unsubscribe("news", a)
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	if err := subject.Announce(within(t), "news", bus.Notice{}); err != nil {
		t.Fatal(err)
	}
	if a.late > 0 || len(other.notices) > 0 {
		t.Errorf("%d notices after Unsubscribe, %d in another channel", a.late, len(other.notices))
	}
}
