package bustest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// This file tests histories.

// long keeps ten publications for longer than the suite runs.
var long = bus.Retention{Size: 10, Age: time.Hour}

// kept is a channel with that retention.
func kept(channel string) bus.Topic { return bus.Topic{Name: channel, Keep: long} }

func mustFollow(t *testing.T, subject bus.Bus, to bus.Topic, r bus.Receiver) {
	t.Helper()
	if err := subject.Subscribe(within(t), to, r); err != nil {
		t.Fatalf("Subscribe(%v): %v", to, err)
	}
}

func mustKeep(t *testing.T, subject bus.Bus, to bus.Topic, data string) bus.Position {
	t.Helper()
	at, err := subject.Publish(within(t), to, message(data))
	if err != nil {
		t.Fatalf("Publish(%v): %v", to, err)
	}
	return at
}

func mustRead(t *testing.T, subject bus.Bus, to bus.Topic, q bus.Query) bus.History {
	t.Helper()
	h, err := subject.History(within(t), to, q)
	if err != nil {
		t.Fatalf("History(%v): %v", to, err)
	}
	return h
}

// texts returns the data of h's publications, after it has checked their positions.
func texts(t *testing.T, h bus.History, q bus.Query) []string {
	t.Helper()
	list := []string{}
	for i, p := range h.Publications {
		if p.Epoch != h.Top.Epoch || p.Offset > h.Top.Offset {
			t.Errorf("publication %s is at %v, above the top %v", p.Data, p.Position, h.Top)
		}
		if i > 0 && p.Offset > h.Publications[i-1].Offset == q.Reverse {
			t.Errorf("%s at %v comes after %v", p.Data, p.Position, h.Publications[i-1].Position)
		}
		list = append(list, string(p.Data))
	}
	return list
}

// wantTop checks that h ends at or after the last publication.
func wantTop(t *testing.T, h bus.History, last bus.Position) {
	t.Helper()
	if h.Top.Epoch != last.Epoch || h.Top.Offset < last.Offset {
		t.Errorf("the top is %v, want at least %v", h.Top, last)
	}
}

func noHistory(t *testing.T, subject bus.Bus) {
	e := newRecorder()
	mustSubscribe(t, subject, "news", e)
	if at := mustKeep(t, subject, bus.Topic{Name: "news"}, "1"); at != (bus.Position{}) {
		t.Errorf("a publication that is not kept is at %v", at)
	}
	e.wait(t, 1)
	if e.at[0] != (bus.Position{}) {
		t.Errorf("it was delivered with %v", e.at[0])
	}
	if h := mustRead(t, subject, kept("news"), bus.Query{Limit: -1}); len(h.Publications) > 0 || h.Top.Epoch == "" {
		t.Errorf("history %+v, want an epoch and nothing in it", h)
	}
	if _, err := subject.History(within(t), bus.Topic{Name: "news"}, bus.Query{}); !errors.Is(err, bus.ErrNoHistory) {
		t.Errorf("History without a retention: %v", err)
	}
	if err := subject.Forget(within(t), bus.Topic{Name: "news"}); !errors.Is(err, bus.ErrNoHistory) {
		t.Errorf("Forget without a retention: %v", err)
	}
}

// besideTheHistory publishes without a Retention to a channel that has a history.
func besideTheHistory(t *testing.T, subject bus.Bus) {
	e := newRecorder()
	mustFollow(t, subject, kept("news"), e)
	tagged := message("1")
	tagged.Tags = map[string]string{"kind": "first"}
	first, err := subject.Publish(within(t), kept("news"), tagged)
	if err != nil {
		t.Fatal(err)
	}
	if at := mustKeep(t, subject, bus.Topic{Name: "news"}, "2"); at != (bus.Position{}) {
		t.Errorf("a publication beside the history is at %v", at)
	}
	third := mustKeep(t, subject, kept("news"), "3")
	e.wait(t, 3)
	h := mustRead(t, subject, kept("news"), bus.Query{Limit: -1})
	if got := texts(t, h, bus.Query{}); !slices.Equal(got, []string{"1", "3"}) {
		t.Fatalf("the history has %q", got)
	}
	if want := []bus.Position{first, {}, third}; !slices.Equal(e.at, want) {
		t.Errorf("the positions of what was delivered are %v, want %v", e.at, want)
	}
	if got := h.Publications[0].Tags["kind"]; got != "first" {
		t.Errorf("the history has the tag %q, want %q", got, "first")
	}
}

