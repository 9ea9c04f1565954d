package myriad

import (
	"sync/atomic"
	"time"
)

// This file says how late a loop is for what is in its sockets, without a setting, and without a
// word from its peers. loop.go adds how late it is for its own work.

// manyEvents is from how many events on a Poll may have left some for the next one, of a driver
// that cannot say whether it has.
const manyEvents = 64

// A lateness is how late a loop is for what it serves. The loop measures it at the end of each
// turn; any goroutine reads shown.
type lateness struct {
	emptied time.Duration // a clock such that what was in the sockets then has been read since
	mark    time.Duration // the clock of a later poll, from which events are counted
	seen    int           // those events
	idle    bool          // nothing was there before the next poll
	shown   atomic.Int64  // nanoseconds, as of the last turn
}

// polled notes a poll. One that is not full has left nothing in the sockets. If many are full,
// kernels report those first that have waited longest, so that after two events for each connection
// all have had their turn. A look serves connections before their turn, so it says nothing of the
// others; nor does a poll with unknownEvents.
func (n *lateness) polled(events, live int, full bool, began, now time.Duration, looked bool) {
	if n.idle {
		n.emptied, n.mark, n.seen, n.idle = began, began, 0, false
	}
	if looked || events < 0 {
		return
	}
	switch n.seen += events; {
	case events == 0:
		n.emptied, n.mark, n.seen = now, now, 0
	case !full:
		n.emptied, n.mark, n.seen = began, began, 0
	case n.seen >= 2*live:
		n.emptied, n.mark, n.seen = n.mark, began, 0
	}
}
