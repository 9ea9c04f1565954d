package enginetest

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// This file is in which order a loop runs inline tasks and sends what they write. Each task takes
// exactly as long as the test says.

// slowTasks returns a simulation of one loop, whose inline tasks take the given time each.
func slowTasks(t *testing.T, takes time.Duration, h *taskHost) (s *simulation, w *slowWorld) {
	t.Helper()
	w = &slowWorld{World: newWorld(1, sim.Calm())}
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	run := h.run
	h.run = func(v *echoTask) {
		if run != nil {
			run(v)
		}
		w.spend(takes)
	}
	return &simulation{w.World, t, e}, w
}

// The loop sends what the tasks of different conns write in one poll cycle after every 32 conns. At
// every fourth task it also sends if 250 µs have passed.
func TestAnswersOfTasksLeaveTogether(t *testing.T) {
	const conns = 40
	for takes, want := range map[time.Duration][]int{
		0:                       {32},
		50 * time.Microsecond:   {8, 16, 24, 32},
		62500 * time.Nanosecond: {4, 8, 12, 16, 20, 24, 28, 32, 36},
	} {
		t.Run(takes.String(), func(t *testing.T) {
			var ran []*myriad.Conn
			var left []int // after how many tasks
			h := &taskHost{run: func(v *echoTask) {
				if n := len(ran); n > 0 && ran[n-1].Queued() == 0 {
					left = append(left, n)
				}
				ran = append(ran, v.c)
			}}
			s, _ := slowTasks(t, takes, h)
			busy := &caller{on: func(is string, _ *myriad.Conn) {
				if is == "Received" { // so that what the others send comes in one poll cycle
					s.NewParker().ParkFor(time.Millisecond)
				}
			}}
			first := s.meet(busy)
			ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
			if err != nil {
				t.Fatal(err)
			}
			var peers []*sim.Peer
			for range conns {
				peers = append(peers, s.Dial(ln.Addr()))
			}
			s.RunFor(time.Second)
			for range 2 {
				ran, left = nil, nil
				first.Write([]byte("x"))
				s.RunFor(time.Millisecond / 2)
				for _, p := range peers {
					p.Write([]byte("a"))
				}
				s.RunFor(time.Second)
				if !slices.Equal(left, want) || len(ran) != conns {
					t.Errorf("of %d tasks answers left after %v, want %v", len(ran), left, want)
				}
			}
			for _, p := range append(peers, first) {
				p.Close()
			}
			busy.c.Close()
			s.finish()
		})
	}
}

// At most 16 tasks of one conn run in a row, and none begins after 100 µs of the row.
func TestTasksInARow(t *testing.T) {
	for takes, want := range map[time.Duration]int64{0: 16, 10 * time.Microsecond: 10, 12 * time.Microsecond: 9,
		13 * time.Microsecond: 8, 30 * time.Microsecond: 4, 50 * time.Microsecond: 2, 200 * time.Microsecond: 1} {
		t.Run(fmt.Sprint(takes), func(t *testing.T) {
			var rows []int64 // how many had run when the loop did something else
			h := &taskHost{}
			h.run = func(v *echoTask) {
				n := h.runs.Load()
				if len(rows) == 0 && n == 1 || len(rows) == 1 && n == rows[0]+1 {
					if err := v.c.Loop().Do(func() { rows = append(rows, h.runs.Load()) }); err != nil {
						t.Error(err)
					}
				}
			}
			s, _ := slowTasks(t, takes, h)
			p := s.meet(h)
			s.RunFor(time.Millisecond)
			p.Write(pattern(60 * 100))
			s.RunFor(time.Second)
			if !slices.Equal(rows, []int64{want, 2 * want}) || p.Count() != 60*100 {
				t.Errorf("rows end after %v tasks, want %d and %d; %d bytes came back", rows, want, 2*want, p.Count())
			}
			p.Close()
			s.finish()
		})
	}
}

// However a task ends, what it has written leaves, its Handoff has no power over the next task, and
// the loop goes on. A panic is logged and aborts the conn.
func TestEndsOfATask(t *testing.T) {
	for name, end := range map[string]func(){"return": func() {}, "panic": func() { panic("of the task") },
		"exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			var logs bytes.Buffer
			s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1,
				Logger: slog.New(slog.NewTextHandler(&logs, nil))})
			var stale myriad.Handoff
			h := &taskHost{run: func(v *echoTask) {
				if v.host.runs.Load() == 1 {
					v.c.Write([]byte("before "))
					stale = v.handoff
					end()
					return
				}
				if stale.Inline() || !v.handoff.Inline() {
					t.Errorf("the first task is inline while the second runs: %v", stale.Inline())
				}
				if stale.HandOff(); !v.handoff.Inline() {
					t.Error("the first task has handed the loop of the second off")
				}
			}}
			p, q := s.meet(h), s.meet(h)
			s.RunFor(time.Millisecond)
			p.Write([]byte("a"))
			s.RunFor(time.Millisecond)
			want := map[string]string{"return": "before a", "exit": "before "}[name]
			if got := string(p.Received()); got != want || (p.Err() != nil) != (name == "panic") {
				t.Errorf("the first peer got %q, want %q; it was reset: %v", got, want, p.Err())
			}
			q.Write([]byte("b"))
			if s.RunFor(time.Millisecond); string(q.Received()) != "b" {
				t.Errorf("the second peer got %q", q.Received())
			}
			if logged := strings.Contains(logs.String(), "panic in an inline task") &&
				strings.Contains(logs.String(), "of the task"); logged != (name == "panic") {
				t.Errorf("logged: %s", logs.String())
			}
			p.CloseWrite()
			q.CloseWrite()
			s.finish()
		})
	}
}
