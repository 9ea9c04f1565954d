package dispatch

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/workers"
)

// send has a peer send bytes that arrive together.
func (w *world) send(p *sim.Peer, bytes string) {
	p.Write([]byte(bytes))
	w.Settle()
}

// The first tasks of a kind run on the pool, and inline once enough of them were quick.
func TestAutoLearns(t *testing.T) {
	w := newWorld(t, 1, sim.Calm(), Config{}, nil)
	p, ln := w.dial()
	for range QuickRow + 10 {
		w.send(p, "q")
	}
	if n := ln.inlines(); n != 10 {
		t.Errorf("%d tasks ran inline, want those behind the first %d", n, QuickRow)
	}
	w.stop()
}

// On a loop that cannot be handed off every task runs on the pool, where it may block.
func TestAutoOnBoundLoop(t *testing.T) {
	for mode, want := range map[Mode]int{Auto: 0, Inline: QuickRow + 10} {
		o := sim.Calm()
		o.ThreadBound = true
		w := newWorld(t, 1, o, Config{Mode: mode}, nil)
		p, ln := w.dial()
		for range QuickRow + 10 {
			w.send(p, "q")
		}
		if n := ln.inlines(); n != want {
			t.Errorf("mode %v: %d tasks ran inline, want %d", mode, n, want)
		}
		w.stop()
	}
}

// So they do when they wait behind one another, because their key is busy.
func TestAutoLearnsBehindOneAnother(t *testing.T) {
	var gate driver.Parker
	w := newWorld(t, 1, sim.Calm(), Config{}, func(_ *line, b byte) {
		if b == 'w' {
			gate.Park()
		}
	})
	gate = w.NewParker()
	p, ln := w.dial()
	w.send(p, "w")
	for range QuickRow {
		w.send(p, "q")
	}
	gate.Unpark()
	w.Settle()
	w.send(p, "q")
	if n := ln.inlines(); n != 1 {
		t.Errorf("%d tasks ran inline, want the last", n)
	}
	w.stop()
}

// A panic teaches nothing, and costs the tasks behind it nothing.
func TestPanicOnThePool(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("as the test wants") },
		"goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			pool := workers.New(workers.Config{OnPanic: func(any, []byte) {}})
			e, s, nc := serveOn(t, Config{Mode: Pool, Pool: pool}, func(_ *line, b byte) {
				if b == '!' {
					fail()
				}
			})
			nc.Write([]byte("a!b!c"))
			ln := <-s.opened
			eventually(t, "all tasks have run", func() bool { return ln.idle() && len(ln.tasks()) == 5 })
			ln.check(t)
			end(t, e, s)
			if err := pool.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// An inline task that ends its goroutine is followed by the next one.
func TestGoexitInline(t *testing.T) {
	for _, lost := range []bool{false, true} {
		e, s, nc := serveOn(t, Config{Mode: Inline}, func(ln *line, b byte) {
			if lost {
				ln.HandOff()
			}
			if b == '!' {
				runtime.Goexit()
			}
		})
		nc.Write([]byte("a!b!c"))
		ln := <-s.opened
		eventually(t, "all tasks have run", func() bool { return ln.idle() && len(ln.tasks()) == 5 })
		ln.check(t)
		eventually(t, "no task is away", func() bool { return s.d.Away() == 0 })
		end(t, e, s)
	}
}

// A counter notes what a pool is given at once.
type counter struct {
	driver.Executor
	most     int // of these it takes
	together []int
	alone    int
}

func (x *counter) TryGo(f func()) bool { x.alone++; return x.Executor.TryGo(f) }

func (x *counter) TryGoAll(fs []func()) int {
	x.together = append(x.together, len(fs))
	return x.Executor.TryGoAll(fs[:min(len(fs), x.most)])
}

