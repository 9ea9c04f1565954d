package natsbus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/freeport"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// A movable is a node whose bus moves as to another process: what stands for the processes share
// nothing but the folder and the address.
type movable struct {
	server ServerConfig
	config Config
	bus    atomic.Pointer[Bus]
}

// movables starts a cluster of three nodes.
func movables(t testing.TB) (list []*movable) {
	t.Helper()
	addresses := freeport.For(t, 3)
	prefix := fmt.Sprintf("m%d", prefixes.Add(1))
	for i, address := range addresses {
		dir := t.TempDir()
		m := &movable{server: ServerConfig{Name: fmt.Sprintf("n%d", i+1), Dir: dir + "/jetstream", Listen: address,
			Routes: addresses, Secret: "secret", SyncInterval: time.Minute, Logger: quiet(t)}}
		m.config = Config{Dir: dir + "/seals", Prefix: prefix, Parts: 2, LogBytes: 16 << 20, Synced: true,
			Retentions: []bus.Retention{news.Keep}, Logger: quiet(t)}
		list = append(list, m)
	}
	for _, m := range list {
		s, err := StartServer(m.server)
		if err != nil {
			t.Fatal(err)
		}
		c := m.config
		c.Server = s
		m.bus.Store(opened(t, c))
		t.Cleanup(func() {
			b := m.bus.Load()
			b.Close()
			b.config.Server.Shutdown()
		})
	}
	t.Cleanup(func() { // before the first one is closed
		for _, m := range list {
			awaitStores(t, m.bus.Load())
		}
	})
	for _, m := range list {
		b := m.bus.Load()
		eventually(t, "three nodes store the logs, and it follows them", func() bool {
			if _, err := b.logs.places(); err != nil {
				return false
			}
			for part := range 2 {
				i, err := b.logs.streams.info(within(t), logID{news.Keep, part, 2}.stream(prefix))
				if err != nil || i.missesWithout("none", b.nodes.unfit()) != nil || i.Config.Replicas < 3 {
					return false
				}
			}
			return true
		})
	}
	return list
}

// awaitStores returns when NATS has opened the stores of a bus. If it is shut down while it opens
// one, that leaves a goroutine.
func awaitStores(t testing.TB, b *Bus) {
	t.Helper()
	eventually(t, "the stores are open", func() bool {
		for _, f := range b.now().logs.all() {
			if b.config.Server.lastOf(f.stream) == 0 {
				return false
			}
		}
		return true
	})
}

// stateOf freezes a bus, and returns what it writes down.
func stateOf(t testing.TB, b *Bus) []byte {
	t.Helper()
	if err := b.Freeze(within(t)); err != nil {
		t.Fatal(err)
	}
	var state bytes.Buffer
	w := snapshot.NewWriter(&state, b.StateParts())
	if err := errors.Join(b.WriteState(w), w.Close()); err != nil {
		t.Fatal(err)
	}
	return state.Bytes()
}