// carriesAnyData publishes bytes that no text has, with and without a history.
func carriesAnyData(t *testing.T, subject bus.Bus) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	want := bus.Publication{Data: all, Kind: bus.Binary, Client: "c\r\n", User: "ü: \x00",
		Tags: map[string]string{"a\nb": "\r\n\r\n", "": ""}}
	r := new(keeper)
	mustFollow(t, subject, kept("news"), r)
	if _, err := subject.Publish(within(t), kept("news"), want); err != nil {
		t.Fatal(err)
	}
	if _, err := subject.Publish(within(t), bus.Topic{Name: "news"}, want); err != nil {
		t.Fatal(err)
	}
	if _, err := subject.Publish(within(t), kept("news"), bus.Publication{Kind: bus.Text}); err != nil {
		t.Fatal(err)
	}
	h := mustRead(t, subject, kept("news"), bus.Query{Limit: -1})
	got := r.all()
	if len(h.Publications) != 2 || len(got) != 3 {
		t.Fatalf("%d kept, %d delivered", len(h.Publications), len(got))
	}
	for _, p := range []bus.Publication{h.Publications[0], got[0], got[1]} {
		p.Position = bus.Position{}
		if !reflect.DeepEqual(p, want) {
			t.Errorf("%+v arrived as %+v", want, p)
		}
	}
	if p := got[2]; len(p.Data) > 0 || p.Kind != bus.Text {
		t.Errorf("an empty text arrived as %+v", p)
	}
}

// A keeper keeps the publications that it receives.
type keeper struct {
	mu   sync.Mutex
	list []bus.Publication
}

func (k *keeper) Receive(_ string, list []bus.Publication) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = append(k.list, list...)
}

func (k *keeper) Lost(string)                                            {}
func (k *keeper) Notice(string, bus.Notice)                              {}
func (k *keeper) Present(_ string, to []bus.ClientInfo) []bus.ClientInfo { return to }

func (k *keeper) all() []bus.Publication {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.list)
}

// oncePerID publishes several times with one ID, as a publisher that has no answer does.
func oncePerID(t *testing.T, subject bus.Bus) {
	e := newRecorder()
	mustFollow(t, subject, kept("news"), e)
	mustFollow(t, subject, kept("other"), e)
	p := message("1")
	p.ID = "an id: \x00 ä"
	first, err := subject.Publish(within(t), kept("news"), p)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if at, err := subject.Publish(within(t), kept("news"), p); err != nil || at != first {
			t.Errorf("published again: at %v, %v, want %v", at, err, first)
		}
	}
	var wg sync.WaitGroup
	for _, channel := range []string{"news", "other"} {
		for range 4 {
			wg.Go(func() {
				p := message("2")
				p.ID = "another id"
				if _, err := subject.Publish(within(t), kept(channel), p); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if got := e.wait(t, 3); len(got) != 3 {
		t.Errorf("received %q, want each ID once in each channel", got)
	}
}

// historyHasWhatIsDelivered publishes from several goroutines and reads the history meanwhile.
func historyHasWhatIsDelivered(t *testing.T, subject bus.Bus) {
	const publishers, each = 4, 100
	to := bus.Topic{Name: "news", Keep: bus.Retention{Size: publishers * each, Age: time.Hour}}
	e := newRecorder()
	mustFollow(t, subject, to, e)
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for i := range each {
				at, err := subject.Publish(within(t), to, message(strconv.Itoa(p*each+i)))
				if err != nil {
					t.Errorf("Publish: %v", err)
					return
				}
				h, err := subject.History(within(t), to,
					bus.Query{Since: &bus.Position{Offset: at.Offset - 1, Epoch: at.Epoch}, Limit: 1})
				if err != nil || len(h.Publications) != 1 || string(h.Publications[0].Data) != strconv.Itoa(p*each+i) {
					t.Errorf("after offset %d the history has %v, %v", at.Offset-1, h.Publications, err)
					return
				}
			}
		})
	}
	wg.Wait()
	received := e.wait(t, publishers*each)
	h := mustRead(t, subject, to, bus.Query{Limit: -1})
	if len(h.Publications) != len(received) {
		t.Fatalf("%d kept, %d received", len(h.Publications), len(received))
	}
	for i, p := range h.Publications {
		if p.Position != e.at[i] || received[i] != fmt.Sprintf("news %s  ", p.Data) {
			t.Fatalf("publication %d is %s at %v in the history, and was received as %q at %v", i, p.Data, p.Position,
				received[i], e.at[i])
		}
	}
	texts(t, h, bus.Query{})
}