// The tasks of one poll cycle are given to the pool at once; those that it has no room for run
// later, or are given to NoRoom.
func TestBatch(t *testing.T) {
	const keys = 10
	for _, most := range []int{keys, 4, 0} {
		for _, refuse := range []bool{false, true} {
			var refused []*line
			c := Config{Mode: Pool}
			if refuse {
				c.NoRoom = func(t Task) {
					ln := t.(*line)
					ln.queue, ln.received, ln.busy = nil, nil, false
					refused = append(refused, ln)
				}
			}
			w := newWorld(t, 1, sim.Calm(), c, nil)
			pool := &counter{Executor: w.Executor(), most: most}
			w.s.d.UsePool(pool)
			for range keys {
				w.dial()
			}
			w.e.Loops()[0].Do(func() {
				for _, ln := range w.s.lines {
					ln.Received(ln.c, []byte("ab"))
				}
			})
			w.Settle()
			if !slices.Equal(pool.together, []int{keys}) {
				t.Errorf("the pool was given %v tasks, want %d at once", pool.together, keys)
			}
			if want := keys - most; refuse && len(refused) != want || !refuse && pool.alone != want {
				t.Errorf("of %d tasks %d have no room, but %d were refused and %d brought again", keys, want,
					len(refused), pool.alone)
			}
			w.stop()
		}
	}
}

// After a task has overstayed everything on its loop runs on the pool for a while.
func TestRest(t *testing.T) {
	var w *world
	w = newWorld(t, 1, sim.Calm(), Config{Learned: true}, func(_ *line, b byte) {
		if b == 's' {
			w.NewParker().ParkFor(5 * time.Millisecond)
		}
	})
	slow, _ := w.dial()
	p, ln := w.dial()
	w.send(p, "q")
	slow.Write([]byte("s"))
	w.RunFor(3 * time.Millisecond) // it overstays within two
	w.send(p, "q")
	w.RunFor(6 * time.Millisecond)
	w.send(p, "q")
	w.RunFor(10 * time.Millisecond)
	w.send(p, "q")
	if want := []bool{true, false, false, true}; !slices.Equal(ln.inline, want) {
		t.Errorf("inline: %v, want %v", ln.inline, want)
	}
	w.stop()
}

// A kind of tasks that overstays twice is not quick any more.
func TestStrikesDemote(t *testing.T) {
	var w *world
	w = newWorld(t, 1, sim.Calm(), Config{Learned: true},
		func(*line, byte) { w.NewParker().ParkFor(5 * time.Millisecond) })
	p, ln := w.dial()
	for range 4 {
		w.send(p, "s")
		w.RunFor(20 * time.Millisecond)
	}
	if n := ln.inlines(); n != 2 {
		t.Errorf("%d tasks ran inline, want two", n)
	}
	w.stop()
}

// What runs on the pool behind a task that has overstayed is timed, so that its kind becomes quick
// again.
func TestLearnsBehindAnOverstay(t *testing.T) {
	var w *world
	w = newWorld(t, 1, sim.Calm(), Config{Learned: true}, func(_ *line, b byte) {
		if b == 's' {
			w.NewParker().ParkFor(5 * time.Millisecond)
		}
	})
	p, ln := w.dial()
	w.send(p, "s")
	w.RunFor(20 * time.Millisecond)
	w.send(p, "s"+strings.Repeat("q", int(probation[0])+QuickRow))
	w.RunFor(20 * time.Millisecond)
	w.send(p, "q")
	if last := ln.inline[len(ln.inline)-1]; !last || ln.inlines() != 3 {
		t.Errorf("%d tasks ran inline, the last: %v; want the two that overstay and the last", ln.inlines(), last)
	}
	w.stop()
}

// A kind of tasks that becomes a little slow is found by the inline tasks that are timed.
func TestSlowerKind(t *testing.T) {
	var w *world
	w = newWorld(t, 1, sim.Calm(), Config{Learned: true}, func(*line, byte) { w.NewParker().ParkFor(3 * quickTime) })
	p, ln := w.dial()
	for range 100 {
		w.send(p, "m")
		w.RunFor(time.Millisecond)
	}
	if n, most := ln.inlines(), maxPoints/slowPoints*sample; n != most {
		t.Errorf("%d tasks ran inline, want %d", n, most)
	}
	w.stop()
}

