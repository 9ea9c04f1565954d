package membus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// A diary is a receiver that writes down what it is called with.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) Receive(channel string, list []bus.Publication) {
	for _, p := range list {
		d.note("%s %s %v", channel, p.Data, p.Position)
	}
}
func (d *diary) Lost(channel string)                 { d.note("%s lost", channel) }
func (d *diary) Notice(channel string, n bus.Notice) { d.note("%s %v", channel, n) }
func (d *diary) Present(channel string, to []bus.ClientInfo) []bus.ClientInfo {
	return append(to, bus.ClientInfo{Client: channel})
}

// stateOf returns the state of a frozen bus.
func stateOf(t testing.TB, b *Bus) []byte {
	t.Helper()
	var stream bytes.Buffer
	w := snapshot.NewWriter(&stream, StateParts())
	if err := errors.Join(b.WriteState(w), w.Close()); err != nil {
		t.Fatal(err)
	}
	return stream.Bytes()
}

// restore fills a frozen bus with a state.
func restore(b *Bus, state []byte) error {
	into, err := b.Restore()
	if err != nil {
		return err
	}
	r, err := snapshot.NewReader(bytes.NewReader(state), StateParts())
	for err == nil {
		var part string
		var body []byte
		if part, body, err = r.Next(); err == nil {
			err = into.Record(part, body)
		}
	}
	if err != io.EOF {
		return err
	}
	return into.Done()
}

// frozen returns a new bus that is frozen.
func frozen(t testing.TB, c Config) *Bus {
	t.Helper()
	b := New(c)
	if err := b.Freeze(context.Background()); err != nil {
		t.Fatal(err)
	}
	return b
}

// move moves what a bus has to a new one with the same Config. subscribe makes the receivers
// subscribe to that.
func move(t testing.TB, from *Bus, subscribe func(*Bus)) *Bus {
	t.Helper()
	if err := from.Freeze(context.Background()); err != nil {
		t.Fatal(err)
	}
	to := frozen(t, from.config)
	if err := restore(to, stateOf(t, from)); err != nil {
		t.Fatal(err)
	}
	subscribe(to)
	to.Thaw()
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}
	return to
}

// A stateWorld makes the same calls to a bus that stays and to one that moves now and then. A seed
// decides about them. All answers, and all that receivers are called with, have to be the same.
type stateWorld struct {
	t           *testing.T
	rng         *rand.Rand
	clock       *fakeClock
	still, goes *Bus
	diaries     [2]diary // of the bus that stays, and of the one that goes
	subscribed  map[string]bool
	used        []string // IDs
}

func newStateWorld(t *testing.T, seed uint64) *stateWorld {
	w := &stateWorld{t: t, rng: rand.New(rand.NewPCG(seed, 1)), clock: new(fakeClock),
		subscribed: make(map[string]bool)}
	config := Config{Clock: w.clock, HistoryBytes: 1 << 16, HistoryChannels: 6, IdempotencyKeys: 12}
	config.Random = rand.NewChaCha8([32]byte{byte(seed)})
	w.still = New(config)
	config.Random = rand.NewChaCha8([32]byte{byte(seed)}) // which the next buses go on with
	w.goes = New(config)
	return w
}

// both makes a call to each of the buses.
func (w *stateWorld) both(what string, call func(*Bus, bus.Receiver) string) {
	w.t.Helper()
	a, b := call(w.still, &w.diaries[0]), call(w.goes, &w.diaries[1])
	if a != b {
		w.t.Fatalf("%s:\n  the bus that stays: %s\n  the bus that moves: %s", what, a, b)
	}
}

func (w *stateWorld) topic() bus.Topic {
	t := bus.Topic{Name: fmt.Sprintf("c%d", w.rng.IntN(9))}
	switch w.rng.IntN(8) {
	case 0: // without a history
	case 1: // as if the rules had changed
		t.Keep = bus.Retention{Size: 3, Age: time.Minute}
	default:
		t.Keep = bus.Retention{Size: 8, Age: 2 * time.Minute}
	}
	return t
}