// restored returns a bus that has read the state of another one.
func (m *movable) restored(t testing.TB, state []byte) (*Bus, error) {
	t.Helper()
	c := m.config
	c.Server = NewServer(m.server)
	b, err := Await(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Freeze(within(t)); err != nil {
		t.Fatal(err)
	}
	return b, restoreFrom(b, state)
}

func restoreFrom(b *Bus, state []byte) error {
	into, err := b.Restore()
	if err != nil {
		return err
	}
	r, err := snapshot.NewReader(bytes.NewReader(state), b.StateParts())
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

// publish publishes to a channel on this node, as one that waits for a node that moves.
func (m *movable) publish(t testing.TB, data string) {
	t.Helper()
	publish(t, m.bus.Load(), data)
}

// move moves the node.
func (m *movable) move(t testing.TB, subscribe func(b *Bus)) {
	t.Helper()
	old := m.bus.Load()
	began := time.Now()
	if err := old.PrepareMove(within(t)); err != nil {
		t.Fatal(err)
	}
	prepared := time.Now()
	state := stateOf(t, old)
	frozen := time.Now()
	next, err := m.restored(t, state)
	if err != nil {
		t.Fatal(err)
	}
	subscribe(next)
	restored := time.Now()
	next.Thaw()
	m.bus.Store(next)
	old.Close()
	ctx := within(t)
	if err := next.gate.enter(ctx); err != nil {
		t.Fatal(err)
	}
	next.gate.leave()
	for _, f := range next.logs.all() {
		if err := f.progress.waitFor(ctx, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s: prepared after %v, frozen after %v, restored after %v, goes on after %v", m.server.Name,
		prepared.Sub(began), frozen.Sub(prepared), restored.Sub(frozen), time.Since(restored))
}

// A witness is a receiver that checks what it receives.
type witness struct {
	mu     sync.Mutex
	data   map[string]int
	last   map[string]bus.Position
	wrong  []string
	latest map[string]time.Time
	pause  time.Duration // the longest between two deliveries of a channel
}

func newWitness() *witness {
	return &witness{data: make(map[string]int), last: make(map[string]bus.Position),
		latest: make(map[string]time.Time)}
}

func (w *witness) Receive(channel string, list []bus.Publication) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if latest, known := w.latest[channel]; known {
		w.pause = max(w.pause, now.Sub(latest))
	}
	w.latest[channel] = now
	for _, p := range list {
		w.data[string(p.Data)]++
		before, known := w.last[channel]
		if known && p.Epoch != "" && (before.Epoch != p.Epoch || p.Offset <= before.Offset) {
			w.wrong = append(w.wrong, fmt.Sprintf("%s: %v came after %v", channel, p.Position, before))
		}
		w.last[channel] = p.Position
	}
}

func (w *witness) Lost(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, channel+" has lost something")
}

func (*witness) Notice(string, bus.Notice) {}
func (*witness) Present(channel string, to []bus.ClientInfo) []bus.ClientInfo {
	return append(to, bus.ClientInfo{Client: channel})
}

// Each of three nodes moves while all of them publish. Every node receives everything once, in
// order, and in the same epoch.
func TestNodesMoveUnderLoad(t *testing.T) {
	t.Parallel()
	nodes := movables(t)
	const channels, publishers = 6, 9
	topic := func(i int) bus.Topic {
		t := bus.Topic{Name: fmt.Sprint("channel", i%channels)}
		if i%channels < 4 { // each node also publishes what no log keeps
			t.Keep = news.Keep
		}
		return t
	}
	witnesses := make([]*witness, len(nodes))
	subscribe := func(i int) func(b *Bus) {
		return func(b *Bus) {
			for c := range channels {
				if err := b.Subscribe(within(t), topic(c), witnesses[i]); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for i, m := range nodes {
		witnesses[i] = newWitness()
		subscribe(i)(m.bus.Load())
	}
	var working sync.WaitGroup
	stop := make(chan struct{})
	published := make([]int, publishers)
	for p := range publishers {
		working.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				one := bus.Publication{Data: fmt.Appendf(nil, "%d-%d", p, i), ID: fmt.Sprintf("%d-%d", p, i)}
				for times := 0; times <= i%2; { // some are sent again
					_, err := nodes[p%len(nodes)].bus.Load().Publish(within(t), topic(p), one)
					switch {
					case err == nil:
						times++
					case !errors.Is(err, bus.ErrClosed):
						t.Error(err)
						return
					}
				}
				published[p]++
			}
		})
	}
	for i, m := range nodes {
		m.move(t, subscribe(i))
	}
	close(stop)
	working.Wait()
	total := 0
	for _, n := range published {
		total += n
	}
	for i, w := range witnesses {
		eventually(t, nodes[i].server.Name+" has received all", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.data) == total
		})
		w.mu.Lock()
		for data, n := range w.data {
			if n != 1 {
				t.Errorf("%s: %s came %d times", nodes[i].server.Name, data, n)
			}
		}
		if len(w.wrong) > 0 {
			t.Errorf("%s: %s", nodes[i].server.Name, strings.Join(w.wrong, "; "))
		}
		t.Logf("%s: %d publications, the longest pause was %v", nodes[i].server.Name, total, w.pause)
		w.mu.Unlock()
	}
}