// While a loop rests, what follows in a chain is not timed either: much of it is slow for another's
// reason.
func TestFollowRests(t *testing.T) {
	w := newWorld(t, 1, sim.Calm(), Config{}, nil)
	_, ln := w.dial()
	ln.c.Loop().Do(func() {
		l := w.s.d.On(ln.c.Loop())
		var p piece
		for _, rests := range []bool{false, true} {
			if rests {
				l.resting = l.loop.Now().Add(restAfter)
			}
			if l.Follow(&p, &l.Record); p.timed == rests {
				t.Errorf("timed: %v, while the loop rests: %v", p.timed, rests)
			}
		}
	})
	w.stop()
}

// Nor is what teaches nothing: where no mode learns, and of a kind that is known to be quick.
func TestFollowTimes(t *testing.T) {
	for _, tt := range []struct {
		c    Config
		r    bool
		want bool
	}{
		{Config{}, true, true}, {Config{}, false, false}, {Config{Learned: true}, true, false},
		{Config{Mode: Pool}, true, false}, {Config{Mode: Inline}, true, false},
	} {
		w := newWorld(t, 1, sim.Calm(), tt.c, nil)
		_, ln := w.dial()
		ln.c.Loop().Do(func() {
			l := w.s.d.On(ln.c.Loop())
			var p piece
			var r *Record
			if tt.r {
				r = &l.Record
			}
			if l.Follow(&p, r); p.timed != tt.want {
				t.Errorf("%+v, with a record: %v: timed: %v", tt.c, tt.r, p.timed)
			}
		})
		w.stop()
	}
}

// A task whose Do says that its time teaches nothing makes no kind quick, nor slow.
func TestUntaught(t *testing.T) {
	for _, learned := range []bool{false, true} {
		w := newWorld(t, 1, sim.Calm(), Config{Learned: learned}, nil)
		_, ln := w.dial()
		inline := 0
		for range QuickRow + 100 {
			ln.c.Loop().Do(func() {
				l := w.s.d.On(ln.c.Loop())
				p := &piece{waits: true, do: func() {
					if learned {
						w.NewParker().ParkFor(3 * quickTime)
					}
				}}
				if l.TryInline(ln.c, p, &l.Record) {
					inline++
				} else {
					l.ToPool(p)
				}
			})
			w.RunFor(time.Millisecond)
		}
		if want := map[bool]int{false: 0, true: QuickRow + 100}[learned]; inline != want {
			t.Errorf("known to be quick: %v; %d tasks ran inline, want %d", learned, inline, want)
		}
		w.stop()
	}
}

// A full pool has no room for anything, except for callers that wait.
type full struct{ driver.Executor }

func (full) TryGo(func()) bool        { return false }
func (full) TryGoAll(fs []func()) int { return 0 }

// Tasks that wait for room in the pool get it in the order in which they came.
func TestWaitingInOrder(t *testing.T) {
	o := sim.Calm()
	o.Workers, o.Queue = 1, -1
	w := newWorld(t, 1, o, Config{Mode: Pool}, nil)
	w.s.d.UsePool(full{w.Executor()})
	for range 20 {
		w.dial()
	}
	w.e.Loops()[0].Do(func() {
		for i, ln := range w.s.lines {
			ln.Received(ln.c, []byte{byte('a' + i)})
		}
	})
	w.Run()
	if got, want := string(w.s.order), "abcdefghijklmnopqrst"; got != want {
		t.Errorf("the order is %q, want %q", got, want)
	}
	w.stop()
}

