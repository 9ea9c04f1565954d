package tlsloop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/myriad-go/myriad"
)

// maxAhead is how many bytes may wait for a handshake to take them; above it the conn is paused. A
// read that was under way may add one read buffer.
const maxAhead = 32 << 10

// A handshake is the handler of a conn while crypto/tls negotiates. It has a coroutine that runs
// tls.Conn.Handshake and yields where that waits for bytes. The loop feeds it, the steppers step
// it.
type handshake struct {
	s        *session
	steppers *steppers
	conn     *myriad.Conn
	wire     myriad.Wire
	pick     func(tls.ConnectionState) myriad.Handler
	heir     myriad.Handler // opened and closed with the reason of a failure; nil: the log alone has it
	told     bool           // its end has been reported; owned by the loop
	closed   bool           // Options.Closed was called; owned by the loop
	began    bool           // the peer has sent something; owned by the loop
	spared   bool           // it has its time once more; owned by the loop

	mu    sync.Mutex
	state state
	in    []byte // guarded by mu
	off   int    // of it has been read
	pause bool   // the conn is paused because of maxAhead; changed by the loop
	fin   bool   // the peer's FIN has come
	dead  bool   // the conn has gone: the end is not reported
	begun bool   // the coroutine has
	calls bool   // the step is a callback that may block: nothing waits for it
	lost  error  // why the conn has broken while a step was under way, which then has bury called

	// Owned by the goroutine that steps it.
	next  func() (struct{}, bool)
	yield func(struct{}) bool
	call  func()        // a callback of the Config that is to run elsewhere
	slow  bool          // its steps may block
	out   []byte        // what this step has written
	err   error         // how it ended
	took  time.Duration // steps that do not block, together

	secrets *secrets // for records, if they may take over

	link // in one of the steppers' lists
}

// state says which side acts next.
type state uint8

const (
	collecting state = iota // the peer: the first record is not complete, and nothing has begun
	active                  // the steppers
	stalled                 // the peer: a step has ended for want of bytes
	over
)

func newHandshake(s *session, o *opener) *handshake {
	h := &handshake{s: s, pick: o.pick, slow: s.kind.slow}
	if !o.quiet {
		h.heir = o.heir
	}
	return h
}

// Opened begins, or waits for the peer to begin.
func (h *handshake) Opened(c *myriad.Conn) {
	h.conn, h.wire, h.steppers = c, c.WireFor(h.s), steppersOf(c.Loop().Engine())
	c.SetTimer(h.s.kind.timeout())
	if h.s.kind.client {
		h.state = active
		h.steppers.begin(h)
	}
}

// Received is never called: nothing is delivered before the handshake has ended.
func (h *handshake) Received(*myriad.Conn, []byte) {}

// feed takes bytes from the wire. On the loop.
func (h *handshake) feed(p []byte) {
	h.began = true
	h.mu.Lock()
	if h.state != over || h.err == nil {
		h.in = append(h.in, p...)
	}
	begin := h.state == collecting && firstComplete(h.in)
	wake := h.state == stalled
	if begin || wake {
		h.state = active
	}
	full := len(h.in)-h.off > maxAhead && !h.pause
	h.pause = h.pause || full
	h.mu.Unlock()
	if full {
		h.conn.Pause()
	}
	switch {
	case begin:
		h.steppers.begin(h)
	case wake:
		h.steppers.push(h)
	}
}

// finish is the peer's FIN. What has come before it may still be enough.
func (h *handshake) finish() {
	h.mu.Lock()
	h.fin = true
	was := h.state
	if was == stalled {
		h.state = active
	}
	begun := len(h.in) > 0
	h.mu.Unlock()
	switch {
	case was == stalled:
		h.steppers.push(h)
	case was == collecting && begun:
		h.fail(io.ErrUnexpectedEOF)
	case was == collecting:
		h.fail(io.EOF)
	}
}

// kill ends the handshake without a report. Its secrets are erased now, or by end if a step is
// under way.
func (h *handshake) kill() {
	h.mu.Lock()
	h.dead = true
	was := h.state
	switch was {
	case collecting:
		h.state = over
	case stalled:
		h.state = active
	case over:
		h.secrets.erase()
	}
	h.mu.Unlock()
	switch {
	case was == stalled:
		h.steppers.push(h)
	case was == active && h.steppers.forget(h):
		h.mu.Lock()
		h.state = over
		h.mu.Unlock()
	}
}

// step goes on with the handshake until it needs bytes, asks for a callback, or ends.
func (h *handshake) step() {
	if f := h.call; f != nil {
		h.call = nil
		defer h.steppers.push(h) // also if it ends its goroutine
		f()
		return
	}
	began := h.steppers.sys.Now()
	more := h.resume()
	h.flush()
	if !h.slow {
		h.took += h.steppers.sys.Now().Sub(began)
	}
	switch {
	case !more:
		h.end()
	case h.call != nil:
		h.steppers.push(h)
	case h.waits():
	default:
		h.steppers.push(h)
	}
}

