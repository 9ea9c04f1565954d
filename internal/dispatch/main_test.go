package dispatch

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/leaktest"
)

// TestMain fails when goroutines of this module or blocks are left behind.
func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }

const patience = 20 * time.Second

// A service is a protocol: each byte that a peer sends is a task, its connection is the key.
type service struct {
	d      *Dispatcher
	do     func(ln *line, b byte)
	opened chan *line

	mu    sync.Mutex
	lines []*line
	order []byte // all bytes, as their tasks began
}

// A line is the connection of one peer, and its task.
type line struct {
	State
	s *service
	c *myriad.Conn

	mu       sync.Mutex
	queue    []byte // what waits
	busy     bool
	received []byte
	done     []byte
	inline   []bool // of each task: it began with the loop

	inside   atomic.Int32
	overlaps atomic.Int32
}

func (s *service) Opened(c *myriad.Conn) {
	ln := &line{s: s, c: c}
	s.mu.Lock()
	s.lines = append(s.lines, ln)
	s.mu.Unlock()
	c.SetHandler(ln, nil)
	if s.opened != nil {
		s.opened <- ln
	}
}
func (*service) Received(*myriad.Conn, []byte) {}
func (*service) Closed(*myriad.Conn, error)    {}

func (*line) Opened(*myriad.Conn)        {}
func (*line) Closed(*myriad.Conn, error) {}

func (ln *line) Received(_ *myriad.Conn, p []byte) {
	ln.mu.Lock()
	ln.queue = append(ln.queue, p...)
	ln.received = append(ln.received, p...)
	idle := !ln.busy
	ln.busy = true
	ln.mu.Unlock()
	if idle {
		ln.start()
	}
}

func (ln *line) start() {
	l := ln.s.d.On(ln.c.Loop())
	if !l.TryInline(ln.c, ln, &l.Record) {
		l.ToPool(ln)
	}
}

func (ln *line) Do() (returned bool) {
	if ln.inside.Add(1) != 1 {
		ln.overlaps.Add(1)
	}
	defer ln.inside.Add(-1)
	ln.mu.Lock()
	b := ln.queue[0]
	ln.queue = ln.queue[1:]
	ln.done = append(ln.done, b)
	ln.inline = append(ln.inline, ln.HasLoop())
	ln.mu.Unlock()
	ln.s.mu.Lock()
	ln.s.order = append(ln.s.order, b)
	ln.s.mu.Unlock()
	if ln.s.do != nil {
		ln.s.do(ln, b)
	}
	return true
}

func (ln *line) Next() Task {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if len(ln.queue) > 0 {
		return ln
	}
	ln.busy = false
	return nil
}

func (ln *line) Kept() {
	if ln.Next() != nil {
		ln.start()
	}
}

// check reports what was lost, ran twice, overlapped or lost its place.
func (ln *line) check(t *testing.T) {
	t.Helper()
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if string(ln.done) != string(ln.received) || ln.busy || len(ln.queue) > 0 {
		t.Errorf("%d tasks of %d have run, busy %v, in order: %v", len(ln.done), len(ln.received), ln.busy,
			len(ln.done) <= len(ln.received) && string(ln.done) == string(ln.received[:len(ln.done)]))
	}
	if n := ln.overlaps.Load(); n > 0 {
		t.Errorf("%d tasks began before another one of the key had ended", n)
	}
}

func (ln *line) idle() bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return !ln.busy
}

// inlines is how many tasks began with the loop.
func (ln *line) inlines() (n int) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for _, inline := range ln.inline {
		if inline {
			n++
		}
	}
	return n
}

// A world is a service on the simulator.
type world struct {
	*sim.World
	t  *testing.T
	e  *myriad.Engine
	s  *service
	at net.Addr
}

func newWorld(t *testing.T, seed uint64, o sim.Options, c Config, do func(ln *line, b byte)) *world {
	t.Helper()
	w := &world{World: sim.New(seed, o), t: t, s: &service{d: New(c), do: do}}
	var err error
	w.e, err = myriad.Start(myriad.Config{Loops: 1, System: w.World, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := w.e.Listen("tcp", "127.0.0.1:0", w.s)
	if err != nil {
		t.Fatal(err)
	}
	w.at = ln.Addr()
	return w
}

// dial returns a peer and the line of its connection.
func (w *world) dial() (*sim.Peer, *line) {
	p := w.Dial(w.at)
	w.Settle()
	return p, w.s.lines[len(w.s.lines)-1]
}

func (w *world) stop() {
	w.t.Helper()
	w.Run()
	for _, ln := range w.s.lines {
		ln.check(w.t)
	}
	if n := w.s.d.Away(); n != 0 {
		w.t.Errorf("%d tasks are away when all have ended", n)
	}
	if err := w.e.Shutdown(context.Background()); err != nil {
		w.t.Error(err)
	}
	w.s.d.Close()
	w.Run()
	w.Check(w.t)
}

// eventually waits until yes is true.
func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !yes(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
