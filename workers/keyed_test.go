package workers

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func checkNoKeys[K comparable](t *testing.T, k *Keyed[K]) {
	t.Helper()
	if s := k.Stats(); s != (KeyedStats{}) {
		t.Errorf("%+v after all is done, want nothing kept", s)
	}
}

func TestKeysRunInOrderAndAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Workers: 10})
		k := NewKeyed[int](p, KeyedConfig{})
		start := time.Now()
		orders := make([][]int, 10) // each is written by one key's tasks
		for i := range 50 {
			for key := range orders {
				if !k.TryGo(key, func() { time.Sleep(time.Second); orders[key] = append(orders[key], i) }) {
					t.Fatal("refused")
				}
			}
		}
		closeAndCheck(t, p)
		for key, order := range orders {
			if len(order) != 50 || !slices.IsSorted(order) {
				t.Errorf("key %d ran in the order %v", key, order)
			}
		}
		if took := time.Since(start); took < 50*time.Second || took > 51*time.Second {
			t.Errorf("ten keys with 50 s of work each took %v, want them at the same time", took)
		}
		checkNoKeys(t, k)
	})
}

// A key that is not equal to itself is a new key each time, and leaves nothing in the tables.
func TestKeyThatEqualsNothing(t *testing.T) {
	p := New(Config{Workers: 2})
	k := NewKeyed[float64](p, KeyedConfig{})
	var ran atomic.Int32
	for range 10 {
		if !k.TryGo(math.NaN(), func() { ran.Add(1) }) {
			t.Error("TryGo refused")
		}
		if err := k.Go(t.Context(), math.NaN(), func() { ran.Add(1) }); err != nil {
			t.Errorf("Go: %v", err)
		}
	}
	closeAndCheck(t, p)
	if n := ran.Load(); n != 20 {
		t.Errorf("%d of 20 tasks ran", n)
	}
	checkNoKeys(t, k)
}

// After a slice, a busy key leaves the worker to other keys.
func TestABusyKeyYieldsAfterASlice(t *testing.T) {
	p := newPool(t, Config{Workers: 1})
	k := NewKeyed[string](p, KeyedConfig{})
	gate := make(chan struct{})
	k.TryGo("busy", func() { <-gate })
	var before atomic.Int32
	for range 100 {
		k.TryGo("busy", func() { before.Add(1) })
	}
	at := make(chan int32)
	k.TryGo("other", func() { at <- before.Load() })
	close(gate)
	if n := <-at; n != keySlice-1 {
		t.Errorf("the other key came after %d tasks of the busy one, want %d", n, keySlice-1)
	}
}

func TestFullBacklogRefusesOneKeyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{})
		k := NewKeyed[string](p, KeyedConfig{Backlog: 2})
		release := make(chan struct{})
		k.TryGo("a", func() { <-release })
		synctest.Wait()
		for i := range 4 {
			if took := k.TryGo("a", nothing); took != (i < 2) {
				t.Errorf("a backlog of 2: task %d accepted %v", i, took)
			}
		}
		if !k.TryGo("b", nothing) {
			t.Error("another key was refused")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := k.Go(ctx, "a", func() { t.Error("a refused task ran") }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Go: %v", err)
		}
		late := make(chan error)
		go func() { late <- k.Go(t.Context(), "a", nothing) }()
		synctest.Wait()
		if s := k.Stats(); s != (KeyedStats{Keys: 1, Queued: 2, Waiting: 1}) || k.TryGo("a", nothing) {
			t.Errorf("%+v", s)
		}
		close(release)
		if err := <-late; err != nil {
			t.Errorf("Go, with room later: %v", err)
		}
		synctest.Wait()
		checkNoKeys(t, k)
	})
}