func historyQueries(t *testing.T, subject bus.Bus) {
	var list []bus.Position
	for i := range 5 {
		list = append(list, mustKeep(t, subject, kept("news"), strconv.Itoa(i+1)))
		mustKeep(t, subject, kept("beside"), "0")
	}
	last := list[4]
	beyond := bus.Position{Offset: last.Offset + 1<<40, Epoch: last.Epoch}
	for _, tt := range []struct {
		name     string
		q        bus.Query
		want     []string
		complete bool
	}{
		{"only the position", bus.Query{}, nil, false},
		{"all", bus.Query{Limit: -1}, []string{"1", "2", "3", "4", "5"}, false},
		{"the first two", bus.Query{Limit: 2}, []string{"1", "2"}, false},
		{"all, newest first", bus.Query{Limit: -1, Reverse: true}, []string{"5", "4", "3", "2", "1"}, false},
		{"the last two", bus.Query{Limit: 2, Reverse: true}, []string{"5", "4"}, false},
		{"after 1", bus.Query{Since: &list[0], Limit: -1}, []string{"2", "3", "4", "5"}, true},
		{"after 3", bus.Query{Since: &list[2], Limit: -1}, []string{"4", "5"}, true},
		{"after 3, without an epoch", bus.Query{Since: &bus.Position{Offset: list[2].Offset}, Limit: -1},
			[]string{"4", "5"}, true},
		{"after 2, one", bus.Query{Since: &list[1], Limit: 1}, []string{"3"}, false},
		{"after 3, two", bus.Query{Since: &list[2], Limit: 2}, []string{"4", "5"}, true},
		{"after the last", bus.Query{Since: &list[4], Limit: -1}, nil, true},
		{"after the last, only whether it is", bus.Query{Since: &list[4]}, nil, true},
		{"before 3", bus.Query{Since: &list[2], Limit: -1, Reverse: true}, []string{"2", "1"}, false},
		{"before 3, one", bus.Query{Since: &list[2], Limit: 1, Reverse: true}, []string{"2"}, false},
		{"before the first", bus.Query{Since: &list[0], Limit: -1, Reverse: true}, nil, false},
		{"before what does not exist", bus.Query{Since: &beyond, Limit: 1, Reverse: true}, []string{"5"}, false},
		{"after what does not exist", bus.Query{Since: &beyond, Limit: -1}, nil, false},
		{"of another epoch", bus.Query{Since: &bus.Position{Offset: 1, Epoch: "another"}, Limit: -1}, nil, false},
	} {
		h := mustRead(t, subject, kept("news"), tt.q)
		if got := texts(t, h, tt.q); !slices.Equal(got, tt.want) || h.Complete != tt.complete {
			t.Errorf("%s: %v, complete %v, want %v", tt.name, got, h.Complete, tt.want)
		}
		wantTop(t, h, last)
	}
}

