package wheel

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"
)

func TestFiresAtItsTimeAndNotBefore(t *testing.T) {
	for _, start := range []int64{0, 5, -1 << 40, 1 << 50} {
		for _, after := range []int64{0, 1, 7, 8, 9, 63 * Tick, 64 * Tick, 511, 512, 513, 60_000, 86_400_000, 1 << 40} {
			w := New(start)
			w.Set(3, start+after)
			fired := int64(-1)
			for range 2 * levels {
				at, ok := w.Next()
				if !ok {
					break
				}
				if at > start {
					w.Advance(at-1, func(uint32) { t.Errorf("fired before Next said") })
				}
				w.Advance(at, func(uint32) { fired = at - start })
			}
			if fired < after || fired >= after+Tick || w.Len() != 0 {
				t.Errorf("start %d: due after %d, fired after %d, %d left", start, after, fired, w.Len())
			}
		}
	}
}

func TestTimesAtTheEdges(t *testing.T) {
	w := New(math.MinInt64)
	w.Set(0, math.MaxInt64)
	w.Set(1, math.MinInt64)
	if got := advance(w, 0); !slices.Equal(got, []uint32{1}) {
		t.Fatalf("fired %v, want the past one only", got)
	}
	w = New(1000)
	w.Set(0, -5)
	if at, ok := w.Next(); !ok || at > 1000 {
		t.Fatalf("Next of a timer in the past: %d %v", at, ok)
	}
	if got := advance(w, 3); len(got) != 1 {
		t.Fatal("a timer in the past did not fire at the next Advance, whatever its time")
	}
	if _, ok := w.Next(); ok || w.Len() != 0 {
		t.Fatal("an empty wheel wants to be woken")
	}
}

func TestMovedLaterIsStoredOnly(t *testing.T) {
	w := New(0)
	w.Set(1, 1000)
	before := w.level
	for at := int64(1001); at < 100_000; at += 977 {
		w.Set(1, at)
	}
	if w.level != before {
		t.Fatal("moving a timer later relinked it")
	}
	if got := advance(w, 99_000); len(got) != 0 {
		t.Fatal("fired by the old time")
	}
	if got := advance(w, 100_000); len(got) != 1 {
		t.Fatal("did not fire by the new time")
	}
}

func TestMovedEarlierFiresEarlier(t *testing.T) {
	w := New(0)
	for _, at := range []int64{1 << 40, 60_000, 600, 599, 40, 8} {
		w.Set(2, at)
		if next, _ := w.Next(); next > at+Tick {
			t.Fatalf("moved to %d, Next says %d", at, next)
		}
	}
	if got := advance(w, 8); len(got) != 1 {
		t.Fatal("did not fire by the earliest time")
	}
	if got := advance(w, 1<<41); len(got) != 0 {
		t.Fatal("fired again by an older time")
	}
}

func TestSlotIsNewAfterClear(t *testing.T) {
	w := New(0)
	w.Set(7, 100)
	w.Set(7, 90_000) // lazy: still linked at 100
	w.Clear(7)
	w.Clear(7)
	w.Set(7, 50_000) // another connection's
	if got := advance(w, 49_999); len(got) != 0 || w.Len() != 1 {
		t.Fatal("the old connection's time fired")
	}
	if got := advance(w, 50_008); len(got) != 1 {
		t.Fatal("the new connection's time did not fire")
	}
	w.Clear(1 << 20) // never set
	if w.Len() != 0 {
		t.Fatalf("%d armed", w.Len())
	}
}

func TestFireMayChangeAnySlot(t *testing.T) {
	w := New(0)
	for id := range uint32(5) {
		w.Set(id, 10)
	}
	var got []uint32
	w.Advance(20, func(id uint32) {
		got = append(got, id)
		switch id {
		case 0:
			w.Clear(1)   // due in the same Advance
			w.Set(2, 90) // the same, moved
			w.Set(0, 5)  // itself, to the past
		case 3:
			w.Set(3, 300)
			w.Clear(3)
		}
	})
	if !slices.Equal(got, []uint32{0, 3, 4}) {
		t.Fatalf("fired %v, want 0, 3, 4", got)
	}
	if got := advance(w, 20); !slices.Equal(got, []uint32{0}) {
		t.Fatalf("then fired %v, want 0: it was set to the past", got)
	}
	if got := advance(w, 400); !slices.Equal(got, []uint32{2}) {
		t.Fatalf("at last fired %v, want 2", got)
	}
}

func TestFiresInOrderOfTicks(t *testing.T) {
	w := New(0)
	for id := range uint32(1000) {
		w.Set(id, int64(999-id)*Tick*7)
	}
	got := advance(w, 1000*Tick*7)
	slices.Reverse(got)
	if len(got) != 1000 || !slices.IsSorted(got) {
		t.Fatal("timers did not fire in order of their ticks")
	}
}

func TestMisusePanics(t *testing.T) {
	for name, f := range map[string]func(w *Wheel){
		"wheel: Set of slot 67108864: slots are dense and at most 67108863": func(w *Wheel) { w.Set(MaxSlot+1, 0) },
		"wheel: Advance called by fire: return first": func(w *Wheel) {
			w.Advance(9,
				func(uint32) { w.Advance(9, nil) })
		},
	} {
		w := New(0)
		w.Set(0, 0)
		func() {
			defer func() {
				if v := recover(); v != name {
					t.Errorf("panic value %v, want %q", v, name)
				}
			}()
			f(w)
		}()
	}
}

