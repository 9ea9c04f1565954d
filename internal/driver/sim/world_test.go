package sim_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// panics runs f and returns what it panicked with.
func panics(t *testing.T, f func()) (said string) {
	t.Helper()
	defer func() {
		v := recover()
		if v == nil {
			t.Fatal("no panic")
		}
		said = fmt.Sprint(v)
	}()
	f()
	return ""
}

func mustSay(t *testing.T, said string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("%q is missing in: %s", w, said)
		}
	}
}

func TestOneGoroutineAtATime(t *testing.T) {
	for seed := range uint64(20) {
		w := sim.New(seed, sim.Options{})
		inside, most, ran := 0, 0, 0
		const actors = 10
		for range actors {
			w.Go(func() {
				for range 20 {
					inside++ // a data race, unless the world keeps its word
					most = max(most, inside)
					runtime.Gosched()
					inside--
					pollOnce(w)
				}
				ran++
			})
		}
		w.Run()
		if most != 1 || ran != actors {
			t.Fatalf("seed %d: %d at a time, %d of %d came to an end", seed, most, ran, actors)
		}
		w.Check(t)
	}
}

func TestOrderIsTheSeedsChoice(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(50) {
		order := func() (s string) {
			w := sim.New(seed, sim.Options{})
			for i := range 4 {
				w.Go(func() { s += fmt.Sprint(i) })
			}
			w.Run()
			return s
		}
		first := order()
		if again := order(); again != first {
			t.Fatalf("seed %d: %s, then %s", seed, first, again)
		}
		orders[first] = true
	}
	if len(orders) < 15 {
		t.Errorf("50 seeds made %d orders of four goroutines", len(orders))
	}
}

func TestParkerKeepsOnePermit(t *testing.T) {
	w := sim.New(1, sim.Options{})
	p := w.NewParker()
	p.Unpark()
	p.Unpark()
	p.Park() // by the test itself, without a wait
	waited := false
	w.Go(func() { waited = true; p.Unpark() })
	p.Park() // drives the world
	if !waited {
		t.Error("the second Park took a permit that was not there")
	}
}

func TestParkOutsideForEver(t *testing.T) {
	w := sim.New(77, sim.Options{Stall: 20 * time.Millisecond})
	mustSay(t, panics(t, w.NewParker().Park), "seed 77", "Park", "wait for ever", "quiet")
}

func TestUnparkFromOutsideWhileQuiet(t *testing.T) {
	w := sim.New(1, sim.Options{})
	p := w.NewParker()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Unpark()
	}()
	p.Park()
	<-done
}