func historySize(t *testing.T, subject bus.Bus) {
	var list []bus.Position
	for i := range 25 {
		list = append(list, mustKeep(t, subject, kept("news"), strconv.Itoa(i+1)))
	}
	q := bus.Query{Limit: -1}
	h := mustRead(t, subject, kept("news"), q)
	if got := texts(t, h, q); len(got) != 10 || got[0] != "16" || got[9] != "25" {
		t.Errorf("kept %v, want the last ten", got)
	}
	q = bus.Query{Since: &list[2], Limit: 2}
	h = mustRead(t, subject, kept("news"), q)
	if got := texts(t, h, q); !slices.Equal(got, []string{"16", "17"}) || h.Complete {
		t.Errorf("after one that is no longer kept: %v, complete %v", got, h.Complete)
	}
}

// historyIsComplete asks for what came after each of many publications, of which few are kept.
func historyIsComplete(t *testing.T, subject bus.Bus) {
	const n = 25
	before := mustRead(t, subject, kept("news"), bus.Query{}).Top
	list := []bus.Position{before}
	for i := range n {
		list = append(list, mustKeep(t, subject, kept("news"), strconv.Itoa(i+1)))
		mustKeep(t, subject, kept("beside"), "0")
		for at, since := range list {
			q := bus.Query{Since: &since, Limit: -1}
			h := mustRead(t, subject, kept("news"), q)
			missed := len(list) - 1 - at
			if want := missed <= long.Size; h.Complete != want {
				t.Fatalf("after %d of %d: complete %v, want %v", at, i+1, h.Complete, want)
			}
			if got := texts(t, h, q); len(got) != min(missed, long.Size) {
				t.Fatalf("after %d of %d: %v", at, i+1, got)
			}
		}
	}
}

// historyMeetsDelivery joins histories with what a receiver gets meanwhile, as a channel does: the
// two together have every publication once.
func historyMeetsDelivery(t *testing.T, subject bus.Bus) {
	const n = 300
	to := bus.Topic{Name: "news", Keep: bus.Retention{Size: n, Age: time.Hour}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			mustKeep(t, subject, to, strconv.Itoa(i))
		}
	})
	for range 20 {
		r := new(keeper)
		mustFollow(t, subject, to, r)
		h := mustRead(t, subject, to, bus.Query{Limit: -1})
		received := r.all() // what came later comes after these
		list := h.Publications
		for _, p := range received {
			if p.Offset > h.Top.Offset {
				list = append(list, p)
			}
		}
		for i, p := range list {
			if string(p.Data) != strconv.Itoa(i) {
				t.Fatalf("publication %d is %s: %d in the history up to %v", i, p.Data, len(h.Publications), h.Top)
			}
		}
		subject.Unsubscribe("news", r)
	}
	wg.Wait()
}

// historyAge publishes with a short Retention and waits until the history is empty.
func historyAge(t *testing.T, subject bus.Bus) {
	to := bus.Topic{Name: "news", Keep: bus.Retention{Size: 10, Age: time.Millisecond}}
	last := mustKeep(t, subject, to, "1")
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		h := mustRead(t, subject, to, bus.Query{Limit: -1})
		wantTop(t, h, last)
		if len(h.Publications) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there after %v", patience)
		}
	}
	if h := mustRead(t, subject, to, bus.Query{Since: &last, Limit: -1}); !h.Complete {
		t.Error("after the last one, which is too old, something is missing")
	}
	before := bus.Position{Offset: last.Offset - 1, Epoch: last.Epoch}
	if h := mustRead(t, subject, to, bus.Query{Since: &before, Limit: -1}); h.Complete {
		t.Error("before the last one, which is too old, nothing is missing")
	}
	if at := mustKeep(t, subject, to, "2"); at.Offset <= last.Offset || at.Epoch != last.Epoch {
		t.Errorf("the next publication is at %v, after %v", at, last)
	}
}

