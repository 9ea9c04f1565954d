package myriad

import (
	"reflect"
	"runtime"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file is for those who are about to wait: whether they may, where they run, and what has to be done before.

// loopBody is what every goroutine that is a loop has at the bottom of its stack, and guestHost what is below a guest, which may wait:
// another goroutine then goes on with the loop.
var (
	loopBody  = nameOf((*Loop).run)
	guestHost = nameOf((*Loop).visit)
)

func nameOf(f any) string { return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name() }

// OnLoop reports whether the calling goroutine runs a callback of a loop, of any engine: whether it must not wait. It looks through the
// stack, which takes microseconds, so it is for those who are about to wait anyway. Any goroutine.
func OnLoop() bool { return whereabouts() == loopBody }

// HandOver is Lease.HandOver for callers that do not know of a lease: if the calling goroutine is a guest of one of the engine's loops, that
// loop goes on without it. It reports false if the goroutine must not wait: it runs a callback of a loop, of any engine, or is a
// guest on a driver that is bound to the loop's thread. It looks through the stack, as OnLoop does. Any goroutine.
func (e *Engine) HandOver() bool {
	switch whereabouts() {
	case loopBody:
		return false
	case guestHost:
		return e.leaseOf(driver.Goroutine()).HandOver()
	}
	return true
}

// leaseOf finds the lease of the guest that runs on a goroutine. It is the zero one if the loop has been taken over, or is another engine's.
func (e *Engine) leaseOf(id uint64) Lease {
	for _, l := range e.loops {
		word := l.lease.Load()
		if word%2 != 0 && id != 0 && l.owner.Load() == id { // the owner has not changed since, so the word is its guest's
			return Lease{l, word}
		}
	}
	return Lease{}
}

// whereabouts is loopBody, guestHost, or "" on a goroutine that is no loop's.
func whereabouts() string {
	var pcs [32]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			if f, more = frames.Next(); f.Function == guestHost || f.Function == loopBody {
				return f.Function
			}
		}
		if n < len(pcs) {
			return ""
		}
	}
}