// At MaxAway tasks that have lost their loops no other one starts inline, and AllBack is called
// when they have ended.
func TestMaxAway(t *testing.T) {
	var gate driver.Parker
	back := 0
	c := Config{Mode: Inline, MaxAway: 1, AllBack: func() { back++ }}
	w := newWorld(t, 1, sim.Calm(), c, func(ln *line, b byte) {
		if b == 'w' {
			ln.HandOff()
			gate.Park()
		}
	})
	gate = w.NewParker()
	first, _ := w.dial()
	second, ln := w.dial()
	w.send(first, "w")
	if n := w.s.d.Away(); n != 1 {
		t.Errorf("%d tasks are away, want 1", n)
	}
	w.send(second, "q")
	gate.Unpark()
	w.Settle()
	w.send(second, "q")
	if want := []bool{false, true}; !slices.Equal(ln.inline, want) || back != 1 {
		t.Errorf("inline: %v, want %v; AllBack was called %d times, want once", ln.inline, want, back)
	}
	w.stop()
}

// A task that is excused does not count as away.
func TestExcuse(t *testing.T) {
	var gate driver.Parker
	w := newWorld(t, 1, sim.Calm(), Config{Mode: Inline, MaxAway: 1}, func(ln *line, _ byte) {
		ln.HandOff()
		ln.Excuse()
		gate.Park()
	})
	gate = w.NewParker()
	p, ln := w.dial()
	w.send(p, "w")
	if n := w.s.d.Away(); n != 0 || !ln.Excused() {
		t.Errorf("%d tasks are away, want none; excused: %v", n, ln.Excused())
	}
	gate.Unpark()
	w.stop()
}

// A task is spent if its loop was handed off: its State may not serve another key.
func TestSpent(t *testing.T) {
	w := newWorld(t, 1, sim.Calm(), Config{Mode: Inline}, func(ln *line, b byte) {
		if b == 'h' {
			ln.HandOff()
		}
	})
	p, ln := w.dial()
	for _, c := range []struct {
		bytes string
		want  bool
	}{{"q", false}, {"h", true}, {"q", false}} {
		if w.send(p, c.bytes); ln.Spent() != c.want {
			t.Errorf("after %q: spent: %v, want %v", c.bytes, ln.Spent(), c.want)
		}
	}
	w.stop()
}

// A connection that is behind with reading has its tasks run on the pool.
func TestMaxQueued(t *testing.T) {
	w := newWorld(t, 1, sim.Calm(), Config{Mode: Inline, MaxQueued: 100}, func(ln *line, b byte) {
		if b == 'w' {
			ln.c.Write(make([]byte, 256<<10))
		}
	})
	p, ln := w.dial()
	p.StopReading()
	w.send(p, "w")
	w.send(p, "q")
	p.Resume()
	w.Settle()
	w.send(p, "q")
	if want := []bool{true, false, true}; !slices.Equal(ln.inline, want) {
		t.Errorf("inline: %v, want %v", ln.inline, want)
	}
	w.stop()
}

// Exactly MaxQueued bytes are not too many.
func TestMaxQueuedItself(t *testing.T) {
	w := newWorld(t, 1, sim.Calm(), Config{Mode: Inline}, func(ln *line, _ byte) { ln.c.Write(make([]byte, 256<<10)) })
	p, ln := w.dial()
	p.StopReading()
	w.send(p, "w")
	ln.c.Loop().Do(func() {
		l, none := w.s.d.On(ln.c.Loop()), func() {}
		for below, want := range map[int]bool{0: true, 1: false} {
			w.s.d.config.MaxQueued = ln.c.Queued() - below
			if got := l.TryInline(ln.c, &piece{do: none}, nil); got != want {
				t.Errorf("%d bytes above MaxQueued: inline: %v", below, got)
			}
		}
	})
	w.stop()
}

// A pool that its owner has closed too early: all tasks run, in order.
func TestClosedPool(t *testing.T) {
	pool := workers.New(workers.Config{})
	if err := pool.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	e, s, nc := serveOn(t, Config{Mode: Pool, Pool: pool}, nil)
	nc.Write([]byte("abcdef"))
	ln := <-s.opened
	eventually(t, "all tasks have run", func() bool { return ln.idle() && len(ln.tasks()) == 6 })
	ln.check(t)
	end(t, e, s)
}