func forgets(t *testing.T, subject bus.Bus) {
	first := mustKeep(t, subject, kept("news"), "1")
	last := mustKeep(t, subject, kept("news"), "2")
	for _, channel := range []string{"news", "never"} {
		if err := subject.Forget(within(t), kept(channel)); err != nil {
			t.Fatalf("Forget(%q): %v", channel, err)
		}
	}
	h := mustRead(t, subject, kept("news"), bus.Query{Limit: -1})
	if len(h.Publications) > 0 {
		t.Errorf("history %v, want nothing", h.Publications)
	}
	wantTop(t, h, last)
	if h := mustRead(t, subject, kept("news"), bus.Query{Since: &first, Limit: -1}); h.Complete {
		t.Error("after a publication behind which one was forgotten, nothing is missing")
	}
	third := mustKeep(t, subject, kept("news"), "3")
	if third.Offset <= last.Offset || third.Epoch != last.Epoch {
		t.Errorf("the next publication is at %v, after %v", third, last)
	}
	q := bus.Query{Since: &h.Top, Limit: -1}
	if h := mustRead(t, subject, kept("news"), q); !slices.Equal(texts(t, h, q), []string{"3"}) || !h.Complete {
		t.Errorf("after the forgotten ones: %+v", h)
	}
}

// anotherRetention publishes with another Retention, which begins another history.
func anotherRetention(t *testing.T, subject bus.Bus) {
	first := mustKeep(t, subject, kept("news"), "1")
	short := bus.Topic{Name: "news", Keep: bus.Retention{Size: 2, Age: time.Hour}}
	second := mustKeep(t, subject, short, "2")
	if second.Epoch == first.Epoch {
		t.Errorf("%v and %v are of one epoch", first, second)
	}
	h := mustRead(t, subject, short, bus.Query{Since: &first, Limit: -1})
	if len(h.Publications) > 0 || h.Complete || h.Top.Epoch != second.Epoch {
		t.Errorf("after a position of the other history: %+v", h)
	}
	q := bus.Query{Limit: -1}
	mustKeep(t, subject, short, "3")
	mustKeep(t, subject, short, "4")
	if got := texts(t, mustRead(t, subject, short, q), q); !slices.Equal(got, []string{"3", "4"}) {
		t.Errorf("kept %v, want two", got)
	}
}

// positionBeforeTheFirst reads a channel's position before its first publication. A later query
// from that position returns every publication.
func positionBeforeTheFirst(t *testing.T, subject bus.Bus) {
	before := mustRead(t, subject, kept("news"), bus.Query{}).Top
	mustKeep(t, subject, kept("news"), "1")
	q := bus.Query{Since: &before, Limit: -1}
	if h := mustRead(t, subject, kept("news"), q); !slices.Equal(texts(t, h, q), []string{"1"}) || !h.Complete {
		t.Errorf("after %v: %+v", before, h)
	}
}

func epochStays(t *testing.T, subject bus.Bus) {
	e := newRecorder()
	mustFollow(t, subject, kept("news"), e)
	first := mustKeep(t, subject, kept("news"), "1")
	for i := range 200 {
		mustKeep(t, subject, kept("other-"+strconv.Itoa(i)), "1")
	}
	if at := mustKeep(t, subject, kept("news"), "2"); at.Offset <= first.Offset || at.Epoch != first.Epoch {
		t.Errorf("%v is followed by %v", first, at)
	}
	if other := mustKeep(t, subject, kept("other-0"), "2"); other.Epoch == first.Epoch {
		t.Errorf("two channels have the epoch %q", other.Epoch)
	}
	e.wait(t, 2)
	if e.lost > 0 {
		t.Errorf("lost %d times", e.lost)
	}
}