// If the new process cannot take the node's place, the old one goes on: with what was published
// meanwhile, and in the same epoch.
func TestNodeStaysWhenMoveFails(t *testing.T) {
	t.Parallel()
	nodes := movables(t)
	m := nodes[0]
	b := m.bus.Load()
	var all []*witness
	for _, one := range nodes {
		w := newWitness()
		all = append(all, w)
		if err := one.bus.Load().Subscribe(within(t), news, w); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	publishOn := func(one *movable) {
		t.Helper()
		one.publish(t, fmt.Sprint(n))
		n++
	}
	for _, tt := range []struct {
		name, want string
		// fail returns what lets the old process have NATS back, and the error of the new one
		fail func(state []byte) (func(), error)
	}{
		{"its port is taken", "address already in use", func(state []byte) (func(), error) {
			ln, err := net.Listen("tcp", m.server.Listen)
			if err != nil {
				t.Fatal(err)
			}
			next, err := m.restored(t, state)
			next.Close()
			return func() { ln.Close() }, err
		}},
		{"its folder is in use", "another process uses it", func(state []byte) (func(), error) {
			lock, err := lockFolder(m.server.Dir)
			if err != nil {
				t.Fatal(err)
			}
			next, err := m.restored(t, state)
			next.Close()
			return lock.release, err
		}},
		{"it is another node", "the same node", func(state []byte) (func(), error) {
			other := &movable{server: m.server, config: m.config}
			other.server.Dir = t.TempDir()
			next, err := other.restored(t, state)
			next.Close()
			return func() {}, err
		}},
		{"it gives up when it has all", "", func(state []byte) (func(), error) {
			next, err := m.restored(t, state)
			awaitStores(t, next)
			return func() { next.Close() }, err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := b.PrepareMove(within(t)); err != nil {
				t.Fatal(err)
			}
			state := stateOf(t, b)
			release, err := tt.fail(state)
			if got := fmt.Sprint(err); (err == nil) != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("the new process says %v, want %q", err, tt.want)
			}
			publishOn(nodes[1])
			b.Thaw()
			b.CancelMove()
			if s := b.State(); s.Problem == "" {
				t.Error("the node is well without NATS")
			}
			publishOn(nodes[2])
			release()
			publishOn(m)
			publishOn(nodes[1])
		})
	}
	for i, w := range all {
		eventually(t, "all have come", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.data) == n
		})
		w.mu.Lock()
		for data, times := range w.data {
			if times != 1 {
				t.Errorf("%s: %s came %d times", nodes[i].server.Name, data, times)
			}
		}
		if len(w.wrong) > 0 {
			t.Errorf("%s: %s", nodes[i].server.Name, strings.Join(w.wrong, "; "))
		}
		w.mu.Unlock()
	}
	eventually(t, "the node is well", func() bool { return b.State().Problem == "" })
}

