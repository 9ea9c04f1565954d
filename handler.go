package myriad

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"sync/atomic"
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

// callbacks are how a loop calls handlers, and everything else that is user code. It is the one
// place that knows of panics and of runtime.Goexit there.
type callbacks struct {
	loop     *Loop
	current  atomic.Pointer[Conn] // whose callback runs: it is settled when the callback ends and need not be linked
	switches []handlerSwitch
}

// A call is one of a handler's methods while it runs.
type call struct {
	began    time.Duration // or untimed
	returned bool
}

// begin is for the call of one of c's handler's methods that comes next.
func (k *callbacks) begin(c *Conn) call {
	call := call{began: untimed}
	if k.loop.stats.calling(reflect.TypeOf(c.handler)) {
		call.began = k.loop.elapsed()
	}
	return call
}

// returned ends a call, and books its time if it was timed. A panic, or the end of the goroutine
// (runtime.Goexit), turns into the end of the conn. In the second case only the deferred calls
// above still run here, and Loop.run goes on elsewhere.
func (k *callbacks) returned(c *Conn, call *call) {
	v := recover()
	switch {
	case v != nil || !call.returned && !k.loop.owner.Exiting():
		k.failed(c, v)
	case call.returned:
	case !c.closeAsked(): // a call inside of this one is ending the goroutine: what was to come behind it is lost
		c.Abort(errUnwound)
		k.loop.settler.revisit(c)
	}
	if call.began != untimed {
		k.loop.stats.timed(reflect.TypeOf(c.handler), k.loop.elapsed()-call.began)
	}
}

var errUnwound = errors.New("myriad: another conn's handler ended the goroutine (runtime.Goexit) inside of a callback")

func (k *callbacks) failed(c *Conn, v any) {
	l := k.loop
	other := (*Conn)(nil)
	if v == nil {
		v = k.exit()
		// if it is not c: one of its callbacks has given c this handler, and has not come to its
		// end
		other = k.current.Load()
		l.settler.revisit(c)
	}
	err := fmt.Errorf("myriad: panic in %T: %v", c.handler, v)
	if other != nil && other != c {
		other.Abort(err)
		l.settler.revisit(other)
	}
	l.engine.cfg.Logger.Error("myriad: panic in a handler; its connection is ended",
		"handler", fmt.Sprintf("%T", c.handler), "remote", c.remote.String(), "panic", v, "stack",
		string(debug.Stack()))
	if !c.closeAsked() { // it has not ended the conn itself before
		c.Abort(err)
	}
}

// exit notes that a callback is ending the loop's goroutine, and says so.
func (k *callbacks) exit() string {
	k.loop.owner.Exit(k.resume)
	return "it ended its goroutine (runtime.Goexit)"
}

// resume goes on where the goroutine before was ended.
func (k *callbacks) resume() {
	l := k.loop
	l.slept = true
	l.readClock()
	l.due |= allWork &^ workTasks // what the goroutine before has left
	k.current.Store(nil)
	k.switchHandlers()
	if l.failure == nil {
		l.turn(unknownEvents)
	}
}

func (k *callbacks) opened(c *Conn) {
	call := k.begin(c)
	defer k.returned(c, &call)
	c.handler.Opened(c)
	call.returned = true
}

func (k *callbacks) received(c *Conn, p []byte) {
	call := k.begin(c)
	defer k.returned(c, &call)
	c.handler.Received(c, p)
	call.returned = true
}

func (k *callbacks) ended(c *Conn) {
	if err := c.truncation(); err != nil {
		k.truncated(c, err)
		return
	}
	if c.can&canEnd == 0 {
		_ = c.Close()
		return
	}
	if !c.closeAsked() {
		call := k.begin(c)
		defer k.returned(c, &call)
		c.handler.(Ender).Ended(c)
		call.returned = true
	}
}

func (k *callbacks) truncated(c *Conn, err error) {
	switch {
	case c.closeAsked(): // what is queued is still sent
	case c.can&canTruncate == 0:
		Wire{c, false}.Fail(err)
	default:
		call := k.begin(c)
		defer k.returned(c, &call)
		c.handler.(TruncatedEnder).Truncated(c, err)
		call.returned = true
	}
}

func (k *callbacks) drained(c *Conn) {
	if c.can&canDrain != 0 {
		call := k.begin(c)
		defer k.returned(c, &call)
		c.handler.(Drainer).Drained(c)
		call.returned = true
	}
}

func (k *callbacks) expired(c *Conn) {
	switch {
	case c.closeAsked(): // what is queued has the time that Close gives it
		return
	case c.can&canExpire == 0:
		c.Abort(os.ErrDeadlineExceeded)
		return
	}
	call := k.begin(c)
	defer k.returned(c, &call)
	c.handler.(Timed).Expired(c)
	call.returned = true
}

func (k *callbacks) notified(c *Conn) {
	call := k.begin(c)
	defer k.returned(c, &call)
	c.handler.(Notified).Notified(c)
	call.returned = true
}

