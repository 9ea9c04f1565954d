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

// A Handler is what a conn currently speaks. Calls run on the conn's loop, one at a time, never
// from inside a Conn method, and must not block. Opened, Received*, Closed exactly once; after
// Close or Abort only Closed follows. If a handler panics, or ends the goroutine (runtime.Goexit),
// its conn is aborted unless it was closed, and that is logged. All other conns of the loop go on.
type Handler interface {
	Opened(c *Conn)
	// Received hands over what has arrived. p is valid until return; cap(p) == len(p).
	Received(c *Conn, p []byte)
	// Closed is the last call. err is nil if both sides ended in order or the conn was closed by
	// Close; else it is Abort's argument, or what broke the connection. If the peer's stream was
	// truncated, err is that of Truncated, also after Close.
	Closed(c *Conn, err error)
}

// The optional interfaces of a Handler are looked up once per SetHandler.

// An Ender is called at the peer's FIN or close_notify; writing still works. Without it the conn is
// closed: what has been written is sent, and later writes fail. So a handler that answers from
// other goroutines, or from inline tasks, needs the method, and closes the conn behind its answers.
type Ender interface{ Ended(c *Conn) }

// A TruncatedEnder is called, in place of Ended, when the peer's FIN came without the end of the
// layer's stream: with TLS, without a close_notify. err says so: io.ErrUnexpectedEOF for TLS. Bytes
// at the end of the stream may be missing. So only a protocol whose messages show their own end may
// answer the complete ones; writing still works. Without the method the conn ends as by
// Wire.Fail(err): what is queued is sent, and Closed is called with err.
type TruncatedEnder interface{ Truncated(c *Conn, err error) }

// A Drainer is called once after each ErrFull, when the queue is below its low mark (half the
// limit) again.
type Drainer interface{ Drained(c *Conn) }

// A Timed handler is called when the conn's one timer fires. Without it the conn is aborted with
// os.ErrDeadlineExceeded.
type Timed interface{ Expired(c *Conn) }

// A Notified handler is called after Conn.Notify, which any goroutine may call: once for any number
// of calls before it.
type Notified interface{ Notified(c *Conn) }

// A Stopper is called when the engine shuts down. The handler ends its protocol and closes the
// conn, now or when its work is done. Without it the conn is closed. What is not closed when
// Shutdown's context ends is aborted.
type Stopper interface{ Stopping(c *Conn) }

// abilities are the optional interfaces a handler has, as bits in the conn.
type abilities uint8

const (
	canEnd abilities = 1 << iota
	canDrain
	canExpire
	canNotify
	canStop
	canTruncate
)

func abilitiesOf(h Handler) (a abilities) {
	if _, ok := h.(Ender); ok {
		a |= canEnd
	}
	if _, ok := h.(Drainer); ok {
		a |= canDrain
	}
	if _, ok := h.(Timed); ok {
		a |= canExpire
	}
	if _, ok := h.(Notified); ok {
		a |= canNotify
	}
	if _, ok := h.(Stopper); ok {
		a |= canStop
	}
	if _, ok := h.(TruncatedEnder); ok {
		a |= canTruncate
	}
	return a
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

// calling notes that a method of a value of type t is about to be called, and says when that began,
// or untimed.
func (l *Loop) calling(t reflect.Type) time.Duration {
	s := &l.stats
	if t != s.last {
		s.meet(t)
	}
	if s.until--; s.until > 0 {
		return untimed
	}
	return l.elapsed()
}

// called ends what calling began.
func (l *Loop) called(t reflect.Type, began time.Duration) {
	if began != untimed {
		l.stats.timed(t, l.elapsed()-began)
	}
}

// guard runs a user's function so that its panic, or its end by runtime.Goexit, costs no other
// connection.
func (l *Loop) guard(f func()) {
	t := reflect.TypeOf(f)
	began, returned := l.calling(t), false
	defer func() {
		v := recover()
		if l.called(t, began); returned {
			return
		}
		if v == nil {
			v = l.exit()
		}
		l.engine.cfg.Logger.Error("myriad: panic in a function given to the loop", "panic", v, "stack",
			string(debug.Stack()))
	}()
	f()
	returned = true
}

func (l *Loop) callOpened(c *Conn) {
	call := l.calls(c)
	defer l.returned(c, &call)
	c.handler.Opened(c)
	call.returned = true
}

func (l *Loop) callReceived(c *Conn, p []byte) {
	call := l.calls(c)
	defer l.returned(c, &call)
	c.handler.Received(c, p)
	call.returned = true
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

func (l *Loop) callTruncated(c *Conn, err error) {
	switch {
	case c.closeAsked(): // what is queued is still sent
	case c.can&canTruncate == 0:
		Wire{c, false}.Fail(err)
	default:
		call := l.calls(c)
		defer l.returned(c, &call)
		c.handler.(TruncatedEnder).Truncated(c, err)
		call.returned = true
	}
}

func (l *Loop) callDrained(c *Conn) {
	if c.can&canDrain != 0 {
		call := l.calls(c)
		defer l.returned(c, &call)
		c.handler.(Drainer).Drained(c)
		call.returned = true
	}
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

func (l *Loop) callNotified(c *Conn) {
	call := l.calls(c)
	defer l.returned(c, &call)
	c.handler.(Notified).Notified(c)
	call.returned = true
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

func (l *Loop) callClosed(c *Conn, err error) {
	call := l.calls(c)
	defer l.returned(c, &call)
	c.handler.Closed(c, err)
	call.returned = true
}

func (l *Loop) lastCall(c *Conn, err error) {
	l.callClosed(c, err)
	l.switchHandlers() // it may have changed what other conns speak
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

type handlerSwitch struct {
	c    *Conn
	h    Handler
	rest []byte
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