// errExit stands for the panic value of a callback that ended its goroutine.
var errExit = errors.New("it ended its goroutine (runtime.Goexit)")

// resume runs the coroutine. A panic of a callback ends its handshake and nothing else. So does a
// callback that ends its goroutine.
func (h *handshake) resume() (more bool) {
	returned := false
	defer func() {
		v := recover()
		if returned {
			return
		}
		exited := v == nil
		if exited {
			v = errExit
		}
		h.conn.Loop().Engine().Logger().Error("tlsloop: panic in a handshake", "panic", v, "stack",
			string(debug.Stack()))
		h.err = fmt.Errorf("tlsloop: panic in a handshake: %v", v)
		if exited {
			h.end()
		}
	}()
	more = h.goAhead()
	returned = true
	return more
}

// goAhead has the coroutine go on, or begin.
func (h *handshake) goAhead() (more bool) {
	if h.next == nil {
		if h.err = h.gone(); h.err != nil {
			return false
		}
		h.next, _ = iter.Pull(h.run) // it is always resumed to its end
	}
	_, more = h.next()
	return more
}

// gone fails if the conn has gone. Otherwise the coroutine begins.
func (h *handshake) gone() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return myriad.ErrClosed
	}
	h.begun = true
	return nil
}

// run is the coroutine.
func (h *handshake) run(yield func(struct{}) bool) {
	h.yield = yield
	h.err = h.s.tls.HandshakeContext(context.WithValue(context.Background(), handshakeKey{}, h))
}

// handshakeKey is where a callback's context has the handshake that it is called for.
type handshakeKey struct{}

// elsewhere runs a callback that may block on a goroutine for such callbacks.
func elsewhere(ctx context.Context, f func()) {
	h, _ := ctx.Value(handshakeKey{}).(*handshake)
	if h == nil || h.slow { // a conn of NewListener in net/http, or a goroutine that may block
		f()
		return
	}
	var panicked any = errExit
	h.call = func() {
		defer func() {
			if v := recover(); v != nil {
				panicked = v
			}
		}()
		f()
		panicked = nil
	}
	h.yield(struct{}{})
	if panicked != nil {
		panic(panicked)
	}
}

// read is the coroutine's way to bytes. Here it must really wait: a temporary error would be the
// end of the handshake.
func (h *handshake) read(b []byte) (int, error) {
	for {
		h.mu.Lock()
		n := h.s.frame.give(b, h.in[h.off:])
		if h.off += n; h.off == len(h.in) {
			h.in, h.off = h.in[:0], 0
		}
		fin, dead, lost := h.fin, h.dead, h.lost
		h.mu.Unlock()
		switch {
		case dead:
			return 0, myriad.ErrClosed
		case n > 0:
			return n, nil
		case lost != nil:
			return 0, lost
		case fin:
			return 0, io.EOF
		}
		h.yield(struct{}{})
	}
}

// waits reports whether the step has used all input. feed then continues, and a paused conn is
// resumed.
func (h *handshake) waits() bool {
	h.mu.Lock()
	more, paused := len(h.in) > h.off || h.fin || h.dead || h.lost != nil, h.pause
	if !more {
		h.state = stalled
	}
	h.mu.Unlock()
	if !more && paused {
		h.conn.Notify()
	}
	return !more
}

// goOn reads again once what has come is used.
func (h *handshake) goOn(c *myriad.Conn) {
	h.mu.Lock()
	resume := h.pause && len(h.in)-h.off <= maxAhead
	h.pause = h.pause && !resume
	h.mu.Unlock()
	if resume {
		c.Resume()
	}
}

// flush queues what the step has written. After a failure on the loop the write is refused, which
// does no harm.
func (h *handshake) flush() {
	if len(h.out) > 0 {
		_, _ = h.wire.Write(h.out)
		h.out = nil
	}
}

// end hands the session over to the loop. From now on writes are encoded.
func (h *handshake) end() {
	h.next, h.yield = nil, nil
	buffers.takeBack(h.s.tls)
	h.mu.Lock()
	h.state = over
	lost := h.lost
	if h.err != nil || h.dead || lost != nil {
		h.secrets.erase()
	}
	leaves := h.secrets.complete()
	h.mu.Unlock()
	h.steppers.leave()
	if lost != nil {
		h.steppers.onLoop(h.conn.Loop(), func() {
			h.conn.Charge(h.took)
			h.bury(lost)
		})
		return
	}
	h.wire.Sync(func(myriad.Wire) {
		h.s.open = true
		switch {
		case h.s.phase != handshaking:
		case h.err != nil:
			h.s.phase = broken
		case leaves: // passOn decides what seals from now on
		default:
			h.s.phase = established
		}
	})
	h.conn.Notify()
}

