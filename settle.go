package myriad

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"github.com/myriad-go/myriad/buf"
)

// This file is what a loop does with a conn: calls its handler, then settles what the handler and
// other goroutines have asked of it. All of it runs on the loop.

// deliver hands decoded bytes to the handler, or keeps them while it does not want any. The conn is
// current.
func (l *Loop) deliver(c *Conn, p []byte) {
	switch x := c.extra.Load(); {
	case c.phase() != open:
	case c.is(paused) || x != nil && (x.held.Len() > 0 || c.detaching()):
		c.ownExtra().held.Append(p)
	case c.closeAsked(): // by another conn's handler in this batch, or by the one before under a layer
	default:
		l.callReceived(c, p)
		l.switchHandlers()
	}
}

// closeAsked reports whether Closed is the only callback that may still be called.
func (c *Conn) closeAsked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked&(wantClose|wantAbort|gone) != 0
}

func (l *Loop) callReceived(c *Conn, p []byte) {
	call := l.calls(c)
	defer l.returned(c, &call)
	c.handler.Received(c, p)
	call.returned = true
}

func (l *Loop) callOpened(c *Conn) {
	call := l.calls(c)
	defer l.returned(c, &call)
	c.handler.Opened(c)
	call.returned = true
}

func (l *Loop) callExpired(c *Conn) {
	switch {
	case c.closeAsked(): // what is queued has the time that Close gives it
		return
	case c.can&canExpire == 0:
		c.Abort(os.ErrDeadlineExceeded)
		return
	}
	call := l.calls(c)
	defer l.returned(c, &call)
	c.handler.(Timed).Expired(c)
	call.returned = true
}

func (l *Loop) callDrained(c *Conn) {
	if c.can&canDrain != 0 {
		call := l.calls(c)
		defer l.returned(c, &call)
		c.handler.(Drainer).Drained(c)
		call.returned = true
	}
}

func (l *Loop) callStopping(c *Conn) {
	switch {
	case c.closeAsked():
	case c.can&canStop == 0:
		_ = c.Close()
	default:
		call := l.calls(c)
		defer l.returned(c, &call)
		c.handler.(Stopper).Stopping(c)
		call.returned = true
	}
}

func (l *Loop) callNotified(c *Conn) {
	call := l.calls(c)
	defer l.returned(c, &call)
	c.handler.(Notified).Notified(c)
	call.returned = true
}

// A call is one of a handler's methods while it runs.
type call struct {
	began    time.Duration // or untimed
	returned bool
}

func (l *Loop) calls(c *Conn) call { return call{began: l.calling(reflect.TypeOf(c.handler))} }

// returned ends a call, and books its time if it was timed. A panic, or the end of the goroutine
// (runtime.Goexit), turns into the end of the conn. In the second case only the deferred calls
// above still run here, and Loop.run goes on elsewhere.
func (l *Loop) returned(c *Conn, call *call) {
	v := recover()
	switch {
	case v != nil || !call.returned && !l.unwinding():
		l.failed(c, v)
	case call.returned:
	case !c.closeAsked(): // a call inside of this one is ending the goroutine: what was to come behind it is lost
		c.Abort(errUnwound)
		l.revisit(c)
	}
	l.called(reflect.TypeOf(c.handler), call.began)
}

var errUnwound = errors.New("myriad: another conn's handler ended the goroutine (runtime.Goexit) inside of a callback")

func (l *Loop) failed(c *Conn, v any) {
	other := (*Conn)(nil)
	if v == nil {
		v = l.exit()
		// if it is not c: one of its callbacks has given c this handler, and has not come to its
		// end
		other = l.current.Load()
		l.revisit(c)
	}
	err := fmt.Errorf("myriad: panic in %T: %v", c.handler, v)
	if other != nil && other != c {
		other.Abort(err)
		l.revisit(other)
	}
	l.engine.cfg.Logger.Error("myriad: panic in a handler; its connection is ended",
		"handler", fmt.Sprintf("%T", c.handler), "remote", c.remote.String(), "panic", v, "stack",
		string(debug.Stack()))
	if !c.closeAsked() { // it has not ended the conn itself before
		c.Abort(err)
	}
}

// leave ends a callback.
func (l *Loop) leave(c *Conn) {
	l.switchHandlers()
	if l.hasNextTask(c) {
		return // it is settled when its task has returned, and may stay current until then
	}
	l.current.Store(nil)
	l.settle(c)
}

// switchHandlers carries out the SetHandler calls of the callback that has just ended, and of those
// it leads to, in order.
func (l *Loop) switchHandlers() {
	for len(l.switches) > 0 {
		s := l.switches[0]
		n := copy(l.switches, l.switches[1:])
		l.switches[n] = handlerSwitch{}
		l.switches = l.switches[:n]
		l.switchHandler(s)
	}
}

func (l *Loop) switchHandler(s handlerSwitch) {
	c := s.c
	if c.phase() != open || c.closeAsked() {
		return
	}
	c.handler, c.can = s.h, abilitiesOf(s.h)
	bare := c.layer() == nil
	l.callOpened(c)
	rest := s.rest[:len(s.rest):len(s.rest)]
	if !bare || !l.decodeRest(c, rest) {
		l.inform(c, rest)
	}
	if l.current.Load() != c {
		l.revisit(c) // its callbacks ran outside of its turn
	}
}

