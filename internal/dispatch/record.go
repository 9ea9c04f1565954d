package dispatch

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// QuickRow is how many quick calls in a row make a kind quick.
	QuickRow = 32

	quickTime = 100 * time.Microsecond // a quick call takes no longer
	longTime  = time.Millisecond       // a call that takes so long must not run inline even rarely
	sample    = 16                     // one of so many inline calls is timed
	memory    = 4096                   // for so many inline calls a strike counts; a second one within them demotes
	rare      = 256                    // on probation at most one call of so many may be long
	forgiven  = 65_536                 // after so many inline calls earlier demotions do not count

	slowPoints = 4 // for a timed call above quickTime; a quick one takes 1 off
	maxPoints  = 16
)

// probation is for how many calls a kind runs on the pool: after its first demotion, the second,
// later.
var probation = [...]uint32{1024, 4096, 16384}

// A Record is what is known of one kind of tasks, such as those of a route: whether they are quick
// enough to run inline. It has no clock: its callers time the calls. docs/adr/0010 says why the
// numbers are what they are. The zero value is a kind that has never been called. Its methods may
// be called by any goroutine; it is cheap if one loop makes most of the calls.
type Record struct {
	inline atomic.Bool
	calls  atomic.Uint32 // since it became inline

	mu      sync.Mutex // guards what follows
	demoted int        // how often; index of probation, plus one
	wait    uint32     // how many calls must be made on the pool
	made    uint32     // how many of them have been
	row     uint32     // quick ones since the last that was not
	long    uint32     // how many of those made were long
	struck  bool
	strike  uint32 // calls, at the last strike
	points  int
}

// Call says how the next call is to be made: inline or on the pool, and whether it is to be timed.
// The time of a call on the pool goes to Made, that of an inline call to MadeInline.
func (r *Record) Call() (inline, timed bool) {
	if !r.inline.Load() {
		return false, true
	}
	return true, r.calls.Add(1)%sample == 0
}

// Inline reports whether calls are made inline now.
func (r *Record) Inline() bool { return r.inline.Load() }

// Made notes how long a call on the pool took.
func (r *Record) Made(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inline.Load() {
		return // it began before
	}
	r.made++
	r.row++
	if took > quickTime {
		r.row = 0
	}
	if took >= longTime {
		r.long++
	}
	if r.row < QuickRow || r.made < r.wait {
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

// MadeInline notes how long a timed inline call took.
func (r *Record) MadeInline(took time.Duration) {
	switch {
	case took >= longTime:
		r.Strike()
	case took > quickTime:
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

// Strike notes an inline call whose loop was handed off.
func (r *Record) Strike() {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls.Load()
	if r.struck && calls-r.strike <= memory {
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
	r.wait = probation[min(r.demoted, len(probation)-1)]
	r.demoted++
	r.made, r.row, r.long = 0, 0, 0
	r.inline.Store(false)
}
