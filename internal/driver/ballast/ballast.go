// Package ballast keeps the garbage collector from coming dozens of times a second to a heap of a
// few megabytes.
//
// The collector comes when the heap has grown by as much as it found alive the last time, and by 4
// MiB at least (with GOGC at 100). A server that needs a few hundred bytes for a connection finds 2
// MiB alive where others find 200, so it is visited a hundred times as often for the same requests.
// Ballast is unused memory. The collector counts it as alive and comes less often; the operating
// system gives no page for it, because none is ever touched.
//
// It also has the collector come when much has been alive and may have gone, which the collector
// does not notice by itself (calm.go). docs/adr/0017 has the figures.
package ballast

import (
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"time"
)

const (
	// Size is how much there is, in bytes, of a whole process: by so much, with GOGC at 100, more
	// garbage may lie about.
	Size = 16 << 20
	// often is how many collections within rhythm are too many. None for as long as rhythm, and the
	// ballast goes overboard, with the garbage that has gathered because of it.
	often  = 16
	rhythm = time.Second
	// small is a heap, in bytes, that is collected in milliseconds.
	small = 4 * Size
	// leastLimit is the memory limit (GOMEMLIMIT), in bytes, below which there is no ballast: it
	// would count.
	leastLimit = 8 * Size
)

// process is the ballast of this process, because the heap is one.
var process keeper

// Hold has ballast taken in when there is reason to, until release is called, by as many as there
// are. release may be called once. Any goroutine.
func Hold() (release func()) {
	process.hold()
	return process.release
}

// A keeper looks at each collection, and at when there has been none for a while.
type keeper struct {
	mu       sync.Mutex
	holders  int
	watching bool
	count    uint64 // of collections that came by themselves
	pace     pace
	weight   *strings.Builder // nil: there is no ballast
	calm     *time.Timer      // until the ballast goes; nil: there is none
	quiet    calm
}

func (k *keeper) hold() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holders++; !k.watching {
		k.watch()
	}
}

func (k *keeper) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holders--; k.holders == 0 {
		k.drop()
		k.rest()
	}
}

// A buoy is an object without references: the next collection finds it.
type buoy struct{ _ *keeper }

// watch asks for a call of collected after the next collection. Under mu.
func (k *keeper) watch() {
	k.watching = true
	runtime.AddCleanup(new(buoy), (*keeper).collected, k)
}

func (k *keeper) collected() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holders == 0 {
		k.watching = false
		return
	}
	k.watch()
	now := read()
	asked := now.count == k.count // the program has called runtime.GC
	k.count = now.count
	if !k.quiet.looking {
		k.await(k.quiet.next(now.size(), false))
	}
	if !asked {
		k.judge(time.Now(), now.limit)
	}
}

// judge takes ballast in or throws it out, after a collection that came by itself. Under mu.
func (k *keeper) judge(now time.Time, limit uint64) {
	tooOften := k.pace.next(now)
	switch {
	case limit < leastLimit:
		k.drop()
	case k.weight != nil:
		k.calm.Reset(rhythm)
	case tooOften:
		k.weight = new(strings.Builder)
		k.weight.Grow(Size) // not zeroed, unlike what make returns
		k.calm = time.AfterFunc(rhythm, k.overboard)
	}
}

// overboard is called when no collection has come for a while: then none is near, and garbage would
// stay for minutes.
func (k *keeper) overboard() {
	k.mu.Lock()
	laden := k.weight != nil
	k.drop()
	k.mu.Unlock()
	if laden && read().live < small {
		runtime.GC()
	}
}

func (k *keeper) drop() {
	if k.weight != nil {
		k.calm.Stop()
		k.weight, k.calm = nil, nil
	}
}

// A reading is what the runtime tells: how many collections came by themselves, the memory limit,
// how many bytes the last collection left, and how many stacks take.
type reading struct{ count, limit, live, stacks uint64 }

func (r reading) size() uint64 { return r.live + r.stacks }

func read() reading {
	samples := [...]metrics.Sample{
		{Name: "/gc/cycles/automatic:gc-cycles"}, {Name: "/gc/gomemlimit:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"},
	}
	metrics.Read(samples[:])
	return reading{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(),
		samples[3].Value.Uint64()}
}

// A pace holds the times of the last collections that the runtime began by itself, in a ring; turn
// is the index of the oldest.
type pace struct {
	times [often]time.Time
	turn  int
}

// next notes a collection and reports whether the last ones came within rhythm.
func (p *pace) next(now time.Time) (tooOften bool) {
	p.times[p.turn] = now
	p.turn = (p.turn + 1) % often
	return now.Sub(p.times[p.turn]) < rhythm
}