func (w *stateWorld) step(i int) {
	t := w.topic()
	switch w.rng.IntN(12) {
	case 0:
		w.clock.advance(time.Duration(w.rng.IntN(70)) * time.Second)
	case 1:
		on := !w.subscribed[t.Name]
		w.subscribed[t.Name] = on
		w.both("subscribe", func(b *Bus, r bus.Receiver) string {
			if on {
				return fmt.Sprint(b.Subscribe(context.Background(), t, r))
			}
			b.Unsubscribe(t.Name, r)
			return ""
		})
	case 2:
		w.both("forget", func(b *Bus, _ bus.Receiver) string { return fmt.Sprint(b.Forget(context.Background(), t)) })
	case 3, 4:
		q := bus.Query{Limit: w.rng.IntN(6) - 1, Reverse: w.rng.IntN(3) == 0}
		if w.rng.IntN(2) == 0 {
			q.Since = &bus.Position{Offset: w.rng.Uint64N(12)}
		}
		w.ask(t, q)
	case 5:
		w.goes = move(w.t, w.goes, func(to *Bus) {
			for name, on := range w.subscribed {
				if on {
					if err := to.Subscribe(context.Background(), bus.Topic{Name: name}, &w.diaries[1]); err != nil {
						w.t.Fatal(err)
					}
				}
			}
		})
	default:
		w.publish(t, i)
	}
}

func (w *stateWorld) publish(t bus.Topic, i int) {
	p := bus.Publication{Data: fmt.Appendf(nil, "%d", i), Kind: bus.Kind(w.rng.IntN(3)), User: "u", Client: "c"}
	switch w.rng.IntN(6) {
	case 0:
		p.Data = append(p.Data, make([]byte, w.rng.IntN(1<<15))...)
	case 1:
		p.Tags = map[string]string{"a": "1", "b": fmt.Sprint(i)}
	case 2:
		p.Version = &bus.Version{Number: w.rng.Uint64N(5) + 1, Epoch: []string{"", "x"}[w.rng.IntN(2)]}
	case 3:
		p.ID = fmt.Sprint("id", i)
		w.used = append(w.used, p.ID)
	case 4:
		if len(w.used) > 0 {
			p.ID = w.used[w.rng.IntN(len(w.used))]
		}
	}
	w.both("publish", func(b *Bus, _ bus.Receiver) string {
		at, err := b.Publish(context.Background(), t, p)
		return fmt.Sprint(at, err)
	})
}

func (w *stateWorld) ask(t bus.Topic, q bus.Query) {
	w.both("history", func(b *Bus, _ bus.Receiver) string {
		h, err := b.History(context.Background(), t, q)
		return fmt.Sprintf("%+v %v", h, err)
	})
}

// check asks all that there is to ask, and compares what receivers were called with. First it
// removes what has expired, which the sweeps of the two buses do at different times.
func (w *stateWorld) check() {
	w.t.Helper()
	for i := range 9 {
		t := bus.Topic{Name: fmt.Sprintf("c%d", i)}
		w.both("presence", func(b *Bus, _ bus.Receiver) string {
			there, err := b.Present(context.Background(), t.Name, 9)
			return fmt.Sprint(there, err)
		})
	}
	if a, b := w.diaries[0].lines, w.diaries[1].lines; !slices.Equal(a, b) {
		w.t.Fatalf("receivers of the bus that stays:\n%s\nof the bus that moves:\n%s", strings.Join(a, "\n"),
			strings.Join(b, "\n"))
	}
	w.both("sizes", func(b *Bus, _ bus.Receiver) string {
		b.receipts.Sweep(w.clock.Now())
		for _, t := range b.lru.all() {
			b.expire(t)
		}
		topics := 0
		for i := range b.shards {
			topics += len(b.shards[i].topics)
		}
		return fmt.Sprintf("%d topics, %d listed with %d bytes, %d IDs", topics, b.lru.topics.Len(), b.lru.bytes,
			len(b.receipts.Receipts()))
	})
}

