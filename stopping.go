package myriad

import "math"

// This file ends a loop and its conns, in order or because its driver has failed. All of it runs on
// the loop.

// fail is called by a loop whose driver has failed: no conn of it can be served any more.
func (l *Loop) fail() {
	err := l.failure
	l.stopping = true
	for _, ln := range l.listeners {
		if !ln.closed.Swap(true) {
			ln.inner.Refuse()
		}
		l.dropHand(ln)
	}
	for i := range uint32(l.conns.Len()) {
		if c := l.awake(i); c != nil {
			l.closedAndCounted(c, err)
		}
	}
	for !l.finish() { // callers that wait for an answer are told
		l.takeMail()
		for a, ok := l.intake.taken.take(); ok; a, ok = l.intake.taken.take() {
			_ = a.sock.Close()
			l.refuse(a.conn, err)
		}
		l.runAll(&l.work.funcs)
	}
}

// stop begins the end of the loop; it runs until its last conn has closed. A later call may turn it
// into an abort, and else does nothing.
func (l *Loop) stop(abort error) {
	if l.stopping && abort == nil {
		return
	}
	l.stopping = true
	l.abortWith = abort
	for _, ln := range l.listeners {
		if !ln.closed.Swap(true) {
			ln.inner.Refuse()
			l.closeListener(ln)
		}
	}
	l.told = 0
	l.tellStopping()
}

// tellStopping tells those conns that do not know it yet.
func (l *Loop) tellStopping() {
	for l.stopping && l.told < l.conns.Len() {
		c := l.awake(uint32(l.told))
		l.told++
		switch {
		case c == nil:
		case c.is(connecting):
			c.dialing().race.lose(errShutDown)
		default:
			l.dismiss(c)
		}
	}
	l.told = math.MaxInt // later callers are told when they come
}

// dismiss ends a conn because its loop is stopping.
func (l *Loop) dismiss(c *Conn) {
	if l.abortWith != nil {
		c.Abort(l.abortWith)
		return
	}
	l.current.Store(c)
	l.callStopping(c)
	l.leave(c)
}

// closedAndCounted makes room for another conn, but not before the handler has heard of it: it
// never sees more than MaxConns.
func (l *Loop) closedAndCounted(c *Conn, err error) {
	defer l.engine.quota.give()
	l.ended(c, err)
}
