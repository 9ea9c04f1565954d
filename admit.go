package myriad

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file brings connections into their loops: those that listeners accept, and adopted ones.

// maxIntake bounds the conns that wait to be attached to one loop; the accepting loop keeps what is
// above it.
const maxIntake = 1024

// keptIntake is for how many of them a loop keeps room between two turns, so that new connections
// leave no garbage.
const keptIntake = 128

// An arrival is a connection on its way into a loop.
type arrival struct {
	sock     driver.Socket
	listener *Listener // nil: adopted
	conn     *Conn     // nil: accepted
	unread   []byte
	lifted   bool // the conn has its layer already, and unread is what the layer has decoded
}

// An intake is where connections come into a loop. Other goroutines put them there.
type intake struct {
	coming   []arrival // guarded by mailbox.mu; at most maxIntake
	promised int       // guarded by mailbox.mu: room that Adopt has been promised
	taken    batch[arrival]
}

// An anteroom is where goroutines wait until a loop has made room in its intake, or has ended.
type anteroom struct {
	n    atomic.Int32 // len(list), for a look without the lock
	mu   sync.Mutex
	list []driver.Parker
}

func (r *anteroom) enter(p driver.Parker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, p)
	r.n.Store(int32(len(r.list)))
}

// call wakes all that wait: each looks itself whether there is room. Any goroutine.
func (r *anteroom) call() {
	if r.n.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.list {
		p.Unpark()
	}
	r.list = nil
	r.n.Store(0)
}

// takeUp has the loop own what has come. The mailbox's mu is held.
func (in *intake) takeUp() {
	if cap(in.taken.list) > keptIntake {
		in.taken.list = nil
	}
	in.taken.refill(&in.coming)
}

// empty reports whether nothing is on its way in. The mailbox's mu is held.
func (in *intake) empty() bool { return len(in.coming) == 0 && in.taken.empty() }

// place gives an accepted connection to the next loop in turn.
func (e *Engine) place(from *Loop, a arrival) {
	to := e.nextLoop()
	if to == from || !to.take(a, false) {
		from.admit(&a)
	}
}

// take puts a into the loop's intake, or reports that it is full or closed. Promised room is used
// if the caller has it.
func (l *Loop) take(a arrival, promised bool) bool {
	l.mail.mu.Lock()
	if promised {
		l.intake.promised--
	}
	ok := !l.mail.closed && len(l.intake.coming)+l.intake.promised < maxIntake
	if ok {
		l.intake.coming = append(l.intake.coming, a)
	}
	l.mail.mu.Unlock()
	l.wakeIf(ok)
	return ok
}

// promise keeps room in the loop's intake for one take.
func (l *Loop) promise() error {
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	switch {
	case l.mail.closed:
		return ErrClosed
	case len(l.intake.coming)+l.intake.promised >= maxIntake:
		return ErrBusy
	}
	l.intake.promised++
	return nil
}

// unpromise gives back what promise has kept.
func (l *Loop) unpromise() {
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	l.intake.promised--
}

// loopWithRoom returns the next loop in the round, or the first one after it that has room. It
// fails with ErrBusy if none does, and with errShutDown if all have ended.
func (e *Engine) loopWithRoom() (*Loop, error) {
	failure := errShutDown
	first := e.turn.Add(1)
	for i := range uint32(len(e.loops)) {
		l := e.loops[(first+i)%uint32(len(e.loops))]
		err := l.promise()
		if err == nil {
			return l, nil
		}
		if err == ErrBusy {
			failure = err
		}
	}
	return nil, failure
}

// admitAll attaches what the loop has taken up, which has made room for others.
func (l *Loop) admitAll() {
	l.engine.anteroom.call()
	for a, ok := l.intake.taken.take(); ok; a, ok = l.intake.taken.take() {
		l.admit(&a)
	}
}

// admit attaches a connection and opens its handler. On the loop.
func (l *Loop) admit(a *arrival) {
	c := a.conn
	if c == nil {
		c = newConn(l, a.listener.handler)
		c.remote = a.sock.Remote()
		c.local = l.localOf(a)
	}
	id, err := l.drv.Attach(a.sock)
	if err != nil {
		if a.conn == nil {
			l.engine.logAcceptFailure(l, err)
		}
		l.refuse(a.conn, err)
		return
	}
	l.enter(c, id)
	l.current.Store(c)
	l.callOpened(c)
	l.switchHandlers()
	if len(a.unread) > 0 && !c.closeAsked() {
		l.deliverUnread(c, a)
	}
	if a.lifted && !c.closeAsked() {
		l.decode(c, nil)
		l.switchHandlers()
	}
	l.leave(c)
	if l.stopping {
		l.dismiss(c)
	}
}

// deliverUnread gives bytes that were read before the engine had the connection the way that others
// take.
func (l *Loop) deliverUnread(c *Conn, a *arrival) {
	p := a.unread[:len(a.unread):len(a.unread)]
	if c.layer() != nil && !a.lifted {
		l.decode(c, p)
		l.switchHandlers()
		return
	}
	l.deliver(c, p)
}

func (l *Loop) localOf(a *arrival) net.Addr {
	if a.listener.shared != nil {
		return a.listener.shared
	}
	return l.sharedAddr(a.sock.Local())
}