// A bus that moves answers every question, and calls its receivers, as if it had stayed.
func TestMovesAreNotNoticed(t *testing.T) {
	for seed := range soak.Size(t, uint64(30), uint64(2000)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newStateWorld(t, seed)
			defer func() { w.still.Close(); w.goes.Close() }()
			for i := range 300 {
				w.step(i)
				w.check()
			}
			for i := range 9 {
				w.ask(bus.Topic{Name: fmt.Sprintf("c%d", i), Keep: bus.Retention{Size: 8, Age: 2 * time.Minute}},
					bus.Query{Limit: -1})
			}
		})
	}
}

// What waits while a bus is frozen goes on when it thaws, or when its context ends, or is refused
// when the bus is closed.
func TestCallsWaitForTheThaw(t *testing.T) {
	topic := bus.Topic{Name: "news", Keep: bus.Retention{Size: 9, Age: time.Hour}}
	calls := map[string]func(ctx context.Context, b *Bus) error{
		"publish": func(ctx context.Context, b *Bus) error {
			_, err := b.Publish(ctx, topic, bus.Publication{Data: []byte("1")})
			return err
		},
		"publish with an ID": func(ctx context.Context, b *Bus) error {
			_, err := b.Publish(ctx, topic, bus.Publication{Data: []byte("1"), ID: "1"})
			return err
		},
		"publish without a history": func(ctx context.Context, b *Bus) error {
			_, err := b.Publish(ctx, bus.Topic{Name: "void"}, bus.Publication{Data: []byte("1")})
			return err
		},
		"history": func(ctx context.Context, b *Bus) error {
			_, err := b.History(ctx, topic, bus.Query{})
			return err
		},
		"forget": func(ctx context.Context, b *Bus) error { return b.Forget(ctx, topic) },
		"present": func(ctx context.Context, b *Bus) error {
			_, err := b.Present(ctx, "news", 1)
			return err
		},
	}
	for name, call := range calls {
		for end, want := range map[string]error{"thaw": nil, "close": bus.ErrClosed, "context": context.Canceled} {
			t.Run(name+", "+end, func(t *testing.T) {
				b := frozen(t, Config{})
				defer b.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				began := make(chan struct{})
				go func() { close(began); done <- call(ctx, b) }()
				<-began
				select {
				case err := <-done:
					t.Fatalf("it did not wait: %v", err)
				case <-time.After(time.Millisecond): // a call that does not wait returns at once, as a rule
				}
				switch end {
				case "thaw":
					b.Thaw()
				case "close":
					b.Close()
				default:
					cancel()
				}
				if err := <-done; !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			})
		}
	}
}

// Publications that meet a move are in the old bus or in the new one: each is delivered once, in
// its publisher's order, and those that were refused can be made again.
func TestPublicationsDuringMoves(t *testing.T) {
	const publishers, each, moves = 4, 400, 12
	var received diary
	topics := []bus.Topic{{Name: "kept", Keep: bus.Retention{Size: 10_000, Age: time.Hour}}, {Name: "void"}}
	subscribe := func(b *Bus) {
		for _, topic := range topics {
			if err := b.Subscribe(context.Background(), topic, &received); err != nil {
				t.Error(err)
			}
		}
	}
	var current atomic.Pointer[Bus]
	first := New(Config{})
	subscribe(first)
	current.Store(first)
	var all sync.WaitGroup
	var published atomic.Int64
	for p := range publishers {
		all.Go(func() {
			for i := range each {
				one := bus.Publication{Data: fmt.Appendf(nil, "%d-%d", p, i)}
				if i%2 == 0 {
					one.ID = string(one.Data)
				}
				for times := 0; times <= i%3; { // with an ID, some are sent again
					_, err := current.Load().Publish(context.Background(), topics[p%2], one)
					switch {
					case err == nil:
						times++
					case !errors.Is(err, bus.ErrClosed):
						t.Error(err)
						return
					}
					if err == nil && one.ID == "" {
						break
					}
				}
				published.Add(1)
			}
		})
	}
	for i := range moves {
		for published.Load() < int64(i*publishers*each/moves) {
			time.Sleep(10 * time.Microsecond) // the moves are spread over the publications
		}
		to := move(t, current.Load(), subscribe)
		current.Store(to)
	}
	all.Wait()
	next := make([]int, publishers)
	offset := 0
	for _, line := range received.lines {
		var name string
		var p, i, at int
		if _, err := fmt.Sscanf(line, "%s %d-%d {%d", &name, &p, &i, &at); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if i != next[p] {
			t.Fatalf("%s came when %d was next", line, next[p])
		}
		next[p]++
		if name == "kept" {
			if offset++; at != offset {
				t.Fatalf("%s has the place %d, want %d", line, at, offset)
			}
		}
	}
	for p, n := range next {
		if n != each {
			t.Errorf("publisher %d: %d publications were delivered, want %d", p, n, each)
		}
	}
	current.Load().Close()
}