// The pool has no room for the key: the first Go waits for room, the others behind it. When one
// gives up, the next takes its place.
func TestGoOfAKeyWaitsForThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := full(t)
		k := NewKeyed[string](p, KeyedConfig{Backlog: 4})
		if k.TryGo("a", nothing) {
			t.Error("a full pool accepted a key")
		}
		checkNoKeys(t, k)
		var order []int
		errs := make([]error, 6)
		for i := range errs {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
			go func() {
				defer cancel()
				errs[i] = k.Go(ctx, "a", func() { order = append(order, i) })
			}()
			synctest.Wait()
		}
		if s := k.Stats(); s != (KeyedStats{Keys: 1, Queued: 1, Waiting: 5}) || k.TryGo("a", nothing) {
			t.Errorf("%+v, want one offered and five behind it", s)
		}
		time.Sleep(2500 * time.Millisecond) // the first two give up; the third is offered
		close(release)
		synctest.Wait()
		if !slices.Equal(order, []int{2, 3, 4, 5}) {
			t.Errorf("%v ran, want those that waited on, in order", order)
		}
		for i, err := range errs {
			if gaveUp := i < 2; errors.Is(err, context.DeadlineExceeded) != gaveUp || (err == nil) == gaveUp {
				t.Errorf("call %d: %v", i, err)
			}
		}
		checkNoKeys(t, k)
		closeAndCheck(t, p)
	})
}

// A key that the pool has accepted accepts more tasks at once, before its slice begins.
func TestAnAcceptedKeyTakesMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Workers: 1, Queue: 1})
		step := make(chan struct{})
		p.TryGo(func() { <-step })
		synctest.Wait()
		p.TryGo(func() { <-step })
		k := NewKeyed[string](p, KeyedConfig{})
		for range 3 {
			go k.Go(t.Context(), "a", nothing)
		}
		synctest.Wait()
		if s := k.Stats(); s != (KeyedStats{Keys: 1, Queued: 1, Waiting: 2}) {
			t.Errorf("%+v while the pool has no room", s)
		}
		step <- struct{}{}
		synctest.Wait()
		if s := k.Stats(); s != (KeyedStats{Keys: 1, Queued: 3}) || !k.TryGo("a", nothing) {
			t.Errorf("%+v when the pool has accepted it", s)
		}
		close(step)
	})
}

// A key's slice may begin before the accepted Go has returned.
func TestARunningKeyIsNotOffered(t *testing.T) {
	p := newPool(t, Config{})
	k := NewKeyed[string](p, KeyedConfig{})
	s := k.shard("a")
	l := k.open(s, "a")
	l.tasks.push(nothing)
	l.offered = true
	if l.next() == nil || l.room() == 0 {
		t.Error("a running key has no room")
	}
	if l.next() != nil {
		t.Error("a task ran twice")
	}
	checkNoKeys(t, k)
}

func TestAllWhoWaitForAKeyGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := full(t)
		k := NewKeyed[string](p, KeyedConfig{})
		ctx, cancel := context.WithCancel(t.Context())
		for range 5 {
			go func() {
				if err := k.Go(ctx, "a", func() { t.Error("ran") }); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		checkNoKeys(t, k)
		if s := p.Stats(); s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		close(release)
		closeAndCheck(t, p)
	})
}

func TestCloseWithKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Workers: 1, Queue: 2})
		k := NewKeyed[int](p, KeyedConfig{Backlog: 1})
		release := make(chan struct{})
		ran := 0
		k.TryGo(0, func() { <-release; ran++ })
		synctest.Wait()
		k.TryGo(0, func() { ran++ })
		k.TryGo(1, func() { ran++ })
		k.TryGo(2, func() { ran++ })
		refused := make(chan error, 4)
		for _, key := range []int{0, 0, 3, 3} { // two wait for room in a backlog, two for room in the pool
			go func() { refused <- k.Go(t.Context(), key, func() { t.Error("a refused task ran") }) }()
			synctest.Wait()
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Close(ended); err == nil {
			t.Error("Close with a blocked task did not say so")
		}
		if k.TryGo(0, nothing) || k.TryGo(9, nothing) || k.Go(t.Context(), 0, nothing) != ErrClosed ||
			k.Go(t.Context(), 9, nothing) != ErrClosed {
			t.Error("a closed pool accepted a keyed task")
		}
		close(release)
		closeAndCheck(t, p)
		for range 4 {
			if err := <-refused; err != ErrClosed {
				t.Errorf("a waiting Go got %v", err)
			}
		}
		if ran != 4 {
			t.Errorf("%d tasks ran, want the 4 accepted", ran)
		}
		checkNoKeys(t, k)
	})
}