func (k *callbacks) stopping(c *Conn) {
	switch {
	case c.closeAsked():
	case c.can&canStop == 0:
		_ = c.Close()
	default:
		call := k.begin(c)
		defer k.returned(c, &call)
		c.handler.(Stopper).Stopping(c)
		call.returned = true
	}
}

func (k *callbacks) closed(c *Conn, err error) {
	call := k.begin(c)
	defer k.returned(c, &call)
	c.handler.Closed(c, err)
	call.returned = true
}

func (k *callbacks) lastCall(c *Conn, err error) {
	k.closed(c, err)
	k.switchHandlers() // it may have changed what other conns speak
}

func (k *callbacks) wake(c *Conn, w Waker, last Handler) {
	l := k.loop
	c.handler, c.can = w, 0 // if Wake panics
	call := k.begin(c)
	defer k.returned(c, &call)
	h := w.Wake(c, last)
	l.engine.bind(h)
	c.handler, c.can = h, abilitiesOf(h)
	call.returned = true
}

func (k *callbacks) detached(c *Conn, nc net.Conn, unread []byte, err error) {
	x := c.cold.Load()
	done := x.detach
	x.detach = nil
	call := k.begin(c)
	defer k.returned(c, &call)
	done(nc, unread, err)
	call.returned = true
}

// function runs a user's function so that its panic, or its end by runtime.Goexit, costs no other
// connection.
func (k *callbacks) function(f func()) {
	t := reflect.TypeOf(f)
	began, returned := time.Duration(untimed), false
	if k.loop.stats.calling(t) {
		began = k.loop.elapsed()
	}
	defer func() {
		v := recover()
		if began != untimed {
			k.loop.stats.timed(t, k.loop.elapsed()-began)
		}
		if returned {
			return
		}
		if v == nil {
			v = k.exit()
		}
		k.loop.engine.cfg.Logger.Error("myriad: panic in a function given to the loop", "panic", v, "stack",
			string(debug.Stack()))
	}()
	f()
	returned = true
}

// runTask calls the task's Run.
func (k *callbacks) runTask(v connTask, h Handoff) {
	returned := false
	defer func() {
		if !returned {
			k.taskInterrupted(v, h, recover())
		}
	}()
	linger := k.loop.engine.has.Linger
	if linger != nil {
		linger()
	}
	v.t.Run(h)
	if linger != nil {
		linger()
	}
	returned = true
}

// taskInterrupted is for a task that has panicked with p, or, if p is nil, has called
// runtime.Goexit. After Goexit this goroutine ends when taskInterrupted returns; if it still had
// the loop, the loop continues as after every callback that has called Goexit.
func (k *callbacks) taskInterrupted(v connTask, h Handoff, p any) {
	l := k.loop
	switch {
	case p != nil:
		l.engine.cfg.Logger.Error("myriad: panic in an inline task; its connection is aborted",
			"task", fmt.Sprintf("%T", v.t), "remote", v.c.remote.String(), "panic", p, "stack", string(debug.Stack()))
		v.c.Abort(fmt.Errorf("myriad: panic in %T: %v", v.t, p))
	case h.token.End():
		l.owner.Exit(k.afterTaskExit)
	default:
		v.t.Returned(false)
	}
}

// afterTaskExit is how the next goroutine of a loop begins after a task has ended the one before.
func (k *callbacks) afterTaskExit() {
	l := k.loop
	v := l.tasks.running
	k.taskReturned(v)
	k.done(v.c)
}

func (k *callbacks) taskReturned(v connTask) {
	call := call{began: untimed}
	defer k.returned(v.c, &call)
	v.t.Returned(true)
	call.returned = true
}

func (k *callbacks) taskOvertaken(v connTask, overstayed bool) {
	call := call{began: untimed}
	defer k.returned(v.c, &call)
	v.t.Overtaken(overstayed)
	call.returned = true
}

func (k *callbacks) decode(c *Conn, p []byte) {
	call := call{began: untimed} // the handler's part in it is timed
	defer k.returned(c, &call)
	c.layer().Received(Wire{c, false}, p)
	call.returned = true
}

// layerEnded is the peer's FIN for a layer that judges it by itself.
func (k *callbacks) layerEnded(c *Conn, x *cold) {
	call := call{began: untimed}
	defer k.returned(c, &call)
	x.buffered.Ended(Wire{c, false})
	call.returned = true
}

// meaning is what the layer makes of an end, or that end itself if it panics.
func (k *callbacks) meaning(c *Conn, end error) (err error) {
	call := call{began: untimed}
	defer k.returned(c, &call)
	err = end
	err = c.layer().Closed(end)
	call.returned = true
	return err
}

// layerGone has a layer that wants to know it drop what it holds.
func (k *callbacks) layerGone(c *Conn) {
	l, ok := c.layer().(interface{ Gone() })
	if !ok {
		return
	}
	call := call{began: untimed}
	defer k.returned(c, &call)
	l.Gone()
	call.returned = true
}