func TestFireThatPanicsLosesNoOtherTimer(t *testing.T) {
	w := New(0)
	w.Set(0, 1)
	w.Set(1, 1)
	func() {
		defer func() { recover() }()
		w.Advance(8, func(uint32) { panic("handler") })
	}()
	if at, ok := w.Next(); !ok || at > 8 {
		t.Fatalf("Next says %d %v, want now", at, ok)
	}
	if got := advance(w, 8); !slices.Equal(got, []uint32{1}) || w.Len() != 0 {
		t.Fatalf("then fired %v", got)
	}
}

// 20,000 connections, each heard from once in 60 s on average, with a deadline of 60 s after the
// last message: ten minutes may wake the loop twice a second, plus once for each tick in which one
// is really due.
func TestIdleTimersWakeSeldom(t *testing.T) {
	const conns, deadline, length = 20_000, 60_000, 600_000
	r := rand.New(rand.NewPCG(1, 2))
	w := New(0)
	for id := range uint32(conns) {
		w.Set(id, deadline)
	}
	wakes, due := 0, 0
	for now := int64(0); now < length; now += 3 {
		w.Set(r.Uint32N(conns), now+deadline)
		at, _ := w.Next()
		if at > now {
			continue
		}
		wakes++
		fired := 0
		w.Advance(now, func(id uint32) { w.Set(id, now+deadline); fired = 1 })
		due += fired
	}
	if limit := due + 2*length/1000; wakes > limit {
		t.Fatalf("%d wakes, of which %d fired a timer, want at most %d", wakes, due, limit)
	}
}

func TestMillionTimersAreATable(t *testing.T) {
	if size := unsafe.Sizeof(slot{}); size > 16 {
		t.Fatalf("a timer takes %d bytes, want 16", size)
	}
	const n = 1_000_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	w := New(0)
	for id := range uint32(n) {
		w.Set(id, int64(id)*100)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	bytes, objects := after.HeapAlloc-before.HeapAlloc, int64(after.HeapObjects)-int64(before.HeapObjects)
	if bytes > 17*n || objects > n/200 {
		t.Errorf("%d timers take %d bytes in %d objects, want at most 17 bytes each and an object for each 256", n,
			bytes, objects)
	}
	now := int64(0)
	if allocs := testing.AllocsPerRun(100, func() {
		now += 1000
		w.Set(uint32(now%n), now+60_000)
		w.Clear(uint32(now%n) + 1)
		w.Advance(now, func(uint32) {})
	}); allocs != 0 {
		t.Errorf("%v allocations per use", allocs)
	}
	runtime.KeepAlive(w)
}

func advance(w *Wheel, now int64) (fired []uint32) {
	w.Advance(now, func(id uint32) { fired = append(fired, id) })
	return fired
}

// Expire disarms a timer that is due, and no other one.
func TestExpire(t *testing.T) {
	w := New(0)
	w.Set(1, 100)
	w.Set(2, 100)
	w.Set(3, 200)
	w.Advance(50, func(id uint32) { t.Errorf("timer %d has fired early", id) })
	if w.Expire(1, 95) || w.Expire(9, 1000) || w.Expire(0, 1000) {
		t.Error("a timer that is not due, or not set, has expired")
	}
	for now := int64(104); now < 300; now += 96 { // before and behind the time of all
		w.Expire(2, now)
	}
	if !w.Expire(1, 104) || w.Expire(1, 104) || w.Expire(2, 300) || w.Len() != 1 {
		t.Errorf("%d timers are armed, want the third", w.Len())
	}
	w.Advance(300, func(id uint32) {
		if id != 3 {
			t.Errorf("timer %d has fired, want 3", id)
		}
	})
}

// AdvanceUpTo leaves the rest for the next calls, in order, and what was set meanwhile behind it.
func TestAdvanceUpTo(t *testing.T) {
	w := New(0)
	for id := range uint32(5) {
		w.Set(id, int64(8*id))
	}
	var fired []uint32
	fire := func(id uint32) {
		if fired = append(fired, id); len(fired) < 5 {
			w.Set(id+10, 0)
		}
	}
	for calls := 1; ; calls++ {
		more := w.AdvanceUpTo(100, 2, fire)
		if _, due := w.Due(100); due != (w.Len() > 0) || more && !due {
			t.Errorf("call %d: more is %v, due %v, %d are armed", calls, more, due, w.Len())
		}
		if w.Len() == 0 {
			break
		}
	}
	if want := []uint32{0, 1, 2, 3, 4, 10, 11, 12, 13}; !slices.Equal(fired, want) {
		t.Errorf("fired %v, want %v", fired, want)
	}
}

// At is when a timer fires, wherever it is linked, and knows of none that is not armed.
func TestAt(t *testing.T) {
	w := New(100)
	for _, at := range []int64{0, 99, 100, 101, 5_000, 1 << 40} {
		w.Set(7, at)
		due, armed := w.At(7)
		if !armed || due < at || due > max(at, 100)+Tick {
			t.Errorf("armed %v for %d: it is %d", armed, at, due)
		}
	}
	w.Clear(7)
	if _, armed := w.At(7); armed {
		t.Error("it is armed after Clear")
	}
	if _, armed := w.At(1000); armed {
		t.Error("a slot that was never used is armed")
	}
	w.Set(7, 200)
	w.Advance(300, func(id uint32) {
		if _, armed := w.At(id); armed {
			t.Error("it is armed while it fires")
		}
	})
}