// A freeze that cannot end in time changes nothing.
func TestFreezeEndsWithItsContext(t *testing.T) {
	b := New(Config{})
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	hold := make(chan struct{})
	at := make(chan error)
	receiving := make(chan struct{}, 2)
	if err := b.Subscribe(ctx, bus.Topic{Name: "news"}, stuck{begun: receiving, hold: hold}); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := b.Publish(context.Background(), bus.Topic{Name: "news"}, bus.Publication{ID: "1"})
		at <- err
	}()
	<-receiving
	failed := make(chan error)
	go func() { failed <- b.receipts.WaitIdle(ctx) }()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(hold)
	if err := <-at; err != nil {
		t.Error(err)
	}
	if err := b.Freeze(ctx); err != nil { // nothing runs: it does not wait
		t.Fatal(err)
	}
	b.Thaw()
	if _, err := b.Publish(t.Context(), bus.Topic{Name: "news"}, bus.Publication{}); err != nil {
		t.Error(err)
	}
}

// stuck is a receiver that blocks.
type stuck struct{ begun, hold chan struct{} }

func (s stuck) Receive(string, []bus.Publication) {
	s.begun <- struct{}{}
	<-s.hold
}
func (stuck) Lost(string)                                            {}
func (stuck) Notice(string, bus.Notice)                              {}
func (stuck) Present(_ string, to []bus.ClientInfo) []bus.ClientInfo { return to }

