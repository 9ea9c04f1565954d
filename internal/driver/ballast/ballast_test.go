package ballast

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	for _, tt := range []struct {
		name   string
		apart  time.Duration // from one collection to the next
		limit  uint64
		weight bool // after so many that it would be there
	}{
		{"forty a second", 25 * time.Millisecond, math.MaxInt64, true},
		{"ten a second", 100 * time.Millisecond, math.MaxInt64, false},
		{"one a minute", time.Minute, math.MaxInt64, false},
		{"in little memory", 25 * time.Millisecond, leastLimit - 1, false},
		{"in enough memory", 25 * time.Millisecond, leastLimit, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var k keeper
			defer k.overboard()
			k.mu.Lock() // so that the timer finds nothing before it is over
			defer k.mu.Unlock()
			now := time.Now()
			for i := range 2 * often {
				if k.laden() && i < often {
					t.Fatalf("ballast after %d collections, want %d", i, often)
				}
				k.judge(now, tt.limit)
				now = now.Add(tt.apart)
			}
			if k.laden() != tt.weight {
				t.Errorf("ballast: %v, want %v", k.laden(), tt.weight)
			}
		})
	}
}

// laden is called under mu.
func (k *keeper) laden() bool { return k.weight != nil && k.weight.Cap() >= Size }

func (k *keeper) isLaden() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.laden()
}

// load returns a keeper with ballast, whose timer stands still.
func load(t *testing.T) *keeper {
	t.Helper()
	k, now := new(keeper), time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for range often {
		now = now.Add(time.Millisecond)
		k.judge(now, math.MaxInt64)
	}
	if !k.laden() {
		t.Fatal("no ballast to begin with")
	}
	if !k.calm.Stop() {
		return load(t) // a test that is held up for a second finds that the timer has run
	}
	return k
}

// Ballast goes by itself when there are no collections, and what it has let gather goes, too.
func TestOverboard(t *testing.T) {
	runtime.GC() // the last collection may have found a large heap, another test's
	k := load(t)
	before := forced()
	k.calm.Reset(time.Millisecond)
	eventually(t, "a collection", func() bool { return forced() != before })
	if k.isLaden() {
		t.Error("the ballast is still there")
	}
	k.overboard()
	if n := forced(); n != before+1 {
		t.Errorf("%d collections, want 1: there was nothing more to throw out", n-before)
	}
}

// A heap that takes long to collect is not collected only because the ballast goes.
func TestOverboardFromALargeHeap(t *testing.T) {
	large := make([]byte, small) // never touched
	runtime.GC()
	k, before := load(t), forced()
	k.overboard()
	if n := forced() - before; n != 0 || k.isLaden() {
		t.Errorf("%d collections of %d MiB, want none; ballast: %v", n, small>>20, k.isLaden())
	}
	runtime.KeepAlive(large)
}

func forced() uint32 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NumForcedGC
}

// Each collection puts it off that the ballast goes, unless memory has become scarce.
func TestCollectionKeepsBallast(t *testing.T) {
	k := load(t)
	k.mu.Lock()
	defer k.mu.Unlock()
	for pending := false; !pending; {
		before := time.Now()
		k.judge(before, math.MaxInt64)
		if pending = k.calm.Stop(); !k.laden() || !pending && time.Since(before) < rhythm {
			t.Fatal("ballast that no timer will throw out")
		}
	}
	if k.judge(time.Now(), leastLimit-1); k.laden() {
		t.Error("ballast where there is little memory")
	}
}

func TestReleaseDropsBallast(t *testing.T) {
	k := load(t)
	k.hold()
	k.hold()
	if k.release(); !k.isLaden() {
		t.Error("the first of two has thrown it out")
	}
	if k.release(); k.isLaden() {
		t.Error("nobody holds it, and it is there")
	}
}

// Each collection is seen while there is a holder, and none afterwards.
func TestWatch(t *testing.T) {
	const unheard = math.MaxUint64 // a count that a collection replaces
	var k keeper
	k.hold()
	k.hold()
	for lap := range 4 {
		if lap == 2 {
			k.release()
		}
		k.mu.Lock()
		k.count = unheard
		k.mu.Unlock()
		collect(t, &k, func() bool { return k.count != unheard })
	}
	k.release()
	collect(t, &k, func() bool { return !k.watching })
	k.hold()
	k.mu.Lock()
	if !k.watching {
		t.Error("nobody watches for who holds it anew")
	}
	k.mu.Unlock()
	k.release()
}

// Calls of runtime.GC, however many, are no reason for ballast.
func TestAskedFor(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var k keeper
	k.count = read().count
	k.hold()
	defer k.release()
	for range 4 * often {
		runtime.GC()
		runtime.Gosched()
	}
	if k.isLaden() {
		t.Error("ballast because of calls of runtime.GC")
	}
}

// collect has the collector come until done, which is called under mu.
func collect(t *testing.T, k *keeper, done func() bool) {
	t.Helper()
	eventually(t, "a collection that is heard of", func() bool {
		runtime.GC()
		k.mu.Lock()
		defer k.mu.Unlock()
		return done()
	})
}

// eventually is for what another goroutine brings about at its own pace.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// Collections of the runtime are told from those that a program asked for.
func TestRead(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC() // one that has begun by itself is over then
	before := read()
	runtime.GC()
	if after := read(); after.count != before.count {
		t.Errorf("%d collections by themselves, before a call of runtime.GC %d", after.count, before.count)
	}
	if want := uint64(debug.SetMemoryLimit(-1)); before.limit != want {
		t.Errorf("memory limit %d, want %d", before.limit, want)
	}
	if before.live == 0 || before.live >= small {
		t.Errorf("%d bytes alive in a test that holds next to nothing", before.live)
	}
}
