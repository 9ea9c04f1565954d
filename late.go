package myriad

import (
	"sync/atomic"
	"time"
)

// This file is how late a loop is, by its own measure: without a setting, and without a word from
// its peers.

// A lateness is how late a loop is for what it serves. The loop measures it at the end of each
// turn; any goroutine reads shown.
type lateness struct {
	emptied time.Duration // a clock such that what was in the sockets then has been read since
	mark    time.Duration // the clock of a later poll, from which events are counted
	seen    int           // those events
	idle    bool          // nothing was there before the next poll
	shown   atomic.Int64  // nanoseconds, as of the last turn
}

// measureLateness is called at the end of a turn whose poll began at polled, and told of so many
// events.
func (l *Loop) measureLateness(events int, polled time.Duration, looked bool) {
	late := &l.stats.late
	l.lateness.polled(events, l.live, polled, l.clock, looked)
	late.Read = max(0, l.clock-l.lateness.emptied)
	late.Settle = 0
	if !l.settler.taken.empty() {
		late.Settle = max(0, l.clock-l.settler.took)
	}
	l.showLateness(max(late.Read, late.Settle, late.Timer))
}

// polled notes a poll. One with few events has left nothing in the sockets. Of many, kernels report
// those first that have waited longest, so that after two events for each connection all have had
// their turn.
func (n *lateness) polled(events, live int, began, now time.Duration, looked bool) {
	if n.idle {
		n.emptied, n.mark, n.seen, n.idle = began, began, 0, false
	}
	switch n.seen += events; {
	case looked:
	case events == 0:
		n.emptied, n.mark, n.seen = now, now, 0
	case events < manyEvents:
		n.emptied, n.mark, n.seen = began, began, 0
	case n.seen >= 2*live:
		n.emptied, n.mark, n.seen = n.mark, began, 0
	}
}

// sleeps notes that the loop has nothing to do.
func (l *Loop) sleeps() {
	l.lateness.idle = true
	late := &l.stats.late
	late.Read, late.Settle, late.Timer = 0, 0, 0
	l.showLateness(0)
}

func (l *Loop) showLateness(late time.Duration) {
	l.stats.mostLate = max(l.stats.mostLate, late)
	if int64(late) != l.lateness.shown.Load() {
		l.lateness.shown.Store(int64(late))
	}
}

// Late is how late the engine's loops are with what they serve, the latest of them. It is how long
// bytes may have waited in a socket, output for the kernel, or a timer for its call. A loop that
// keeps up is as late as its turns take, mostly well below a millisecond. Any goroutine; it takes
// some nanoseconds for each loop.
func (e *Engine) Late() time.Duration {
	late, now := time.Duration(0), e.sys.Now().Sub(e.start)
	for _, l := range e.loops {
		late = max(late, l.late(now))
	}
	return late
}

// late is how late the loop is. Any goroutine.
func (l *Loop) late(now time.Duration) time.Duration {
	late := time.Duration(l.lateness.shown.Load())
	if began := l.stats.turnBegan.Load(); began != noTurn {
		late = max(late, now-time.Duration(began))
	}
	return late
}
