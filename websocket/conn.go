package websocket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/lifetime"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/web"
)

// A Conn is one WebSocket connection. Its methods may be called from any goroutine. Read waits for
// a message; Write, WritePrepared and WriteContext wait for room; none of the others waits for the
// peer.
type Conn struct {
	nc    pipe // set once under mu: with the Conn, or when Accept's connection arrives at its loop
	value any

	// The loop's.
	reader reader
	ping   pinger

	mu        sync.Mutex
	callbacks *callbacks // guarded by mu: what waits for callbacks, else nil
	cold      *cold      // guarded by mu: what few connections need, else nil

	end         closer   // changed under mu
	subprotocol uint8    // its place in Options.Subprotocols, from 1; 0: none
	room        room     // guarded by mu
	overflow    Overflow // guarded by mu
	joined      bool     // guarded by mu: it is a member of a group, or was
}

// A cold part is what few connections need. It is allocated when it is needed, and guarded by
// Conn.mu.
type cold struct {
	early []byte     // frames written before the connection has arrived at its loop
	pong  *buf.Block // the payload of the latest ping, if it could not be answered yet
	end   error      // why the connection is closing, for OnClose: the first reason stays
	fin   bool       // the peer has ended its side

	reads   *reads   // of a connection that is read by Read
	windows *windows // of compression that keeps them

	slow  *outbox.Outbox[*buf.Block] // what waits for room; nil: there has always been room
	late  lateMembers
	limit int   // SetOverflow's; 0: that of the Options
	parts parts // of a message in parts

	pings *sentPings         // pings that wait for their pongs, for OnPong; nil: none
	life  *lifetime.Lifetime // nil: Context was not called, and there are no values for it
}

// A room says what is known of the output of a connection.
type room uint8

const (
	roomOpen    room = iota // nothing was refused since there was room
	roomRefused             // the kernel has refused what is queued
	roomStalled             // Write has waited for Options.WriteTimeout: it waits no more until there is room
)

// parts say how a message in parts stands.
type parts uint8

const (
	partsNone parts = iota // there is none
	partsOpen              // it has begun: no other message can be sent
	partsOver              // it has ended, and the loop has not seen that
)

func newConn(s *settings, t deflateTerms, subprotocol uint8) *Conn {
	c := &Conn{reader: reader{rules: s.rulesFor(t)}, subprotocol: subprotocol, overflow: s.Overflow}
	if s.Pull {
		c.cold = &cold{reads: new(reads)}
	}
	return c
}

// settings are those that the rules of its reader belong to.
func (c *Conn) settings() *settings { return c.reader.rules.settings }

// needCold is called under mu.
func (c *Conn) needCold() *cold {
	if c.cold == nil {
		c.cold = new(cold)
	}
	return c.cold
}

// dropCold gives the cold part back if nothing is left in it. It is called under mu.
func (c *Conn) dropCold() {
	if r := c.cold; r != nil && r.early == nil && r.pong == nil && r.end == nil && r.reads == nil && r.windows == nil &&
		r.slow.Empty() && r.late.members == nil && r.pings == nil &&
		r.life == nil && r.limit == 0 && r.parts == partsNone && !r.fin {
		c.cold = nil
	}
}

// attach tells the conn its connection, unless it knows.
func (c *Conn) attach(nc pipe) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc == nil {
		c.nc = nc
	}
}

// Subprotocol is the one that was negotiated, or "".
func (c *Conn) Subprotocol() string {
	if c.subprotocol == 0 {
		return ""
	}
	return c.settings().Subprotocols[c.subprotocol-1]
}

// RemoteAddr is the peer's address. It is nil between Accept on a web.Server and OnOpen, where the
// request has it.
func (c *Conn) RemoteAddr() net.Addr {
	if nc := c.conn(); nc != nil {
		return nc.RemoteAddr()
	}
	return nil
}

// LocalAddr is the address at this end. It is nil between Accept on a web.Server and OnOpen.
func (c *Conn) LocalAddr() net.Addr {
	if nc := c.conn(); nc != nil {
		return nc.LocalAddr()
	}
	return nil
}

