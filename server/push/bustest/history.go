package bustest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
)

// This file tests histories, presence and notices.

// long keeps ten publications for longer than the suite runs.
var long = push.Retention{Size: 10, Age: time.Hour}

func mustKeep(t *testing.T, bus push.Bus, channel, data string, keep push.Retention) push.Position {
	t.Helper()
	at, err := bus.Publish(context.Background(), channel, message(data), keep)
	if err != nil {
		t.Fatalf("Publish(%q): %v", channel, err)
	}
	return at
}

func mustRead(t *testing.T, bus push.Bus, channel string, q push.Query) push.History {
	t.Helper()
	h, err := bus.History(context.Background(), channel, q)
	if err != nil {
		t.Fatalf("History(%q): %v", channel, err)
	}
	return h
}

// texts returns the data of h's publications, with offsets.
func texts(h push.History) []string {
	list := []string{}
	for _, p := range h.Publications {
		if p.Epoch != h.Top.Epoch {
			list = append(list, "epoch "+p.Epoch)
		}
		list = append(list, fmt.Sprintf("%d=%s", p.Offset, p.Data))
	}
	return list
}

func noHistory(t *testing.T, bus push.Bus) {
	e := newRecorder()
	mustSubscribe(t, bus, "news", e)
	if at := mustKeep(t, bus, "news", "1", push.Retention{}); at != (push.Position{}) {
		t.Errorf("a publication that is not kept is at %v", at)
	}
	e.wait(t, 1)
	if e.at[0] != (push.Position{}) {
		t.Errorf("it was delivered with %v", e.at[0])
	}
	h := mustRead(t, bus, "news", push.Query{Limit: -1})
	if len(h.Publications) > 0 || h.Top.Offset != 0 || h.Top.Epoch == "" {
		t.Errorf("history %+v, want an epoch and nothing in it", h)
	}
}

// besideTheHistory publishes without a Retention to a channel that has a history.
func besideTheHistory(t *testing.T, bus push.Bus) {
	e := newRecorder()
	mustSubscribe(t, bus, "news", e)
	tagged := message("1")
	tagged.Tags = map[string]string{"kind": "first"}
	if _, err := bus.Publish(context.Background(), "news", tagged, long); err != nil {
		t.Fatal(err)
	}
	if at := mustKeep(t, bus, "news", "2", push.Retention{}); at != (push.Position{}) {
		t.Errorf("a publication beside the history is at %v", at)
	}
	mustKeep(t, bus, "news", "3", long)
	e.wait(t, 3)
	h := mustRead(t, bus, "news", push.Query{Limit: -1})
	if got := texts(h); !slices.Equal(got, []string{"1=1", "2=3"}) {
		t.Errorf("the history has %q", got)
	}
	if want := []push.Position{{Offset: 1, Epoch: h.Top.Epoch}, {}, {Offset: 2,
		Epoch: h.Top.Epoch}}; !slices.Equal(e.at, want) {
		t.Errorf("the positions of what was delivered are %v, want %v", e.at, want)
	}
	if got := h.Publications[0].Tags["kind"]; got != "first" {
		t.Errorf("the history has the tag %q, want %q", got, "first")
	}
}

// historyHasWhatIsDelivered publishes from several goroutines and reads the history meanwhile.
func historyHasWhatIsDelivered(t *testing.T, bus push.Bus) {
	const publishers, each = 4, 100
	keep := push.Retention{Size: publishers * each, Age: time.Hour}
	e := newRecorder()
	mustSubscribe(t, bus, "news", e)
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for i := range each {
				at, err := bus.Publish(context.Background(), "news", message(strconv.Itoa(p*each+i)), keep)
				if err != nil {
					t.Errorf("Publish: %v", err)
					return
				}
				h, err := bus.History(context.Background(), "news",
					push.Query{Since: &push.Position{Offset: at.Offset - 1, Epoch: at.Epoch}, Limit: 1})
				if err != nil || len(h.Publications) != 1 || string(h.Publications[0].Data) != strconv.Itoa(p*each+i) {
					t.Errorf("after offset %d the history has %v, %v", at.Offset-1, texts(h), err)
					return
				}
			}
		})
	}
	wg.Wait()
	received := e.wait(t, publishers*each)
	h := mustRead(t, bus, "news", push.Query{Limit: -1})
	if len(h.Publications) != len(received) || h.Top.Offset != uint64(len(received)) {
		t.Fatalf("%d kept up to %d, %d received", len(h.Publications), h.Top.Offset, len(received))
	}
	for i, p := range h.Publications {
		if p.Offset != uint64(i+1) || p.Position != e.at[i] || received[i] != fmt.Sprintf("news %s  ", p.Data) {
			t.Fatalf("publication %d is %s at %v in the history, and was received as %q at %v", i, p.Data, p.Position,
				received[i], e.at[i])
		}
	}
}

