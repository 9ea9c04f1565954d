package ballast

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"
)

func TestCalm(t *testing.T) {
	const mb = 1 << 20
	type collection struct {
		size   uint64
		looked bool
		wait   time.Duration
	}
	for name, cs := range map[string][]collection{
		"little":             {{much - 1, false, 0}, {much - 1, false, 0}},
		"more than is small": {{most, false, 0}, {most, false, 0}},
		"a crowd that stays": {{100 * mb, false, soonest}, {100 * mb, true, 2 * soonest},
			{100 * mb, true, 4 * soonest}},
		"one that goes": {{100 * mb, false, soonest}, {100 * mb, true, 2 * soonest}, {3 * mb, true, 0}},
		"half of one":   {{100 * mb, false, soonest}, {100 * mb, true, 2 * soonest}, {50 * mb, true, soonest}},
		"another":       {{100 * mb, false, soonest}, {100 * mb, true, 2 * soonest}, {150 * mb, false, soonest}},
		"garbage": {{100 * mb, false, soonest}, {100 * mb, true, 2 * soonest},
			{110 * mb, false, 2 * soonest}, {100 * mb, false, 2 * soonest}},
		"nothing, then much": {{0, false, 0}, {much, false, soonest}, {much, true, 2 * soonest}},
		"too much, then not": {{most, false, 0}, {most - 1, false, soonest}},
	} {
		t.Run(name, func(t *testing.T) {
			var c calm
			for i, k := range cs {
				if got := c.next(k.size, k.looked); got != k.wait {
					t.Fatalf("after collection %d, which has left %d bytes, %v until there is a look; want %v", i,
						k.size, got, k.wait)
				}
			}
		})
	}
	var c calm
	for range 20 {
		c.next(much, true)
	}
	if c.wait != latest {
		t.Errorf("%v between looks that find nothing, want %v", c.wait, latest)
	}
}

// armed reports whether a look was to come, and has it not come.
func (k *keeper) armed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.quiet.timer != nil && k.quiet.timer.Stop()
}

func (k *keeper) looks() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.quiet.looking
}

// crowd returns memory that is in use until it is given to the pool, where it lies about.
func crowd() (give func()) {
	var pool sync.Pool
	held := new([4 * much]byte)
	return func() {
		pool.Put(held)
		held = nil
	}
}

// What was alive at the last collection, and has gone since, is collected when no other collection
// has come for a while, pools included.
func TestCrowdGoes(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var k keeper
	k.hold()
	defer k.release()
	give := crowd()
	eventually(t, "a look to come", func() bool { // a collection is heard of a little later
		runtime.GC()
		return k.armed()
	})
	give()
	k.mu.Lock()
	k.await(time.Millisecond)
	k.mu.Unlock()
	eventually(t, "a look that finds nothing", func() bool { return read().live < much && !k.looks() })
}

// A look is followed by another, later, while there is much; and by none once it has gone.
func TestLook(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var k keeper
	k.hold()
	defer k.release()
	k.mu.Lock()
	k.count = math.MaxUint64 // a count that a collection replaces
	k.mu.Unlock()
	give := crowd()
	before := forced()
	k.look()
	if n := forced() - before; n != 2 {
		t.Errorf("%d collections in a look, want 2", n)
	}
	if !k.armed() {
		t.Error("no look after one that has found much")
	}
	give()
	before = forced()
	if k.look(); k.armed() {
		t.Errorf("a look is to come when %d bytes are left", read().size())
	}
	if n := forced() - before; n != 3 {
		t.Errorf("%d collections in a look that finds much gone, want 3: the system gets it back with the last", n)
	}
}

// Nothing is checked when there is no holder.
func TestReleaseEndsLooks(t *testing.T) {
	var k keeper
	k.hold()
	k.mu.Lock()
	k.await(time.Hour)
	k.mu.Unlock()
	if k.release(); k.armed() {
		t.Error("a look is to come that nobody wants")
	}
	before := forced()
	if k.look(); forced() != before {
		t.Error("it was made all the same")
	}
}