// A freeze that cannot end in time changes nothing, and neither does one while a log is not
// followed.
func TestFreezeThatFails(t *testing.T) {
	t.Parallel()
	b := opened(t, Config{Server: alone(t)})
	r := new(collector)
	if err := b.Subscribe(within(t), news, r); err != nil {
		t.Fatal(err)
	}
	if err := b.gate.enter(within(t)); err != nil { // a call runs
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if err := b.Freeze(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("while a call runs: %v", err)
	}
	b.gate.leave()
	publish(t, b, "1")
	unknown := bus.Topic{Name: "news", Keep: bus.Retention{Size: 1, Age: time.Hour}}
	if _, err := b.logs.of(unknown); err != nil { // which is not followed at once
		t.Fatal(err)
	}
	if err := b.Freeze(within(t)); err == nil || !strings.Contains(err.Error(), "is not followed") {
		t.Errorf("while a log is not followed: %v", err)
	}
	publish(t, b, "2")
	if n, lost := r.state(); n != 2 || lost > 0 {
		t.Errorf("%d publications, lost %d times", n, lost)
	}
	eventually(t, "it can freeze", func() bool { return b.Freeze(within(t)) == nil })
	if err := b.Freeze(within(t)); !errors.Is(err, errIsFrozen) {
		t.Errorf("twice: %v", err)
	}
	done, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if _, err := b.Publish(done, news, bus.Publication{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a publication while it is frozen: %v", err)
	}
	b.Thaw()
	publish(t, b, "3")
}

// A listener is a receiver of notices.
type listener struct {
	collector
	notices chan bus.Notice
}

func (l *listener) Notice(_ string, n bus.Notice) { l.notices <- n }

// A notice does not wait for a bus that is frozen. It is announced when that goes on.
func TestNoticesWaitForThaw(t *testing.T) {
	t.Parallel()
	b := opened(t, Config{Server: alone(t)})
	l := &listener{notices: make(chan bus.Notice, 1)}
	topic := bus.Topic{Name: "room"}
	if err := b.Subscribe(within(t), topic, l); err != nil {
		t.Fatal(err)
	}
	if err := b.Freeze(within(t)); err != nil {
		t.Fatal(err)
	}
	n := bus.Notice{ClientInfo: bus.ClientInfo{Client: "ann"}}
	if err := b.Announce(within(t), topic.Name, n); err != nil {
		t.Fatal(err)
	}
	if len(l.notices) > 0 {
		t.Error("it is announced while the bus is frozen")
	}
	b.Thaw()
	select {
	case got := <-l.notices:
		if got.Client != n.Client {
			t.Errorf("%+v", got)
		}
	case <-within(t).Done():
		t.Error("it is not announced")
	}
}

// A call that waits for a bus that moves is refused when that has moved.
func TestMovedBusRefuses(t *testing.T) {
	t.Parallel()
	b := opened(t, Config{Server: alone(t)})
	if err := b.Freeze(within(t)); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error)
	go func() {
		_, err := b.Publish(within(t), bus.Topic{Name: "a"}, bus.Publication{})
		refused <- err
	}()
	b.Close()
	if err := <-refused; !errors.Is(err, bus.ErrClosed) {
		t.Error(err)
	}
	b.StepDown(within(t)) // it leads nothing
}

// Two nodes use an external NATS, and one of them moves.
func TestMoveOverExternal(t *testing.T) {
	t.Parallel()
	_, url := external(t, t.TempDir())
	config := Config{URL: url, Node: "one", Parts: 1, LogBytes: 16 << 20, Synced: true, Logger: quiet(t)}
	config.Prefix = fmt.Sprintf("t%d", prefixes.Add(1))
	one := opened(t, config)
	two := opened(t, Config{URL: url, Node: "two", Prefix: config.Prefix, Synced: true})
	w := newWitness()
	if err := one.Subscribe(within(t), news, w); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		publish(t, two, fmt.Sprint("before ", i))
		publish(t, one, fmt.Sprint("too, before ", i))
		state := stateOf(t, one)
		publish(t, two, fmt.Sprint("meanwhile ", i))
		next, err := Await(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { next.Close() })
		if err := errors.Join(next.Freeze(within(t)), restoreFrom(next, state)); err != nil {
			t.Fatal(err)
		}
		if err := next.Subscribe(within(t), news, w); err != nil {
			t.Fatal(err)
		}
		next.Thaw()
		one.Close()
		one = next
		publish(t, one, fmt.Sprint("after ", i))
		eventually(t, "all have come", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.data) == 4*(i+1)
		})
	}
	if len(w.wrong) > 0 {
		t.Error(strings.Join(w.wrong, "; "))
	}
}