func historyQueries(t *testing.T, bus push.Bus) {
	var last push.Position
	for i := range 5 {
		last = mustKeep(t, bus, "news", strconv.Itoa(i+1), long)
	}
	at := func(offset uint64) *push.Position { return &push.Position{Offset: offset, Epoch: last.Epoch} }
	for _, tt := range []struct {
		name string
		q    push.Query
		want []string
	}{
		{"only the position", push.Query{}, nil},
		{"all", push.Query{Limit: -1}, []string{"1=1", "2=2", "3=3", "4=4", "5=5"}},
		{"the first two", push.Query{Limit: 2}, []string{"1=1", "2=2"}},
		{"all, newest first", push.Query{Limit: -1, Reverse: true}, []string{"5=5", "4=4", "3=3", "2=2", "1=1"}},
		{"the last two", push.Query{Limit: 2, Reverse: true}, []string{"5=5", "4=4"}},
		{"behind 0", push.Query{Since: at(0), Limit: 1}, []string{"1=1"}},
		{"behind 3", push.Query{Since: at(3), Limit: -1}, []string{"4=4", "5=5"}},
		{"after 3, without an epoch", push.Query{Since: &push.Position{Offset: 3}, Limit: -1}, []string{"4=4", "5=5"}},
		{"behind 2, one", push.Query{Since: at(2), Limit: 1}, []string{"3=3"}},
		{"after the last", push.Query{Since: at(5), Limit: -1}, nil},
		{"after an offset that does not exist", push.Query{Since: at(99), Limit: -1}, nil},
		{"before 3", push.Query{Since: at(3), Limit: -1, Reverse: true}, []string{"2=2", "1=1"}},
		{"before 3, one", push.Query{Since: at(3), Limit: 1, Reverse: true}, []string{"2=2"}},
		{"before the first", push.Query{Since: at(1), Limit: -1, Reverse: true}, nil},
		{"before an offset that does not exist", push.Query{Since: at(99), Limit: 1, Reverse: true}, []string{"5=5"}},
		{"of another epoch", push.Query{Since: &push.Position{Offset: 1, Epoch: "another"}, Limit: -1}, nil},
	} {
		h := mustRead(t, bus, "news", tt.q)
		if got := texts(h); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if h.Top != last {
			t.Errorf("%s: the position is %v, want %v", tt.name, h.Top, last)
		}
	}
}

func historySize(t *testing.T, bus push.Bus) {
	for i := range 25 {
		if at := mustKeep(t, bus, "news", strconv.Itoa(i+1), long); at.Offset != uint64(i+1) {
			t.Fatalf("publication %d is at %v", i+1, at)
		}
	}
	h := mustRead(t, bus, "news", push.Query{Limit: -1})
	if got := texts(h); len(got) != 10 || got[0] != "16=16" || got[9] != "25=25" {
		t.Errorf("kept %v, want the last ten", got)
	}
	if got := texts(mustRead(t, bus, "news", push.Query{Since: &push.Position{Offset: 3},
		Limit: 2})); !slices.Equal(got, []string{"16=16", "17=17"}) {
		t.Errorf("after an offset that is no longer kept: %v", got)
	}
	mustKeep(t, bus, "news", "26", push.Retention{Size: 2, Age: time.Hour})
	if got := texts(mustRead(t, bus, "news", push.Query{Limit: -1})); !slices.Equal(got, []string{"25=25", "26=26"}) {
		t.Errorf("kept %v, want two", got)
	}
}

// historyAge publishes with a short Retention and waits until the history is empty.
func historyAge(t *testing.T, bus push.Bus) {
	keep := push.Retention{Size: 10, Age: time.Millisecond}
	last := mustKeep(t, bus, "news", "1", keep)
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		h := mustRead(t, bus, "news", push.Query{Limit: -1})
		if h.Top != last {
			t.Fatalf("the position is %v, want %v", h.Top, last)
		}
		if len(h.Publications) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there after %v", patience)
		}
	}
	if at := mustKeep(t, bus, "news", "2", keep); at != (push.Position{Offset: last.Offset + 1, Epoch: last.Epoch}) {
		t.Errorf("the next publication is at %v, after %v", at, last)
	}
}