// peel asks the layer for its view. raw is closed if it panics, or ends the goroutine: then
// cold.reason says so.
func (k *callbacks) peel(c *Conn, layer Layer, raw net.Conn, unread []byte) (nc net.Conn, rest []byte, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		if v == nil {
			v = k.exit()
		}
		raw.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		nc, rest, err = nil, nil, c.cold.Load().layerFailed(c, v)
		c.cold.Load().reason = err
	}()
	nc, rest = layer.Detach(raw, unread)
	returned = true
	return nc, rest, nil
}

// encode calls one of the layer's methods that run under the conn's lock. If it panics the conn is
// aborted, with what encode returns; if it ends its goroutine the lock is released here, because no
// caller will do it.
func (x *cold) encode(c *Conn, f func(w Wire) error) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		err = x.layerFailed(c, v)
		if v == nil {
			c.mu.Unlock()
		}
	}()
	err = f(Wire{c, true})
	returned = true
	return err
}

// layerFailed aborts the conn, as Abort does. mu is held.
func (x *cold) layerFailed(c *Conn, v any) error {
	err := fmt.Errorf("myriad: panic in %T: %v", x.layer, v)
	c.loop.engine.cfg.Logger.Error("myriad: panic in a layer; its connection is ended",
		"layer", fmt.Sprintf("%T", x.layer), "remote", c.remote.String(), "panic", v, "stack", string(debug.Stack()))
	if c.asked&(wantAbort|gone) == 0 {
		c.asked |= wantAbort
		if x.reason == nil {
			x.reason = err
		}
		if c.loop.settler.link(c) {
			c.loop.post(workDirty)
		}
	}
	return err
}

// encodeOnLoop is encode where no callback notices that the goroutine ends.
func (x *cold) encodeOnLoop(c *Conn, f func(w Wire) error) error {
	returned := false
	defer func() {
		if !returned {
			c.loop.calls.exit()
			c.loop.settler.revisit(c)
		}
	}()
	err := x.encode(c, f)
	returned = true
	return err
}

// done ends a callback: its conn is settled.
func (k *callbacks) done(c *Conn) {
	k.switchHandlers()
	if k.loop.due&workTasks != 0 && k.loop.tasks.hasNext(c) {
		return // it is settled when its task has returned, and may stay current until then
	}
	k.current.Store(nil)
	k.loop.settler.settle(c)
}

type handlerSwitch struct {
	c    *Conn
	h    Handler
	rest []byte
}

// switchHandlers carries out the SetHandler calls of the callback that has just ended, and of those
// it leads to, in order.
func (k *callbacks) switchHandlers() {
	for len(k.switches) > 0 {
		s := k.switches[0]
		n := copy(k.switches, k.switches[1:])
		k.switches[n] = handlerSwitch{}
		k.switches = k.switches[:n]
		k.switchHandler(s)
	}
}

func (k *callbacks) switchHandler(s handlerSwitch) {
	c := s.c
	if c.state() >= draining || c.closeAsked() {
		return
	}
	c.handler, c.can = s.h, abilitiesOf(s.h)
	bare := c.layer() == nil
	k.opened(c)
	rest := s.rest[:len(s.rest):len(s.rest)]
	if x := c.cold.Load(); !bare || x == nil || !x.decodeRest(c, rest) {
		k.inform(c, rest)
	}
	if k.current.Load() != c {
		k.loop.settler.revisit(c) // its callbacks ran outside of its turn
	}
}

// inform calls a new handler for what came before it: bytes, the peer's FIN, the end of the engine.
func (k *callbacks) inform(c *Conn, rest []byte) {
	if len(rest) > 0 && !c.closeAsked() {
		k.deliverRest(c, rest)
	}
	if c.is(peerEnded) && !k.switching(c) {
		k.loop.settler.inputEnded(c) // only its predecessor was called
	}
	if k.loop.stopping && !k.switching(c) {
		k.stopping(c) // the same
	}
}

// switching reports whether c is to have another handler.
func (k *callbacks) switching(c *Conn) bool {
	return slices.ContainsFunc(k.switches, func(s handlerSwitch) bool { return s.c == c })
}

// deliverRest hands over what a former handler left: before all that is held, because it came
// earlier. If Opened has already named a successor, that one gets it behind its own rest.
func (k *callbacks) deliverRest(c *Conn, p []byte) {
	for i := range k.switches {
		if s := &k.switches[i]; s.c == c {
			s.rest = append(s.rest[:len(s.rest):len(s.rest)], p...)
			return
		}
	}
	if !c.is(paused) && c.state() != detaching {
		k.received(c, p)
		return
	}
	x := c.ownCold()
	var later buf.Chain
	x.held.Move(&later)
	x.held.Append(p)
	later.Move(&x.held)
}
