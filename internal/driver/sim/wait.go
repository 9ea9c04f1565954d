package sim

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// tailLines is how much of the trace goes into a panic's message.
const tailLines = 60

// A waiter waits for something to happen; the code that makes it happen calls wake. It is used
// once.
type waiter struct {
	a     *actor // nil outside the world
	woken bool
	timer *event
}

// wake lets wt go on. The lock is held.
func (w *World) wake(wt *waiter) {
	if wt == nil || wt.woken {
		return
	}
	wt.woken = true
	w.queue.remove(wt.timer)
	if wt.a != nil {
		w.setRunnable(wt.a)
	} else {
		w.poke()
	}
}

// newWaiter is for the calling goroutine. A timeout of zero or less is none. The lock is held.
func (w *World) newWaiter(timeout time.Duration) *waiter { return w.newWaiterFor(w.caller(), timeout) }

// newWaiterFor is for a caller that knows its actor; nil is outside.
func (w *World) newWaiterFor(a *actor, timeout time.Duration) *waiter {
	wt := &waiter{a: a}
	if timeout > 0 {
		wt.timer = w.after(timeout, timer, func() { w.wake(wt) })
	}
	return wt
}

// wait blocks the goroutine that made wt until it is woken. An actor hands the token back; a
// goroutine outside drives the world meanwhile. The lock is held, and released meanwhile.
func (w *World) wait(wt *waiter, doing string) {
	if wt.a == nil {
		w.driveWhile(doing, func() bool { return !wt.woken })
		return
	}
	wt.a.doing = doing
	w.handBack(wt.a)
	wt.a.doing = ""
}

// yield lets others go before a, or before the goroutine outside whose number is self. The lock is
// held.
func (w *World) yield(a *actor, self uint64, doing string) {
	if a == nil {
		w.oneStep(doing, self, far, delivery)
		return
	}
	wt := w.newWaiterFor(a, 0)
	w.wake(wt)
	w.wait(wt, doing)
}

// longestLinger is how long Linger holds a goroutine up.
const longestLinger = 4 * time.Millisecond

// Linger holds one of the world's goroutines up for some time, with a probability of
// Options.Overstay, as an operating system or a slow computation would. It is Facilities.Linger.
func (w *World) Linger() {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.caller()
	if a == nil || !w.chance(w.o.Overstay) {
		return
	}
	wt := w.newWaiterFor(a, 1+time.Duration(w.rng.Int64N(int64(longestLinger))))
	w.wait(wt, "Linger")
}

// driveWhile steps the world from outside. When it is quiet it waits, in real time, for another
// goroutine outside to do something. The lock is held.
func (w *World) driveWhile(doing string, on func() bool) {
	w.outside++
	defer func() { w.outside-- }()
	self := driver.Goroutine()
	for on() {
		if w.stepping {
			w.refuseInCallback(doing, self)
			w.cond.Wait()
			continue
		}
		if !w.oneStep(doing, self, far, timer) && on() {
			w.awaitOutside(doing)
		}
	}
}

// awaitOutside waits for a poke. The lock is held.
func (w *World) awaitOutside(doing string) {
	late := false
	watchdog := time.AfterFunc(w.o.Stall, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		late = true
		w.cond.Broadcast()
	})
	defer watchdog.Stop()
	w.cond.Wait()
	if late {
		w.fail("%s, called outside the world, would wait for ever: the world is quiet; %s\nlast steps:\n%s",
			doing, w.describe(), w.trace.tail(tailLines))
	}
}

// exclusive makes the calling goroutine, whose number is self, the one that steps. The lock is
// held.
func (w *World) exclusive(doing string, self uint64) {
	w.outside++
	for w.stepping {
		w.refuseInCallback(doing, self)
		w.cond.Wait()
	}
	w.outside--
	w.stepping, w.stepper = true, self
}

func (w *World) endStep() {
	w.stepping = false
	w.poke()
}

// poke tells the goroutines outside that something has changed. The lock is held.
func (w *World) poke() {
	if w.outside > 0 {
		w.cond.Broadcast()
	}
}

func (w *World) refuseInCallback(doing string, self uint64) {
	if w.stepper == self {
		w.fail("%s inside a peer's callback: callbacks run in the middle of a step and must not wait", doing)
	}
}

// awaitToken waits, in real time, for the token to come back, and reports false if it does not. The
// lock is not held.
func (w *World) awaitToken() bool {
	if w.watchdog == nil {
		w.watchdog = time.NewTimer(w.o.Stall)
	} else {
		w.watchdog.Reset(w.o.Stall)
	}
	select {
	case <-w.back:
		w.watchdog.Stop()
		return true
	case <-w.watchdog.C:
		return false
	}
}

func stackOf(id uint64) string {
	b := make([]byte, 1<<20)
	b = b[:runtime.Stack(b, true)]
	for s := range strings.SplitSeq(string(b), "\n\n") {
		if strings.HasPrefix(s, fmt.Sprintf("goroutine %d ", id)) {
			return s
		}
	}
	return ""
}

// describe lists the living actors, and what they wait for. The lock is held.
func (w *World) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d actors", len(w.actors))
	for _, a := range w.actors {
		fmt.Fprintf(&b, "; %s in %q", a.name, a.doing)
	}
	return b.String()
}
