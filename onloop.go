package myriad

import (
	"reflect"
	"runtime"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file answers for callers that are about to wait: whether they may, where they run, and what
// has to be done before.

// loopBody is at the bottom of the stack of each loop's goroutine, and taskHost below the code of
// an inline task. That code may wait: another goroutine then continues with the loop.
var (
	loopBody = entryOf((*Loop).run)
	taskHost = entryOf((*Loop).runTask)
)

func entryOf(f any) uintptr { return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Entry() }

// OnLoop reports whether the calling goroutine runs a callback of a loop, of any engine: whether it
// must not wait. It looks through the stack, which takes microseconds, so it is for callers that
// are about to wait anyway. Any goroutine.
func OnLoop() bool { return whereabouts() == loopBody }

// HandOff is Handoff.HandOff for callers that were given no Handoff: if the calling goroutine runs
// an inline task of one of the engine's loops, that loop continues on another goroutine. It returns
// false if the caller must not wait, because it runs a callback of any engine's loop, or an inline
// task on a driver that is bound to a thread. It looks through the stack, as OnLoop does. Any
// goroutine.
func (e *Engine) HandOff() bool {
	switch whereabouts() {
	case loopBody:
		return false
	case taskHost:
		return e.handoffOf(driver.Goroutine()).HandOff()
	}
	return true
}

// handoffOf finds the Handoff of the inline task that runs on a goroutine. It is the zero one if
// the loop was handed off already, or is another engine's.
func (e *Engine) handoffOf(id uint64) Handoff {
	for _, l := range e.loops {
		token := l.inline.token.Load()
		// the owner has not changed since, so the token is its task's
		if token%2 != 0 && id != 0 && l.shifts.owner.Load() == id {
			return Handoff{l, token}
		}
	}
	return Handoff{}
}

// whereabouts is loopBody, taskHost, or 0 on a goroutine that is no loop's. It compares entries of
// functions, because names would cost several times as much.
func whereabouts() uintptr {
	var pcs [32]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		for _, pc := range pcs[:n] {
			// pc is a return address; of inlined calls Entry is that of the function around them
			if f := runtime.FuncForPC(pc - 1); f != nil && (f.Entry() == taskHost || f.Entry() == loopBody) {
				return f.Entry()
			}
		}
		if n < len(pcs) {
			return 0
		}
	}
}

// Flush offers the kernel now what is queued, instead of when the callback that runs has ended.
// What Queued counts afterwards is what the kernel has refused, with drivers that ask the kernel at
// once (all but std). It reports false, and does nothing, unless the caller runs on the conn's
// loop. It looks through the stack, which takes microseconds. Any goroutine.
func (c *Conn) Flush() bool {
	l := c.loop
	if l.shifts.owner.Load() != driver.Goroutine() || whereabouts() != loopBody {
		return false
	}
	if c.id == 0 || c.phase() == closed || c.is(connecting) {
		return true
	}
	c.mu.Lock()
	if c.asked&(wantAbort|gone) != 0 {
		c.mu.Unlock()
		return true
	}
	out := c.takeOutput()
	x := c.extra.Load()
	mustEncode := x != nil && x.unencoded > 0
	c.mu.Unlock()
	l.send(c, out)
	if mustEncode {
		l.encodeOwed(c, x)
	}
	return true
}