// inform calls a new handler for what came before it: bytes, the peer's FIN, the end of the engine.
func (l *Loop) inform(c *Conn, rest []byte) {
	if len(rest) > 0 && !c.closeAsked() {
		l.deliverRest(c, rest)
	}
	if c.is(peerEnded) && !l.switching(c) {
		l.inputEnded(c) // only its predecessor was called
	}
	if l.stopping && !l.switching(c) {
		l.callStopping(c) // the same
	}
}

// switching reports whether c is to have another handler.
func (l *Loop) switching(c *Conn) bool {
	return slices.ContainsFunc(l.switches, func(s handlerSwitch) bool { return s.c == c })
}

// deliverRest hands over what a former handler left: before all that is held, because it came
// earlier. If Opened has already named a successor, that one gets it behind its own rest.
func (l *Loop) deliverRest(c *Conn, p []byte) {
	for i := range l.switches {
		if s := &l.switches[i]; s.c == c {
			s.rest = append(s.rest[:len(s.rest):len(s.rest)], p...)
			return
		}
	}
	if !c.is(paused) && !c.detaching() {
		l.callReceived(c, p)
		return
	}
	x := c.ownExtra()
	var later buf.Chain
	x.held.Move(&later)
	x.held.Append(p)
	later.Move(&x.held)
}

// peerEnded notes the peer's FIN, or the layer's end, and calls the handler once it has had all
// bytes.
func (l *Loop) peerEnded(c *Conn) {
	if c.is(peerEnded) {
		return
	}
	c.status |= peerEnded
	l.inputEnded(c)
}

// inputEnded calls the handler for the peer's FIN, unless it has yet to get bytes that came before.
func (l *Loop) inputEnded(c *Conn) {
	switch x := c.extra.Load(); {
	case c.phase() != open:
	case c.is(paused) || x != nil && (x.held.Len() > 0 || x.endHeld || c.detaching()):
		c.ownExtra().endHeld = true
	default:
		l.callEnded(c)
	}
}

func (l *Loop) callEnded(c *Conn) {
	if err := c.truncation(); err != nil {
		l.callTruncated(c, err)
		return
	}
	if c.can&canEnd == 0 {
		_ = c.Close()
		return
	}
	if !c.closeAsked() {
		call := l.calls(c)
		defer l.returned(c, &call)
		c.handler.(Ender).Ended(c)
		call.returned = true
	}
}

// settle brings a conn to rest: what is queued goes to the driver, and what was asked of it is
// done. A handler that asks for more from within its callbacks is served in the next turn, so that
// no conn can hold the loop.
func (l *Loop) settle(c *Conn) {
	if c.id == 0 || c.phase() == closed || c.is(connecting) {
		return // not attached yet, or past everything
	}
	asked := l.flush(c)
	if asked&(wantNotify|wantRoom) != 0 || c.hasHeld() {
		l.serve(c, asked)
	}
	c.trim()
}

// serve makes the pending calls. The last flush comes after the conn has ceased to be current: what
// another goroutine has queued without linking the conn, because it was current, must not be left
// behind.
func (l *Loop) serve(c *Conn, asked request) {
	l.current.Store(c)
	if c.hasHeld() {
		l.serveHeld(c)
		l.switchHandlers()
	}
	if asked&wantNotify != 0 && c.can&canNotify != 0 && !c.closeAsked() {
		l.callNotified(c)
		l.switchHandlers()
	}
	if asked&wantRoom != 0 && l.hasRoom(c) {
		l.callDrained(c)
	}
	l.switchHandlers()
	l.current.Store(nil)
	again := l.flush(c)
	if again&wantNotify != 0 {
		l.renew(c, wantNotify)
	}
	if again&wantRoom != 0 && c.roomy() {
		l.revisit(c)
	}
}

// renew puts back a request that must wait for the next turn.
func (l *Loop) renew(c *Conn, r request) {
	c.mu.Lock()
	c.asked |= r
	c.mu.Unlock()
	l.revisit(c)
}

// hasRoom takes back the debt of a Drained call if it can be paid now.
func (l *Loop) hasRoom(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.roomyLocked() {
		return false
	}
	c.asked &^= wantRoom | wantEmpty
	return true
}

func (c *Conn) roomy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roomyLocked()
}

// roomyLocked reports whether what was refused has a chance now; of a conn that is being closed
// nothing has. mu is held.
func (c *Conn) roomyLocked() bool {
	if c.asked&(wantClose|wantAbort|gone) != 0 {
		return false
	}
	if c.filesFull() {
		return false
	}
	mark := int64(c.limit) / 2
	if c.asked&wantEmpty != 0 {
		mark = 0
	}
	return c.queued.Load() <= mark
}

// hasHeld reports whether there is something to deliver that was held back.
func (c *Conn) hasHeld() bool {
	x := c.extra.Load()
	return x != nil && (x.held.Len() > 0 || x.endHeld) && !c.detaching() && !c.is(paused) && c.phase() == open
}

// serveHeld delivers what came while the conn was paused, and then lets the driver go on.
func (l *Loop) serveHeld(c *Conn) {
	x := c.extra.Load()
	var pending buf.Chain
	defer pending.Release()
	x.held.Move(&pending)
	for pending.Len() > 0 && x.held.Len() == 0 && !c.detaching() && !c.is(paused) && !c.closeAsked() {
		p := pending.First()
		l.callReceived(c, p[:len(p):len(p)])
		l.switchHandlers()
		pending.Discard(len(p))
	}
	pending.Move(&x.held) // behind what a handler switch has put back
	switch {
	case x.held.Len() > 0 || c.detaching() || c.is(paused):
	case x.endHeld:
		x.endHeld = false
		l.callEnded(c)
	default:
		l.drv.Resume(c.id)
	}
}