func (c *Conn) conn() pipe {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nc
}

// Queued is how many bytes of output have not been taken by the kernel, frame headers included.
func (c *Conn) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.nc != nil:
		return c.nc.Queued()
	case c.cold != nil:
		return len(c.cold.early)
	}
	return 0
}

// Value is what SetValue was given last, or AcceptWith. It is not synchronised by the Conn, but
// callbacks are with each other.
func (c *Conn) Value() any { return c.value }

// SetValue keeps something of the application's with the connection: best in OnOpen.
func (c *Conn) SetValue(v any) { c.value = v }

// handler is the Conn as the engine sees it, or package web over HTTP/2, out of the way of its
// public methods. All of it runs on the loop.
type handler[C pipe] Conn

var (
	_ myriad.Ender    = (*handler[*myriad.Conn])(nil)
	_ myriad.Drainer  = (*handler[*myriad.Conn])(nil)
	_ myriad.Timed    = (*handler[*myriad.Conn])(nil)
	_ myriad.Notified = (*handler[*myriad.Conn])(nil)
	_ myriad.Stopper  = (*handler[*myriad.Conn])(nil)
	_ web.PipeHandler = (*handler[*web.Pipe])(nil)
)

// Opened begins with the connection upgraded: the response to the handshake has been written.
func (h *handler[C]) Opened(nc C) {
	c := (*Conn)(h)
	c.arrive(nc)
	now := c.now()
	c.ping.received(now)
	c.arm(now)
	c.end.boundClose(c)
	if c.settings().OnOpen != nil {
		c.dispatch(event{kind: opened})
	}
}

// arrive sends what was written before the connection had a loop.
func (c *Conn) arrive(nc pipe) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc == nil {
		c.nc = nc
	}
	if limit, _ := c.limits(); limit > 0 {
		nc.SetWriteLimit(limit)
	}
	if c.end.phase() == dropped {
		nc.Abort(errAborted) // OnClose gets what Abort was given
		return
	}
	if c.ping.answer == answerQueued {
		nc.Notify()
	}
	if c.cold == nil {
		return
	}
	if c.cold.pings != nil { // from before there was a clock
		for i := range *c.cold.pings {
			(*c.cold.pings)[i].at = c.clock()
		}
	}
	if c.cold.early == nil {
		return
	}
	early := c.cold.early
	c.cold.early = nil
	if err := c.force(early); err != nil {
		c.end.step(drops)
		c.end.endWith(c, err)
		nc.Abort(err)
	}
	c.advance()
	c.slow().Wake()
	c.dropCold()
}

func (h *handler[C]) Received(_ C, p []byte) { (*Conn)(h).receives(p) }

// receives reads frames until p is used up or enough waits for callbacks. What comes means that the
// peer is alive.
func (c *Conn) receives(p []byte) {
	c.ping.received(c.now())
	for len(p) > 0 {
		n, m, err := c.reader.feed(p)
		p = p[n:]
		switch {
		case err != nil:
			c.end.conclude(c, err)
			return
		case m.op == OpText || m.op == OpBinary:
			if c.message(m) {
				c.pause(p)
				return
			}
			continue // the message is released where it is used up
		case m.op == OpPing:
			c.ping.answerPing(c, m.payload)
		case m.op == OpClose:
			code, reason, _ := parseCloseBody(m.payload) // the reader has checked it
			c.end.conclude(c, &CloseError{Code: code, Reason: string(reason)})
		case m.op == OpPong:
			c.ping.answered(c, m.payload)
		}
		m.release()
	}
}

// Ended is the peer's FIN: in order only behind its close frame. Callbacks of what has come before
// may still answer, behind a close frame and without one.
func (h *handler[C]) Ended(C) {
	c := (*Conn)(h)
	c.mu.Lock()
	c.needCold().fin = true
	answerable, begun := c.end.writable(), c.end.phase() == ending
	if !answerable {
		c.end.endWith(c, errNoClose) // unless a close frame has come before
		_ = c.nc.Close()
	}
	c.mu.Unlock()
	if answerable && !begun {
		c.end.conclude(c, errNoClose)
	}
}