// After Close the pool refuses, also one that no task has needed.
func TestClose(t *testing.T) {
	for _, used := range []bool{false, true} {
		d, e := New(Config{}), startEngine(t)
		system := e.System()
		if used {
			d.PoolOf(system)
		}
		d.Close()
		if d.PoolOf(system).TryGo(func() {}) {
			t.Errorf("a closed Dispatcher takes a task (used before: %v)", used)
		}
	}
}

// A piece is a task that is a key's only while it runs, with the next one behind it.
type piece struct {
	State
	next  *piece
	do    func()
	waits bool // Do says that its time teaches nothing
}

func (p *piece) Do() bool { p.do(); return !p.waits }
func (p *piece) Kept()    {}
func (p *piece) Next() Task {
	if p.next == nil {
		return nil
	}
	return p.next
}

// Tasks that Follow one in the batch run behind it, on the same goroutine, and each teaches its own
// kind.
func TestFollow(t *testing.T) {
	w := newWorld(t, 1, sim.Calm(), Config{}, nil)
	_, ln := w.dial()
	var kinds [3]Record
	var got []int
	for range QuickRow {
		ln.c.Loop().Do(func() {
			l := w.s.d.On(ln.c.Loop())
			var all [3]piece
			for i := range all {
				all[i].do = func() { got = append(got, i) }
				if i > 0 {
					all[i-1].next = &all[i]
					l.Follow(&all[i], &kinds[i])
				} else if l.TryInline(ln.c, &all[0], &kinds[0]) {
					t.Error("an unknown kind runs inline")
				} else {
					l.ToPool(&all[0])
				}
				if !l.IsLast(&all[0]) {
					t.Error("the first is not the last that waits for the pool")
				}
			}
		})
		w.Settle()
	}
	for i := range kinds {
		if !kinds[i].Inline() {
			t.Errorf("kind %d is not known to be quick", i)
		}
	}
	for i := range got {
		if got[i] != i%3 {
			t.Fatalf("task %d ran as number %d", got[i], i)
		}
	}
	if len(got) != 3*QuickRow {
		t.Errorf("%d tasks have run, want %d", len(got), 3*QuickRow)
	}
	w.stop()
}

// The batch of a poll cycle keeps no task that was in it, and no room for a crowd.
func TestBatchIsForgotten(t *testing.T) {
	for room, keeps := range map[int]bool{keptTasks: true, keptTasks + 1: false} {
		w := newWorld(t, 1, sim.Calm(), Config{Mode: Pool}, nil)
		_, ln := w.dial()
		l, ran := w.s.d.On(ln.c.Loop()), 0
		do := func() { ran++ }
		ln.c.Loop().Do(func() {
			a, b := &piece{do: do}, &piece{do: do}
			if l.IsLast(a) {
				t.Error("a task is the last of none")
			}
			l.tasks, l.runs = make([]Task, 0, room), make([]func(), 0, room)
			l.ToPool(a)
			l.ToPool(b)
			if l.IsLast(a) || !l.IsLast(b) {
				t.Error("the last task is not the one that came last")
			}
		})
		w.Settle()
		if ran != 2 || (cap(l.tasks) == room) != keeps || (cap(l.runs) == room) != keeps {
			t.Errorf("%d tasks ran; of room for %d there is %d, and %d", ran, room, cap(l.tasks), cap(l.runs))
		}
		for i := range cap(l.tasks) {
			if l.tasks[:cap(l.tasks)][i] != nil || l.runs[:cap(l.runs)][i] != nil {
				t.Errorf("task %d is still referred to", i)
			}
		}
		w.stop()
	}
}

// Loops of several engines with the same index have Locals of their own.
func TestLocals(t *testing.T) {
	d := New(Config{})
	var loops []*myriad.Loop
	for range 2 {
		loops = append(loops, startEngine(t).Loops()...)
	}
	slices.Reverse(loops)
	seen := map[*Local]bool{}
	for range 2 {
		for _, loop := range loops {
			if l := d.On(loop); l.loop != loop {
				t.Error("the Local of a loop is another one's")
			} else {
				seen[l] = true
			}
		}
	}
	if len(seen) != len(loops) {
		t.Errorf("%d Locals of %d loops", len(seen), len(loops))
	}
}
