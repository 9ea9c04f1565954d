package natsbus

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	for _, m := range list {
		b := m.bus.Load()
		eventually(t, "three nodes store the logs", func() bool {
			for part := range 2 {
				i, err := b.logs.streams.info(within(t), logID{news.Keep, part, 2}.stream(prefix))
				if err != nil || i.missesWithout("none") != nil || i.Config.Replicas < 3 {
					return false
				}
			}
			return true
		})
	}
	return list
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
		if known && (before.Epoch != p.Epoch || p.Offset <= before.Offset) {
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
	const channels, publishers = 6, 6
	topic := func(i int) bus.Topic { return bus.Topic{Name: fmt.Sprint("channel", i%channels), Keep: news.Keep} }
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