// A bus with lower limits keeps what the old one would have kept with them, and a position for who
// subscribes again.
func TestMoveToLowerLimits(t *testing.T) {
	clock := new(fakeClock)
	from := New(Config{Clock: clock})
	keep := bus.Retention{Size: 10, Age: time.Hour}
	r := new(diary)
	if err := from.Subscribe(t.Context(), bus.Topic{Name: "c0"}, r); err != nil {
		t.Fatal(err)
	}
	var first bus.Position
	for i := range 10 {
		at, err := from.Publish(t.Context(), bus.Topic{Name: fmt.Sprintf("c%d", i), Keep: keep},
			bus.Publication{Data: []byte("1"), ID: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = at
		}
	}
	if err := from.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	to := frozen(t, Config{Clock: clock, HistoryChannels: 3, IdempotencyKeys: 2})
	if err := restore(to, stateOf(t, from)); err != nil {
		t.Fatal(err)
	}
	if err := to.Subscribe(t.Context(), bus.Topic{Name: "c0"}, r); err != nil {
		t.Fatal(err)
	}
	to.Thaw()
	from.Close()
	defer to.Close()
	if n := to.receipts.Len(); n != 2 {
		t.Errorf("%d IDs, want 2", n)
	}
	for i := range 10 {
		h, err := to.History(t.Context(), bus.Topic{Name: fmt.Sprintf("c%d", 9-i), Keep: keep}, bus.Query{Limit: -1})
		if kept := len(h.Publications) > 0; err != nil || i < 3 != kept {
			t.Errorf("c%d: %+v, %v", 9-i, h, err)
		}
		if i == 9 && h.Top != first {
			t.Errorf("the position of c0 is %v, want %v", h.Top, first)
		}
	}
}

func TestRestoreNeedsAFrozenEmptyBus(t *testing.T) {
	b := New(Config{})
	defer b.Close()
	if _, err := b.Restore(); err != errNotFrozen {
		t.Error(err)
	}
	if err := b.WriteState(snapshot.NewWriter(io.Discard, StateParts())); err != errNotFrozen {
		t.Error(err)
	}
	if _, err := b.Publish(t.Context(), bus.Topic{Name: "a", Keep: bus.Retention{Size: 1, Age: time.Hour}},
		bus.Publication{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Restore(); err != errNotEmpty {
		t.Error(err)
	}
	b.Close()
	if _, err := b.Restore(); err == nil {
		t.Error("a closed bus is filled")
	}
}

func TestWrongRecordsAreRefused(t *testing.T) {
	st := &stream{epoch: "e", keep: bus.Retention{Size: 2, Age: time.Hour}, top: 2}
	empty := savedTopic{name: "a", stream: st}
	one := *st
	one.items = make([]kept, 1)
	full := savedTopic{name: "b", stream: &one}
	odd := *st
	odd.epoch = ""
	above := one
	above.items = make([]kept, 3)
	publication := appendKept(nil, &kept{})
	for name, records := range map[string][][2]string{
		"an unknown part": {{"bus.topic.9", ""}},
		"a topic twice": {{topicPart, string(empty.append(nil))}, {topicPart,
			string(empty.append(nil))}},
		"a topic without an epoch":      {{topicPart, string((&savedTopic{stream: &odd}).append(nil))}},
		"more publications than kept":   {{topicPart, string((&savedTopic{stream: &above}).append(nil))}},
		"a topic that goes on":          {{topicPart, string(empty.append(nil)) + "x"}},
		"a publication without a topic": {{publicationPart, string(publication)}},
		"one too many": {{topicPart, string(full.append(nil))}, {publicationPart, string(publication)},
			{publicationPart, string(publication)}},
		"one too few": {{topicPart, string(full.append(nil))}, {topicPart, string(empty.append(nil))}},
		"a cut publication": {{topicPart, string(full.append(nil))},
			{publicationPart, string(publication[:len(publication)-1])}},
		"a receipt twice": {{receiptPart, strings.Repeat("k", 16) + "\x00\x00\x00"},
			{receiptPart, strings.Repeat("k", 16) + "\x00\x00\x00"}},
		"a cut receipt": {{receiptPart, "k"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := frozen(t, Config{})
			defer b.Close()
			into, err := b.Restore()
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range records {
				if err = into.Record(r[0], []byte(r[1])); err != nil && i < len(records)-1 {
					t.Fatalf("record %d: %v", i, err)
				}
			}
			if err == nil {
				err = into.Done()
			}
			if !snapshot.IsMalformed(err) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A state is refused, or the bus that has it writes it down so that another gets the same.
func FuzzRestore(f *testing.F) {
	keep := bus.Retention{Size: 4, Age: time.Hour}
	clock := new(fakeClock)
	b := New(Config{Clock: clock, Random: rand.NewChaCha8([32]byte{1})})
	for i := range 7 {
		p := bus.Publication{Data: []byte("data"), ID: fmt.Sprint(i), Tags: map[string]string{"a": "b"},
			Version: &bus.Version{Number: uint64(i + 1)}}
		if _, err := b.Publish(f.Context(), bus.Topic{Name: fmt.Sprint(i % 2), Keep: keep}, p); err != nil {
			f.Fatal(err)
		}
	}
	if err := b.Freeze(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Add(stateOf(f, b))
	b.Close()
	f.Fuzz(func(t *testing.T, state []byte) {
		small := Config{Clock: clock, HistoryBytes: 1 << 12, HistoryChannels: 4, IdempotencyKeys: 4}
		one := frozen(t, small)
		defer one.Close()
		if restore(one, state) != nil {
			return
		}
		if one.lru.bytes > small.HistoryBytes || one.lru.topics.Len() > small.HistoryChannels ||
			one.receipts.Len() > small.IdempotencyKeys {
			t.Errorf("%d bytes in %d channels, %d IDs", one.lru.bytes, one.lru.topics.Len(), one.receipts.Len())
		}
		written := stateOf(t, one)
		other := frozen(t, small)
		defer other.Close()
		if err := restore(other, written); err != nil {
			t.Fatal(err)
		}
		if again := stateOf(t, other); !bytes.Equal(again, written) {
			t.Errorf("%q became %q", written, again)
		}
		one.Thaw()
		if _, err := one.Publish(t.Context(), bus.Topic{Name: "0", Keep: keep}, bus.Publication{}); err != nil {
			t.Error(err)
		}
	})
}