// Truncated is the peer's FIN without a close_notify of TLS. A close frame shows the end as well as
// that does, so it is the same as Ended.
func (h *handler[C]) Truncated(nc C, _ error) { h.Ended(nc) }

// Notified looks at what other goroutines want done on the loop: a timer for the close frame they
// have sent, or reading to go on.
func (h *handler[C]) Notified(C) {
	c := (*Conn)(h)
	c.end.boundClose(c)
	c.partsEnded()
	c.ping.flushPong(c)
	c.ping.offered(c)
	c.resume()
	if (c.settings().Pull || c.lateDue() > 0) && c.end.phase() == open { // deadlines may have changed
		c.wakeLate()
		c.arm(c.now())
	}
}

// Stopping is the engine's shutdown.
func (h *handler[C]) Stopping(C) {
	_ = (*Conn)(h).Close(StatusGoingAway, "shutting down") // one that is closing already goes on as it does
}

func (h *handler[C]) Expired(C) {
	c := (*Conn)(h)
	switch {
	case !c.end.writable():
		c.end.closeExpired(c)
		return
	case c.end.phase() == ending:
		c.end.answersExpired(c)
		return
	}
	if c.ping.waitingPong(c) { // whether the output has moved or not
		c.ping.sendPong(c)
	}
	c.wakeLate()
	now := c.now()
	c.giveUpLate(now)
	if due := c.ping.due(c.settings()); due > 0 && now >= due {
		c.ping.judgeSilence(c, now)
	}
	c.ping.judgeAnswer(c, now)
	c.arm(now)
}

func (h *handler[C]) Closed(_ C, err error) {
	c := (*Conn)(h)
	if errors.Is(err, myriad.ErrNotMoved) {
		c.moved()
		return
	}
	c.reader.release()
	c.mu.Lock()
	c.end.step(vanishes)
	err = c.end.reason(c, err)
	if r := c.cold; r != nil && r.pong != nil {
		r.pong.Release()
		r.pong = nil
	}
	if c.slow() != nil {
		c.slow().End()
	}
	if in := c.held(); in != nil {
		if rest, _ := in.unpause(); rest != nil {
			rest.Release()
		}
		c.forget()
	}
	c.strip(err)
	joined := c.joined
	c.mu.Unlock()
	if joined {
		rosterOf(c.nc.Loop()).leave(c)
	}
	if c.settings().OnClose != nil {
		c.dispatch(event{kind: finished, err: err})
	}
}

// Context returns a context that ends with the connection, before OnClose is called: its cause is
// OnClose's error. The request's own context ends when the handler returns.
//
// It carries the values of the request's context as Accept has met them; there are none with
// Handler and Dial. If middleware has set values, they keep the request in memory as long as the
// connection, 1 to 3 kB; behind a foreign server it is about 600 bytes in any case. Give Accept a
// request with context.Background() to keep none. Without values and without a call Context costs
// nothing.
func (c *Conn) Context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.needCold()
	if r.life == nil {
		r.life = new(lifetime.Lifetime)
		if c.end.gone() {
			r.life.End(r.end)
		}
	}
	return r.life.Context()
}

