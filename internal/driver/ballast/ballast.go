// Package ballast keeps the garbage collector from coming dozens of times a second to a heap of a few megabytes.
//
// The collector comes when the heap has grown by as much as it found alive the last time, and by 4 MiB at least (with GOGC at 100). A server that
// needs a few hundred bytes for a connection finds 2 MiB alive where others find 200, so it is visited a hundred times as often for
// the same requests. Ballast is memory that nobody uses. The collector counts it as alive and comes less often; the operating
// system gives no page for it, because none is ever touched. docs/adr/0017 has the figures.
package ballast

import (
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"time"
)

const (
	// Size is how much there is, in bytes, of a whole process: by so much, with GOGC at 100, more garbage may lie about.
	Size = 8 << 20
	// often is how many collections within rhythm are too many. None for as long as rhythm, and the ballast goes overboard.
	often  = 16
	rhythm = time.Second
	// leastLimit is the memory limit (GOMEMLIMIT), in bytes, below which there is no ballast: it would count.
	leastLimit = 16 * Size
)

// process is the ballast of this process, because the heap is one.
var process keeper

// Hold has ballast taken in when there is reason to, until release is called, by as many as there are. release may be called once. Any
// goroutine.
func Hold() (release func()) {
	process.hold()
	return process.release
}

// A keeper looks at each collection, and does nothing between two of them.
type keeper struct {
	mu       sync.Mutex
	holders  int
	watching bool
	count    uint64 // of collections that came by themselves
	pace     pace
	weight   *strings.Builder // nil: there is no ballast
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
		k.weight = nil
	}
}

// A buoy is what nobody holds on to: the next collection finds it.
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
	count, limit := read()
	asked := count == k.count // somebody has called runtime.GC
	k.count = count
	k.judge(time.Now(), asked, limit)
}

// judge takes ballast in or throws it out, after a collection. asked: it did not come by itself. Under mu.
func (k *keeper) judge(now time.Time, asked bool, limit uint64) {
	heavy := k.weight != nil
	switch tooOften, seldom := k.pace.next(now, asked); {
	case heavy && (seldom || limit < leastLimit):
		k.weight = nil
	case !heavy && tooOften && limit >= leastLimit:
		k.weight = new(strings.Builder)
		k.weight.Grow(Size) // not zeroed, unlike what make returns
	}
}

// read returns how many collections came by themselves, and the memory limit.
func read() (count, limit uint64) {
	samples := [...]metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(samples[:])
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// A pace are the times of the last collections that came by themselves, the oldest at next.
type pace struct {
	times [often]time.Time
	turn  int
}

// next notes a collection, unless it was asked for. tooOften: the last ones came within rhythm. seldom: the one before is as
// far back.
func (p *pace) next(now time.Time, asked bool) (tooOften, seldom bool) {
	last := p.times[(p.turn+often-1)%often]
	seldom = now.Sub(last) >= rhythm
	if asked {
		return false, seldom
	}
	p.times[p.turn] = now
	p.turn = (p.turn + 1) % often
	return now.Sub(p.times[p.turn]) < rhythm, seldom
}
