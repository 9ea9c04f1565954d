// Package quick learns which calls are quick enough to be made where they hold others up. It knows
// no clock: those who make the calls time them. docs/adr/0010 says why the numbers are what they
// are.
package quick

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Enough is what a quick call takes at most.
	Enough = 100 * time.Microsecond
	// Long is what a call takes that is not to be made inline at all, not even now and then.
	Long = time.Millisecond

	// Row is how many quick calls in a row make a kind quick.
	Row = 32
	// Sample is of how many inline calls one is to be timed.
	Sample = 16
	// Memory is how many inline calls a strike is remembered for: a second one within them is one
	// too many.
	Memory = 4096

	rare     = 256    // a kind may be Long in one of so many calls while it waits to be tried again
	forgiven = 65_536 // inline calls after which a kind that becomes slow is treated as if it were the first time

	slowPoints = 4 // what a timed call above Enough counts; a quick one takes 1 off
	maxPoints  = 16
)

// waits are for how many calls a kind is not tried inline again, the first time, the second and
// later.
var waits = [...]uint32{1024, 4096, 16384}

// A Record is what is known of one kind of calls. The zero value is a kind that has never been
// called. Any goroutine may use it, but one loop should do most of it.
type Record struct {
	inline atomic.Bool
	calls  atomic.Uint32 // since it became inline

	mu      sync.Mutex // guards what follows
	demoted int        // how often; index of waits, plus one
	wait    uint32     // calls that must be made elsewhere
	made    uint32     // of these
	row     uint32     // quick ones since the last that was not
	long    uint32     // of those made
	struck  bool
	strike  uint32 // calls, at the last strike
	points  int
}

// Call says how the next call is to be made: inline or elsewhere, and whether it is to be timed. A
// call that is timed elsewhere is told to Made, one that is timed inline to MadeInline.
func (r *Record) Call() (inline, timed bool) {
	if !r.inline.Load() {
		return false, true
	}
	return true, r.calls.Add(1)%Sample == 0
}

// Inline reports whether calls are made inline now.
func (r *Record) Inline() bool { return r.inline.Load() }

// Made is told how long a call elsewhere took.
func (r *Record) Made(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inline.Load() {
		return // it began before
	}
	r.made++
	r.row++
	if took > Enough {
		r.row = 0
	}
	if took >= Long {
		r.long++
	}
	if r.row < Row || r.made < r.wait {
		return
	}
	if r.wait > 0 && r.long > r.made/rare {
		r.made, r.row, r.long = 0, 0, 0
		return
	}
	r.struck, r.points = false, 0
	r.calls.Store(0)
	r.inline.Store(true)
}

// MadeInline is told how long a timed inline call took.
func (r *Record) MadeInline(took time.Duration) {
	switch {
	case took >= Long:
		r.Strike()
	case took > Enough:
		r.count(slowPoints)
	default:
		r.count(-1)
	}
}

func (r *Record) count(points int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.points = max(0, r.points+points)
	if r.points >= maxPoints {
		r.demote()
	}
}

// Strike notes an inline call that has held others up.
func (r *Record) Strike() {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls.Load()
	if r.struck && calls-r.strike <= Memory {
		r.demote()
		return
	}
	r.struck, r.strike = true, calls
}

// demote is called under mu.
func (r *Record) demote() {
	if !r.inline.Load() {
		return
	}
	if r.calls.Load() >= forgiven {
		r.demoted = 0
	}
	r.wait = waits[min(r.demoted, len(waits)-1)]
	r.demoted++
	r.made, r.row, r.long = 0, 0, 0
	r.inline.Store(false)
}