// Close begins the closing handshake: what was written before is sent, then a close frame with code
// and reason, and nothing after it. No OnMessage begins from then on. OnClose follows when the peer
// has answered, or after Options.CloseTimeout. The code is one that may be sent (1000 to 1003, 1007
// to 1014, 3000 to 4999), or 0 for none; a reason is cut at 123 bytes. It fails with net.ErrClosed
// if a close frame was sent before, also as an answer.
func (c *Conn) Close(code StatusCode, reason string) error {
	if err := code.checkClose(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropUnread() // also of a connection that has ended
	if !c.end.writable() {
		return errClosing
	}
	err := c.end.sendClose(c, code, reason, closes)
	if c.nc != nil {
		c.nc.Notify() // the loop sets the timer
	}
	return err
}

// Abort ends the connection without a closing handshake and drops what has not been sent. OnClose
// gets err, or an error that is net.ErrClosed if err is nil. Any goroutine.
func (c *Conn) Abort(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropUnread()
	if c.end.over() {
		return
	}
	err = cmp.Or(err, errAborted)
	c.end.step(drops)
	c.end.endWith(c, err)
	c.slow().Wake()
	if c.nc != nil {
		c.nc.Abort(err)
	}
}

// Ping sends a ping with a payload of at most 125 bytes, besides those that Options.PingInterval
// asks for. Options.OnPong receives the answer. It fails with myriad.ErrFull while the peer reads
// too slowly. Any goroutine.
func (c *Conn) Ping(p []byte) error {
	if len(p) > maxControl {
		return fmt.Errorf("websocket: a ping of %d bytes: a control frame holds at most %d", len(p), maxControl)
	}
	b, err := c.settings().encode(frameHeader{fin: true, op: OpPing}, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = c.send(b, copied); err == nil && c.settings().OnPong != nil {
		c.ping.remember(c, p)
	}
	return err
}

// AwaitAnswer is for a protocol with pings of its own, which are messages. It is called when such a
// message has been written: unless Answered is called in time, OnNoAnswer is. The time is
// Options.AnswerTimeout. It begins when the kernel has been offered the message, however long that
// waits in this process. OnNoAnswer comes behind every message that has arrived by then. If the
// kernel refuses the message, because the peer does not read, the peer has the time twice. A second
// call before Answered does nothing. It reports false without Options.AnswerTimeout, and once
// closing has begun. Any goroutine.
func (c *Conn) AwaitAnswer() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settings().answerTimeout == 0 || !c.end.writable() {
		return false
	}
	if c.ping.answer == answerIdle {
		c.ping.answer = answerQueued
		if c.nc != nil { // else arrive goes on
			c.nc.Notify()
		}
	}
	return true
}

// Answered says that the answer has come for which AwaitAnswer waits. Any goroutine.
func (c *Conn) Answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ping.answer = answerIdle // the timer finds nothing due
}

// now is the time of the loop's turn, in milliseconds.
func (c *Conn) now() int64 { return c.nc.Loop().Now().UnixMilli() }

// arm sets the connection's one timer to what comes next.
func (c *Conn) arm(now int64) {
	wait := time.Duration(0)
	if due := c.ping.due(c.settings()); due > 0 {
		wait = max(time.Duration(due-now)*time.Millisecond, time.Millisecond)
	}
	if due := c.nextDeadline(now); due > 0 && (wait == 0 || wait > time.Duration(due-now)*time.Millisecond) {
		wait = time.Duration(due-now) * time.Millisecond
	}
	if c.ping.waitingPong(c) && (wait == 0 || wait > pongRetry) {
		wait = pongRetry
	}
	c.mu.Lock()
	left, ok := c.ping.answerLeft(now)
	c.mu.Unlock()
	if answer := max(time.Duration(left)*time.Millisecond, time.Millisecond); ok && (wait == 0 || wait > answer) {
		wait = answer
	}
	c.nc.SetTimer(wait)
}

// clock is the time now, where Conn.now is that of the loop's cycle.
func (c *Conn) clock() time.Time { return c.nc.Loop().Engine().System().Now() }

// Compressed reports whether permessage-deflate was negotiated.
func (c *Conn) Compressed() bool { return c.reader.rules.compression }

// contexts is called under mu.
func (c *Conn) contexts() *windows {
	r := c.needCold()
	if r.windows == nil {
		r.windows = new(windows)
	}
	return r.windows
}

// partsEnded goes on with what has waited for the end of a message in parts. On the loop.
func (c *Conn) partsEnded() {
	c.mu.Lock()
	over := c.cold != nil && c.cold.parts == partsOver
	if over {
		c.cold.parts = partsNone
		c.dropCold()
	}
	c.mu.Unlock()
	if over {
		c.drains()
	}
}
