package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/workers"
)

func (ln *line) tasks() []byte {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return append([]byte(nil), ln.done...)
}

func startEngine(t *testing.T) *myriad.Engine {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 2, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutdown(t, e) })
	return e
}

func shutdown(t *testing.T, e *myriad.Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// serveOn has a service on sockets, with one connection.
func serveOn(t *testing.T, c Config, do func(ln *line, b byte)) (*myriad.Engine, *service, net.Conn) {
	t.Helper()
	e := startEngine(t)
	s := &service{d: New(c), do: do, opened: make(chan *line, 100)}
	return e, s, dial(t, e, s)
}

func dial(t *testing.T, e *myriad.Engine, s *service) net.Conn {
	t.Helper()
	ln, err := e.Listen("tcp", "127.0.0.1:0", s)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

func end(t *testing.T, e *myriad.Engine, s *service) {
	t.Helper()
	shutdown(t, e)
	s.d.Close()
}

// Tasks of one key never overlap and keep their order, none is lost and none runs twice, however
// they block, compute, hand off their loops, panic and end their goroutines, with a pool that is
// too small.
func TestOrder(t *testing.T) {
	for mode, name := range map[Mode]string{Auto: "auto", Pool: "pool", Inline: "inline"} {
		t.Run(name, func(t *testing.T) {
			const keys, tasks = 12, 1500
			pool := workers.New(workers.Config{Workers: 4, Queue: 2, OnPanic: func(any, []byte) {}})
			e := startEngine(t)
			s := &service{d: New(Config{Mode: mode, Pool: pool, MaxAway: 3, Learned: mode == Auto}), do: misbehave,
				opened: make(chan *line, keys)}
			var wg sync.WaitGroup
			for key := range keys {
				nc := dial(t, e, s)
				wg.Go(func() { sendAll(t, nc, uint64(key), tasks) })
			}
			wg.Wait()
			for range keys {
				ln := <-s.opened
				eventually(t, fmt.Sprintf("all tasks have run in mode %s", name),
					func() bool { return ln.idle() && len(ln.tasks()) == tasks })
				ln.check(t)
			}
			eventually(t, "no task is away", func() bool { return s.d.Away() == 0 })
			end(t, e, s)
			if err := pool.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// sendAll sends tasks in pieces of any size.
func sendAll(t *testing.T, nc net.Conn, seed uint64, tasks int) {
	r := rand.New(rand.NewPCG(seed, 1))
	all := make([]byte, tasks)
	for i := range all {
		all[i] = byte(r.IntN(200))
	}
	for len(all) > 0 {
		n := min(len(all), 1+r.IntN(60))
		if _, err := nc.Write(all[:n]); err != nil {
			t.Error(err)
			return
		}
		all = all[n:]
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
		}
	}
}

// misbehave does what user code may do, by the number of its task.
func misbehave(ln *line, b byte) {
	switch b {
	case 0: // blocks where the engine does not know of it
		time.Sleep(3 * time.Millisecond)
	case 1:
		runtime.Goexit()
	case 2:
		ln.HandOff()
		runtime.Goexit()
	case 3, 4:
		ln.HandOff()
	case 5: // waits, as a call of the protocol does
		ln.HandOff()
		time.Sleep(time.Millisecond)
	case 6: // computes
		for began := time.Now(); time.Since(began) < 200*time.Microsecond; {
		}
	case 7:
		runtime.Gosched()
	case 8:
		if !ln.HasLoop() { // on the loop it would cost the connection
			panic("as the test wants")
		}
	}
}

// In simulated worlds the seed decides which tasks are held up and for how long, with an executor
// that is too small.
func TestSimulatedOrder(t *testing.T) {
	inline, lost := 0, 0
	for seed := range uint64(60) {
		i, l, _ := simulateOrder(t, seed)
		if inline, lost = inline+i, lost+l; t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if inline == 0 || lost == 0 {
		t.Errorf("%d tasks ran inline and %d lost their loops: too simple a world", inline, lost)
	}
}

func TestSimulationRepeats(t *testing.T) {
	for seed := range uint64(10) {
		_, _, a := simulateOrder(t, seed)
		if _, _, b := simulateOrder(t, seed); a != b {
			t.Fatalf("seed %d ran its tasks in two orders:\n%q\n%q", seed, a, b)
		}
	}
}

// simulateOrder returns how many tasks ran inline, how many times a loop was handed off, and the
// order of all tasks.
func simulateOrder(t *testing.T, seed uint64) (inline, lost int, order string) {
	r := rand.New(rand.NewPCG(seed, 7))
	o := sim.Lossless()
	o.Overstay, o.Workers, o.Queue = 0.1, 1+r.IntN(4), r.IntN(3)-1
	c := Config{Mode: Mode(r.IntN(3)), MaxAway: r.IntN(4), Learned: r.IntN(2) == 0}
	var w *world
	w = newWorld(t, seed, o, c, func(ln *line, b byte) {
		switch {
		case b%8 == 0:
			ln.HandOff()
			w.Linger()
		case b%8 == 1:
			w.NewParker().ParkFor(time.Duration(1+int(b)) * time.Millisecond)
		case b%8 == 2:
			w.Linger()
		}
	})
	for range 2 + r.IntN(8) {
		p := w.Dial(w.at)
		for range 1 + r.IntN(5) {
			piece := make([]byte, 1+r.IntN(20))
			for i := range piece {
				piece[i] = byte(r.IntN(256))
			}
			p.Write(piece)
			w.RunFor(time.Duration(r.IntN(3000)) * time.Microsecond)
		}
	}
	w.Run()
	for _, ln := range w.s.lines {
		inline += ln.inlines()
	}
	stats := w.e.Stats()
	w.stop()
	return inline, int(stats.Overstays + stats.Handoffs), string(w.s.order)
}

// An engine says how long tasks wait for a pool, as long as there is a Dispatcher that gives it
// some.
func TestEngineKnowsHowLongTasksWait(t *testing.T) {
	pool := workers.New(workers.Config{Workers: 1})
	gate := make(chan struct{})
	e, s, nc := serveOn(t, Config{Mode: Pool, Pool: pool}, func(*line, byte) {})
	pool.TryGo(func() { <-gate })
	if late := e.Stats().LateTasks; late != 0 {
		t.Errorf("tasks wait for %v, and there is none", late)
	}
	nc.Write([]byte("a"))
	<-s.opened
	eventually(t, "a task waits", func() bool { return e.Stats().LateTasks > time.Millisecond })
	close(gate)
	eventually(t, "it has run", func() bool { return e.Stats().LateTasks == 0 })
	end(t, e, s)
	if err := pool.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
