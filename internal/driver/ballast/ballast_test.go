package ballast

import (
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	for _, tt := range []struct {
		name   string
		apart  time.Duration // from one collection to the next
		limit  uint64
		asked  bool
		weight bool // after so many that it would be there
	}{
		{"forty a second", 25 * time.Millisecond, math.MaxInt64, false, true},
		{"ten a second", 100 * time.Millisecond, math.MaxInt64, false, false},
		{"one a minute", time.Minute, math.MaxInt64, false, false},
		{"asked for", time.Millisecond, math.MaxInt64, true, false},
		{"in little memory", 25 * time.Millisecond, leastLimit - 1, false, false},
		{"in enough memory", 25 * time.Millisecond, leastLimit, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var k keeper
			now := time.Now()
			for i := range 2 * often {
				if k.weight != nil && i < often {
					t.Fatalf("ballast after %d collections, want %d", i, often)
				}
				k.judge(now, tt.asked, tt.limit)
				now = now.Add(tt.apart)
			}
			if (k.weight != nil) != tt.weight {
				t.Errorf("ballast: %v, want %v", k.weight != nil, tt.weight)
			}
		})
	}
}

// Ballast stays while collections come now and then, and goes when there was none for a second, or when memory has become scarce.
func TestOverboard(t *testing.T) {
	laden := func() (*keeper, time.Time) {
		k, now := new(keeper), time.Now()
		for range often {
			now = now.Add(time.Millisecond)
			k.judge(now, false, math.MaxInt64)
		}
		if k.weight == nil || k.weight.Cap() < Size {
			t.Fatal("no ballast to begin with")
		}
		return k, now
	}
	for _, tt := range []struct {
		name  string
		after time.Duration
		asked bool
		limit uint64
		stays bool
	}{
		{"soon", rhythm - 1, false, math.MaxInt64, true},
		{"late", rhythm, false, math.MaxInt64, false},
		{"soon and asked for", rhythm - 1, true, math.MaxInt64, true},
		{"late and asked for", rhythm, true, math.MaxInt64, false},
		{"soon, but in little memory", time.Millisecond, false, leastLimit - 1, false},
	} {
		k, now := laden()
		if k.judge(now.Add(tt.after), tt.asked, tt.limit); (k.weight != nil) != tt.stays {
			t.Errorf("%s: ballast: %v, want %v", tt.name, k.weight != nil, tt.stays)
		}
	}
}

// Each collection is seen while somebody holds on, and none any more when nobody does.
func TestWatch(t *testing.T) {
	var k keeper
	k.hold()
	k.hold()
	for lap := range 4 {
		if lap == 2 {
			k.release()
		}
		k.mu.Lock()
		k.weight = new(strings.Builder) // collections are far apart, as far as the keeper knows
		k.mu.Unlock()
		collect(&k, func() bool { return k.weight == nil })
	}
	k.release()
	collect(&k, func() bool { return !k.watching })
	k.hold()
	k.mu.Lock()
	if !k.watching {
		t.Error("nobody watches for who holds it anew")
	}
	k.mu.Unlock()
	k.release()
}

// collect has the collector come until done, which is called under mu.
func collect(k *keeper, done func() bool) {
	for over := false; !over; {
		runtime.GC()
		k.mu.Lock()
		over = done()
		k.mu.Unlock()
	}
}

// What comes by itself is told from what is asked for.
func TestRead(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC() // one that has begun by itself is over then
	before, limit := read()
	runtime.GC()
	if after, _ := read(); after != before {
		t.Errorf("%d collections by themselves, before a call of runtime.GC %d", after, before)
	}
	if want := uint64(debug.SetMemoryLimit(-1)); limit != want {
		t.Errorf("memory limit %d, want %d", limit, want)
	}
}
