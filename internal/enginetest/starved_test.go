package enginetest

import (
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A machine is a world with one thread, of which it tells what the test wants.
type machine struct {
	*sim.World
	ready  bool
	speed  int // of a hundred: the processor time that the thread has had
	began  time.Time
	number int
}

func (m *machine) Facilities() driver.Facilities {
	f := m.World.Facilities()
	f.Threads = m
	return f
}

func (m *machine) Thread() int { return m.number }

func (m *machine) Ran(thread int) time.Duration {
	if thread != m.number {
		return -1
	}
	return m.World.Now().Sub(m.began) * time.Duration(m.speed) / 100
}

func (m *machine) Ready(thread int) bool { return thread == m.number && m.ready }

// A task whose thread waits for a processor is left alone for a while, unlike one that computes or
// waits for something else.
func TestStarvedTask(t *testing.T) {
	const tick = time.Millisecond
	for _, tt := range []struct {
		name        string
		machine     machine
		tasks       int
		stays       time.Duration
		least, most time.Duration // until it is overtaken; 0: it is not
	}{
		{"waits for something else", machine{}, 4, 20 * tick, tick, 2 * tick},
		{"computes", machine{ready: true, speed: 100}, 4, 20 * tick, tick, 2 * tick},
		{"has half a processor", machine{ready: true, speed: 50}, 4, 20 * tick, tick, 2 * tick},
		{"starves", machine{ready: true}, 4, 20 * tick, 9 * tick, 10 * tick},
		{"starves, and is soon done", machine{ready: true}, 4, 8 * tick, 0, 0},
		{"has a hundredth of a processor", machine{ready: true, speed: 1}, 4, 8 * tick, 0, 0},
		{"starves alone", machine{ready: true}, 3, 20 * tick, tick, 2 * tick},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := tt.machine
			m.World, m.number = newWorld(1, sim.Calm()), 7
			m.began = m.World.Now()
			if took := m.handoff(t, tt.tasks, tt.stays); took < tt.least || took > tt.most {
				t.Errorf("overtaken after %v, want %v to %v", took, tt.least, tt.most)
			}
		})
	}
}

// handoff has the first of some tasks of a turn stay, and returns after what time it was overtaken.
func (m *machine) handoff(t *testing.T, tasks int, stays time.Duration) (took time.Duration) {
	e, err := myriad.Start(myriad.Config{Loops: 1, System: m, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{m.World, t, e}
	var came time.Time
	h := &taskHost{conns: make(chan *myriad.Conn, tasks)}
	h.run = func(*echoTask) {
		if h.runs.Load() == 1 {
			came = s.Now()
			s.NewParker().ParkFor(stays)
		}
	}
	h.loses = func() { took = s.Now().Sub(came) }
	ln, err := e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	var peers []*sim.Peer
	for range tasks {
		peers = append(peers, s.Dial(ln.Addr()))
	}
	s.RunFor(time.Millisecond)
	// so that all come in one turn
	if err := (<-h.conns).Loop().Do(func() { s.NewParker().ParkFor(time.Second) }); err != nil {
		t.Fatal(err)
	}
	s.RunFor(time.Millisecond)
	for _, p := range peers {
		p.Write([]byte("message"))
		p.CloseWrite()
	}
	s.RunFor(time.Minute)
	if n := h.runs.Load(); n != int64(tasks) {
		t.Errorf("%d runs of %d tasks", n, tasks)
	}
	s.finish()
	return took
}