func TestTwoOutsideTakeTurns(t *testing.T) {
	w := sim.New(1, sim.Options{})
	p, q := w.NewParker(), w.NewParker()
	w.Go(func() { q.Unpark() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.Park()
		p.Unpark()
	}()
	p.Park()
	<-done
}

func TestStuckGoroutineIsNamed(t *testing.T) {
	said := ""
	// it may be held up on its way there
	for stall := 100 * time.Millisecond; stall < time.Minute && !strings.Contains(said, "waitsElsewhere"); stall *= 4 {
		w := sim.New(5, sim.Options{Stall: stall})
		foreign := make(chan struct{})
		w.Go(func() { waitsElsewhere(foreign) })
		said = panics(t, w.Run)
		close(foreign)
	}
	mustSay(t, said, "seed 5", "TestStuckGoroutineIsNamed", "waitsElsewhere", "token")
}

func waitsElsewhere(c chan struct{}) { <-c }

func TestPanicOfAGoroutine(t *testing.T) {
	w := sim.New(6, sim.Options{})
	w.Go(func() { panic("on purpose") })
	mustSay(t, panics(t, w.Run), "seed 6", "on purpose", "TestPanicOfAGoroutine", "last steps")
}

func TestGoexitHandsTheTokenBack(t *testing.T) {
	w := sim.New(6, sim.Options{})
	after := false
	w.Go(runtime.Goexit)
	w.Go(func() { after = true })
	w.Run()
	if !after {
		t.Error("the world ended with the first goroutine")
	}
	w.Check(t)
}

func TestStepLimit(t *testing.T) {
	w := sim.New(9, sim.Options{MaxSteps: 100})
	p := w.NewParker()
	w.Go(func() {
		for {
			p.Unpark()
			p.Park()
			w.NewParker().Unpark()
			pollOnce(w)
		}
	})
	mustSay(t, panics(t, w.Run), "seed 9", "not quiet after 100 steps", "TestStepLimit")
	w.Kill()
}

func pollOnce(w *sim.World) {
	d, err := w.Open(1, driver.Options{})
	if err != nil {
		panic(err)
	}
	if _, err := d.Poll(0, nil); err != nil {
		panic(err)
	}
	if err := d.Shutdown(); err != nil {
		panic(err)
	}
}

// poller polls with a timeout, again and again, and counts.
func poller(w *sim.World, wait time.Duration, times int, count *int) {
	d, err := w.Open(1, driver.Options{})
	if err != nil {
		panic(err)
	}
	w.Go(func() {
		for range times {
			if _, err := d.Poll(wait, nil); err != nil {
				panic(err)
			}
			*count++
		}
		if err := d.Shutdown(); err != nil {
			panic(err)
		}
	})
}

func TestFakeTime(t *testing.T) {
	real := time.Now()
	w := sim.New(1, sim.Options{Spurious: -1})
	count := 0
	poller(w, time.Hour, 10, &count)
	w.Settle()
	if count != 0 || w.Now().Sub(sim.Epoch) > time.Second {
		t.Errorf("Settle waited for a timer: %d polls, %v", count, w.Now())
	}
	w.RunFor(90 * time.Minute)
	if passed := w.Now().Sub(sim.Epoch); count != 1 || passed < 90*time.Minute || passed > 91*time.Minute {
		t.Errorf("after 90 minutes: %d polls, %v", count, passed)
	}
	if !w.RunUntil(func() bool { return count == 3 }) || count != 3 {
		t.Errorf("RunUntil ended with %d polls", count)
	}
	w.Run()
	if passed := w.Now().Sub(sim.Epoch); count != 10 || passed < 10*time.Hour || passed > 11*time.Hour {
		t.Errorf("at the end: %d polls, %v", count, passed)
	}
	if w.RunUntil(func() bool { return false }) {
		t.Error("RunUntil says that it reached what is never true")
	}
	if w.Step() {
		t.Error("Step in a quiet world")
	}
	if took := time.Since(real); took > 20*time.Second {
		t.Errorf("ten fake hours took %v", took)
	}
	w.Check(t)
}

func TestAfterFunc(t *testing.T) {
	w := sim.New(1, sim.Calm())
	var story []string
	stopped := w.AfterFunc(time.Minute, func() { story = append(story, "stopped") })
	w.AfterFunc(time.Hour, func() {
		story = append(story, "hour")
		if stopped() {
			t.Error("a timer was stopped twice")
		}
		w.NewParker().Unpark()
		w.AfterFunc(time.Hour, func() { story = append(story, "two hours") })
	})
	half := w.AfterFunc(30*time.Minute, func() { story = append(story, "half") })
	if !stopped() {
		t.Error("a pending timer was not stopped")
	}
	w.Run()
	if half() {
		t.Error("a timer that has fired was stopped")
	}
	if got := strings.Join(story, ", "); got != "half, hour, two hours" || w.Now().Sub(sim.Epoch) < 2*time.Hour {
		t.Errorf("%s, until %v", got, w.Now())
	}
	w.Check(t)
}

func TestSpuriousReturns(t *testing.T) {
	w := sim.New(1, sim.Options{Spurious: 0.5})
	count := 0
	poller(w, time.Hour, 100, &count)
	w.Run()
	if passed := w.Now().Sub(sim.Epoch); passed < 20*time.Hour || passed > 80*time.Hour {
		t.Errorf("100 polls of an hour, half of them spurious, took %v", passed)
	}
}

func TestExecutor(t *testing.T) {
	w := sim.New(3, sim.Options{Workers: 2, Queue: 3})
	x := w.Executor()
	gate := w.NewParker()
	running, most, ran := 0, 0, 0
	task := func() {
		running++
		most = max(most, running)
		gate.Park()
		gate.Unpark()
		running--
		ran++
	}
	quick := func() { ran++ }
	if n := x.TryGoAll([]func(){quick, quick, quick, quick, quick, quick, quick}); n != 5 {
		t.Errorf("TryGoAll took %d, want 2 running and 3 waiting", n)
	}
	if x.TryGo(quick) {
		t.Error("TryGo without room")
	}
	w.Run()
	if ran != 5 {
		t.Errorf("%d tasks ran", ran)
	}
	w.Go(task)
	x.TryGo(func() { ran++; gate.Unpark() })
	w.Run()
	if ran != 7 {
		t.Errorf("%d tasks ran, most %d", ran, most)
	}
	if err := x.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if x.TryGo(quick) {
		t.Error("TryGo after Close")
	}
	if err := x.Go(context.Background(), quick); !errors.Is(err, sim.ErrClosed) {
		t.Errorf("Go after Close: %v", err)
	}
	w.Check(t)
}

func TestExecutorWaitsForRoom(t *testing.T) {
	w := sim.New(3, sim.Options{Workers: 1, Queue: 1})
	x := w.Executor()
	gates := []driver.Parker{w.NewParker(), w.NewParker(), w.NewParker()}
	ran := 0
	submitted := 0
	w.Go(func() {
		for _, g := range gates {
			if err := x.Go(context.Background(), func() { g.Park(); ran++ }); err != nil {
				t.Error(err)
			}
			submitted++
		}
	})
	w.Run()
	if submitted != 2 || ran != 0 {
		t.Errorf("%d submitted, %d ran, want one that runs and one that waits", submitted, ran)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("gave up"))
	if err := x.Go(ctx, func() {}); err == nil || err.Error() != "gave up" {
		t.Errorf("Go with a context that is over: %v", err)
	}
	for _, g := range gates {
		g.Unpark()
	}
	w.Run()
	if submitted != 3 || ran != 3 {
		t.Errorf("%d submitted, %d ran", submitted, ran)
	}
	if err := x.Close(context.Background()); err != nil {
		t.Error(err)
	}
	w.Check(t)
}

func TestExecutorsAreClosedOneByOne(t *testing.T) {
	w := sim.New(3, sim.Options{})
	gate := w.NewParker()
	x, y := w.Executor(), w.Executor()
	ran := 0
	x.TryGo(func() { gate.Park(); ran++ })
	y.TryGo(func() { ran++ })
	if err := y.Close(context.Background()); err != nil || ran != 1 {
		t.Errorf("Close: %v, %d tasks ran, want the closed one's only", err, ran)
	}
	if y.TryGo(func() {}) || !x.TryGo(func() { ran++; gate.Unpark() }) {
		t.Error("the wrong executor is closed")
	}
	if err := x.Close(context.Background()); err != nil || ran != 3 {
		t.Errorf("Close: %v, %d tasks ran", err, ran)
	}
	w.Check(t)
}

func TestKillEndsWaiters(t *testing.T) {
	w := sim.New(3, sim.Options{})
	var ended atomic.Int32
	for range 3 {
		w.Go(func() {
			defer ended.Add(1)
			w.NewParker().Park()
			t.Error("a killed goroutine went on")
		})
	}
	w.Run()
	w.Go(func() { t.Error("a goroutine started after Kill") })
	w.Kill()
	if ended.Load() != 3 {
		t.Errorf("%d of 3 ended", ended.Load())
	}
}

// reports collects what Check complains about.
type reports []string

func (r *reports) Helper()                        {}
func (r *reports) Errorf(format string, a ...any) { *r = append(*r, fmt.Sprintf(format, a...)) }

func TestCheckReports(t *testing.T) {
	w := sim.New(3, sim.Calm())
	d, err := w.Open(1, driver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := w.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	id, err := d.Listen(l)
	if err != nil {
		t.Fatal(err)
	}
	w.Dial(l.Addr())
	var sockets keeper
	for len(sockets.kept) == 0 {
		if _, err := d.Poll(time.Second, &sockets); err != nil {
			t.Fatal(err)
		}
	}
	w.Go(func() {})
	var r reports
	w.Check(&r)
	mustSay(t, strings.Join(r, "\n"), "seed 3", fmt.Sprintf("%x is still there", uint64(id)), "accepted socket",
		"could still run")
	if len(r) != 3 {
		t.Errorf("%d complaints: %v", len(r), r)
	}
	if err := sockets.kept[0].Close(); err != nil {
		t.Error(err)
	}
	if err := d.Shutdown(); err != nil {
		t.Error(err)
	}
	w.Run()
	w.Check(t)
}

// keeper keeps the sockets it is given and expects nothing else.
type keeper struct {
	driver.Events
	kept []driver.Socket
}

func (k *keeper) Accepted(_ driver.ID, s driver.Socket) { k.kept = append(k.kept, s) }
func (k *keeper) Closed(driver.ID, error)               {}