// A log that loses its end while a node moves begins a new epoch: the receivers are told.
func TestLogLosesEndWhileNodeMoves(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, url := external(t, dir)
	config := Config{URL: url, Node: "one", Parts: 1, LogBytes: 16 << 20, Synced: true, Logger: quiet(t)}
	config.Prefix = fmt.Sprintf("t%d", prefixes.Add(1))
	b := opened(t, config)
	var last bus.Position
	for i := range 500 {
		last = publish(t, b, fmt.Sprint(i))
	}
	state := stateOf(t, b)
	at := s.Addr().String()
	s.Shutdown()
	s.WaitForShutdown()
	cutFiles(t, dir)
	restartAt(t, dir, at)
	next, err := Await(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Close() })
	if err := errors.Join(next.Freeze(within(t)), restoreFrom(next, state)); err != nil {
		t.Fatal(err)
	}
	r := new(collector)
	if err := next.Subscribe(within(t), news, r); err != nil {
		t.Fatal(err)
	}
	next.Thaw()
	b.Close()
	eventually(t, "the receivers are told", func() bool {
		_, lost := r.state()
		return lost > 0
	})
	if h := after(t, next, last); h.Complete || h.Top.Epoch == last.Epoch {
		t.Errorf("after the loss: complete %v up to %v, before it %v", h.Complete, h.Top, last)
	}
	publish(t, next, "new")
}

// A question for the clients of a channel that is asked while a node moves is answered by that
// node, too. The node itself knows the others at once.
func TestPresenceWhileNodeMoves(t *testing.T) {
	t.Parallel()
	nodes := movables(t)
	m, asking := nodes[0], nodes[1].bus.Load()
	for _, one := range nodes {
		b := one.bus.Load()
		if err := b.Subscribe(within(t), news, newWitness()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it knows the others", func() bool { return len(b.nodes.alive()) == 2 })
	}
	old := m.bus.Load()
	if err := old.PrepareMove(within(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the others know that it moves", func() bool { return asking.nodes.all()[m.server.Name].away })
	state := stateOf(t, old)
	type answer struct {
		bus.Presence
		err error
	}
	answers := make(chan answer)
	go func() {
		p, err := asking.Present(within(t), news.Name, 10)
		answers <- answer{p, err}
	}()
	eventually(t, "the question is asked", func() bool {
		asking.questions.mu.Lock()
		defer asking.questions.mu.Unlock()
		return len(asking.questions.waiting) > 0
	})
	next, err := m.restored(t, state)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Subscribe(within(t), news, newWitness()); err != nil {
		t.Fatal(err)
	}
	next.Thaw()
	m.bus.Store(next)
	old.Close()
	if a := <-answers; a.err != nil || a.Count != 3 || len(a.Missing) > 0 {
		t.Errorf("%+v, %v", a.Presence, a.err)
	}
	if p, err := next.Present(within(t), news.Name, 10); err != nil || p.Count != 3 || len(p.Missing) > 0 {
		t.Errorf("asked by the node itself: %+v, %v", p, err)
	}
}

// A state that no version writes is refused.
func TestWrongRecordsAreRefused(t *testing.T) {
	t.Parallel()
	config := Config{URL: "nats://127.0.0.1:1", Node: "one", Logger: quiet(t)}
	id := logID{news.Keep, 0, 3}
	good := place{known: true, epoch: "e", last: 1}.append(id.append(nil))
	receipt := strings.Repeat("k", 16) + "\x00\x00\x00"
	for name, records := range map[string][][2]string{
		"an unknown part":        {{"nats.log.9", ""}},
		"a log that goes on":     {{logPart, string(good) + "x"}},
		"a log twice":            {{logPart, string(good)}, {logPart, string(good)}},
		"a log without an epoch": {{logPart, string(place{last: 1}.append(id.append(nil)))}},
		"a part that is not":     {{logPart, string(place{epoch: "e"}.append(logID{news.Keep, 3, 3}.append(nil)))}},
		"a receipt twice":        {{receiptPart, receipt}, {receiptPart, receipt}},
		"a cut receipt":          {{receiptPart, "k"}},
		"a cut node":             {{otherPart, "\x09"}},
		"no node":                {},
	} {
		b, err := Await(config)
		if err == nil {
			err = b.Freeze(within(t))
		}
		if err != nil {
			t.Fatal(err)
		}
		into, err := b.Restore()
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range records {
			if err = into.Record(r[0], []byte(r[1])); err != nil && i < len(records)-1 {
				t.Fatalf("%s: record %d: %v", name, i, err)
			}
		}
		if err == nil {
			err = into.Done()
		}
		if !snapshot.IsMalformed(err) {
			t.Errorf("%s: %v", name, err)
		}
		b.Close()
	}
}