func TestKeySurvivesPanicAndGoexit(t *testing.T) {
	var panics atomic.Int32
	p := New(Config{OnPanic: func(any, []byte) { panics.Add(1) }})
	k := NewKeyed[string](p, KeyedConfig{})
	var order []int
	for i := range 60 {
		err := k.Go(t.Context(), "a", func() {
			order = append(order, i)
			switch i % 3 {
			case 1:
				panic("chaos")
			case 2:
				runtime.Goexit()
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	closeAndCheck(t, p)
	if s := p.Stats(); len(order) != 60 || !slices.IsSorted(order) || panics.Load() != 20 || s.Panics != 20 ||
		s.Exits != 20 {
		t.Errorf("%v, %d panics reported, %+v", order, panics.Load(), s)
	}
	checkNoKeys(t, k)
}

// A table that held many keys is released when they are idle.
func TestNothingIsKeptForIdleKeys(t *testing.T) {
	p := newPool(t, Config{Workers: 4})
	k := NewKeyed[int](p, KeyedConfig{})
	gate := make(chan struct{})
	for key := range 40_000 {
		k.TryGo(key, func() { <-gate })
	}
	if s := k.Stats(); s.Keys != 40_000 {
		t.Fatalf("%+v", s)
	}
	close(gate)
	closeAndCheck(t, p)
	checkNoKeys(t, k)
	for i := range k.shards {
		if k.shards[i].queues != nil {
			t.Fatal("the shard keeps the table that held many keys")
		}
	}
}

func TestFutureOfAKey(t *testing.T) {
	p := newPool(t, Config{})
	users := NewKeyed[string](p, KeyedConfig{})
	balance := 0
	add := func(n int) *Future[int] {
		return Submit(t.Context(), users.Key("ann"), func(context.Context) (int,
			error) {
			balance += n
			return balance, nil
		})
	}
	first, second := add(5), add(-2)
	broken := Submit(t.Context(), users.Key("ann"), func(context.Context) (int, error) { panic("no") })
	if v, err := second.Wait(t.Context()); v != 3 || err != nil {
		t.Errorf("second: %v, %v", v, err)
	}
	if v, err := first.Wait(t.Context()); v != 5 || err != nil {
		t.Errorf("first: %v, %v", v, err)
	}
	if _, err := broken.Wait(t.Context()); err == nil || p.Stats().Panics != 1 {
		t.Errorf("%v, %+v", err, p.Stats())
	}
}

// A key is full when its backlog is, and other keys are not.
func TestTryGoOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{})
		k := NewKeyed[string](p, KeyedConfig{Backlog: 1})
		ann, release := k.Key("ann"), make(chan struct{})
		for i, want := range []bool{true, true, false} {
			if ok := ann.TryGo(func() { <-release }); ok != want {
				t.Errorf("task %d: accepted %v", i, ok)
			}
			synctest.Wait() // the first one runs
		}
		never := func(context.Context) (int, error) { t.Error("ran"); return 0, nil }
		if u, ok := TrySubmit(t.Context(), ann, never); ok || u != nil {
			t.Errorf("a full key: %v, %v", u, ok)
		}
		u, ok := TrySubmit(t.Context(), k.Key("bob"), func(context.Context) (int, error) { return 3, nil })
		if !ok {
			t.Fatal("another key refused")
		}
		if v, err := u.Wait(t.Context()); v != 3 || err != nil {
			t.Errorf("%v, %v", v, err)
		}
		close(release)
		closeAndCheck(t, p)
		if ann.TryGo(nothing) {
			t.Error("a key of a closed pool accepted a task")
		}
	})
}