// Notified is called on the loop when the handshake has ended, or when there is room again.
func (h *handshake) Notified(c *myriad.Conn) {
	h.mu.Lock()
	ended := h.state == over
	h.mu.Unlock()
	switch {
	case !ended:
		h.goOn(c)
		return
	case h.told:
	case h.err != nil:
		h.fail(h.err)
	default:
		h.succeed(c)
	}
	c.Charge(h.took)
	h.took = 0
}

// succeed gives the conn to the handler that is to speak on it, and then the bytes that came behind
// the handshake.
func (h *handshake) succeed(c *myriad.Conn) {
	s := h.s
	state := s.tls.ConnectionState()
	heir := h.pick(state)
	h.told = true
	if h.secrets.complete() {
		h.passOn(heir, &state)
	}
	h.secrets.erase()
	if heir == nil {
		_ = c.Close()
		return
	}
	c.SetTimer(0)
	if h.pause {
		c.Resume()
	}
	// Nothing else refers to the handshake any more: its memory ends here.
	w, rest, fin := h.wire, h.in[h.off:], h.fin
	s.hs = nil
	c.SetHandler(heir, nil)
	if len(rest) == 0 && !fin {
		return
	}
	s.in = rest
	c.Loop().Later(func() {
		s.catchUp(w)
		if fin {
			s.Ended(w)
		}
	})
}

// passOn has records of ours go on in place of the tls.Conn, if they can, and lets the session
// write.
func (h *handshake) passOn(heir myriad.Handler, state *tls.ConnectionState) {
	s := h.s
	_, leaves := heir.(Leaver)
	var rec *records
	if s.frame.next() == headerLen && !leaves && heir != nil {
		rec = h.secrets.records(state, s.kind.config.DynamicRecordSizingDisabled)
	}
	h.wire.Sync(func(myriad.Wire) {
		if rec != nil {
			s.rec, s.tls, s.state = rec, nil, state
		}
		if s.phase == handshaking {
			s.phase = established
		}
	})
}

// fail ends the conn after the alert, or NotTLS's answer, has been sent. A client that waits for
// the handshake learns of it now: the peer may take its time to read that.
func (h *handshake) fail(err error) {
	if h.told {
		return
	}
	h.told = true
	h.s.kind.report(h.conn, err, h.began)
	h.kill()
	if h.s.kind.client {
		h.tellClosed(err)
	}
	h.wire.Sync(func(w myriad.Wire) {
		h.s.phase = broken
		if answer := h.s.kind.answer(err); len(answer) > 0 {
			_, _ = w.Write(answer)
		}
	})
	h.wire.Fail(err)
}

// Expired ends a handshake that takes too long. One that waits for the steppers is not the peer's
// fault: it has its time once more. A client has nothing to say then that the peer would have to
// read.
func (h *handshake) Expired(c *myriad.Conn) {
	if !h.spared && h.steppers.keepWaiting(h) {
		h.spared = true
		c.SetTimer(h.s.kind.timeout())
		return
	}
	err := fmt.Errorf("tlsloop: no end of the handshake in time, of which it had %v: %w", h.s.kind.timeout(),
		os.ErrDeadlineExceeded)
	h.fail(err)
	if h.s.kind.client {
		c.Abort(err)
	}
}

// Closed is the end of a conn whose handshake has not succeeded.
func (h *handshake) Closed(_ *myriad.Conn, err error) {
	if !h.outlives(err) {
		h.kill()
		h.bury(err)
	}
}

// outlives reports whether a step is under way that may still find the reason. The peer may have
// sent an alert before it broke the conn with err, and the step reads that. Then end calls bury.
func (h *handshake) outlives(err error) bool {
	if h.told || !byReset(err) || h.steppers.forget(h) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != active || h.calls || !h.begun { // a conn that goes before that costs no signature
		return false
	}
	h.lost = err
	return true
}

// bury reports the end of a conn that has closed with err, or the alert that the peer sent before
// it broke the conn.
func (h *handshake) bury(err error) {
	if alert := h.alert(); alert != nil && byReset(err) {
		err = alert
	}
	if !h.told {
		h.s.kind.reportEnd(h.conn, err, h.began)
	}
	h.tellClosed(err)
	h.s.kind.bury(h.conn, err, h.heir)
}

// alert is what the steps have failed with, if that says more than how the conn has ended.
func (h *handshake) alert() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != over || byReset(h.err) || errors.Is(h.err, myriad.ErrClosed) {
		return nil
	}
	return h.err
}

// byReset reports whether err is of the system, as that of a reset is.
func byReset(err error) bool {
	var number syscall.Errno
	return errors.As(err, &number)
}

// tellClosed calls Options.Closed, once.
func (h *handshake) tellClosed(err error) {
	if f := h.s.kind.o.Closed; f != nil && !h.closed {
		h.closed = true
		f(h.conn, err)
	}
}