func forgets(t *testing.T, bus push.Bus) {
	mustKeep(t, bus, "news", "1", long)
	last := mustKeep(t, bus, "news", "2", long)
	for _, channel := range []string{"news", "never"} {
		if err := bus.Forget(context.Background(), channel); err != nil {
			t.Fatalf("Forget(%q): %v", channel, err)
		}
	}
	if h := mustRead(t, bus, "news", push.Query{Limit: -1}); len(h.Publications) > 0 || h.Top != last {
		t.Errorf("history %v at %v, want nothing at %v", texts(h), h.Top, last)
	}
	if at := mustKeep(t, bus, "news", "3", long); at.Offset != last.Offset+1 || at.Epoch != last.Epoch {
		t.Errorf("the next publication is at %v, after %v", at, last)
	}
}

// positionBeforeTheFirst reads a channel's position before its first publication. A later query
// from that position returns every publication.
func positionBeforeTheFirst(t *testing.T, bus push.Bus) {
	before := mustRead(t, bus, "news", push.Query{}).Top
	mustKeep(t, bus, "news", "1", long)
	if got := texts(mustRead(t, bus, "news", push.Query{Since: &before, Limit: -1})); !slices.Equal(got,
		[]string{"1=1"}) {
		t.Errorf("behind %v: %v", before, got)
	}
}

func epochStays(t *testing.T, bus push.Bus) {
	e := newRecorder()
	mustSubscribe(t, bus, "news", e)
	first := mustKeep(t, bus, "news", "1", long)
	for i := range 200 {
		mustKeep(t, bus, "other-"+strconv.Itoa(i), "1", long)
	}
	if at := mustKeep(t, bus, "news", "2", long); at != (push.Position{Offset: 2, Epoch: first.Epoch}) {
		t.Errorf("%v is followed by %v", first, at)
	}
	if other := mustKeep(t, bus, "other-0", "2", long); other.Epoch == first.Epoch {
		t.Errorf("two channels have the epoch %q", other.Epoch)
	}
}

func present(t *testing.T, bus push.Bus) {
	a, b, other := newRecorder(), newRecorder(), newRecorder()
	a.clients = []push.ClientInfo{{Client: "1", User: "ann", ConnInfo: []byte("1")}, {Client: "2"}}
	b.clients = []push.ClientInfo{{Client: "3", User: "bob", ChanInfo: []byte("{}")}}
	other.clients = []push.ClientInfo{{Client: "4"}}
	mustSubscribe(t, bus, "news", a)
	mustSubscribe(t, bus, "news", b)
	mustSubscribe(t, bus, "other", other)
	list, err := bus.Present(context.Background(), "news")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		got = append(got, fmt.Sprintf("%s %s %s %s", c.Client, c.User, c.ConnInfo, c.ChanInfo))
	}
	slices.Sort(got)
	if want := []string{"1 ann 1 ", "2   ", "3 bob  {}"}; !slices.Equal(got, want) {
		t.Errorf("present are %q, want %q", got, want)
	}
	if list, err := bus.Present(context.Background(), "void"); len(list) > 0 || err != nil {
		t.Errorf("in a channel without subscribers are %v, %v", list, err)
	}
}

func announces(t *testing.T, bus push.Bus) {
	a, b, other := newRecorder(), newRecorder(), newRecorder()
	mustSubscribe(t, bus, "news", a)
	mustSubscribe(t, bus, "news", b)
	mustSubscribe(t, bus, "other", other)
	for _, joined := range []bool{true, false} {
		if err := bus.Announce(context.Background(), "news",
			push.Notice{ClientInfo: push.ClientInfo{Client: "1", User: "ann"}, Joined: joined}); err != nil {
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
	bus.Unsubscribe("news", a)
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	if err := bus.Announce(context.Background(), "news", push.Notice{}); err != nil {
		t.Fatal(err)
	}
	if a.late > 0 || len(other.notices) > 0 {
		t.Errorf("%d notices after Unsubscribe, %d in another channel", a.late, len(other.notices))
	}
}
