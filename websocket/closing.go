package websocket

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
)

// This file is how a connection ends: by a close frame from either side, a violation, a timeout, or
// at once.

var (
	errNoClose  = fmt.Errorf("websocket: the peer ended the connection without a close frame: %w", io.ErrUnexpectedEOF)
	errNoEcho   = fmt.Errorf("websocket: the peer did not answer the close frame: %w", os.ErrDeadlineExceeded)
	errNoPong   = fmt.Errorf("websocket: the peer was silent after a ping: %w", os.ErrDeadlineExceeded)
	errNoAnswer = fmt.Errorf("websocket: the peer did not answer within Options.AnswerTimeout: %w",
		os.ErrDeadlineExceeded)
	errAborted = fmt.Errorf("websocket: the connection was ended by Abort: %w", net.ErrClosed)
	errStopped = fmt.Errorf("websocket: the engine closed the connection: %w", net.ErrClosed)
)

// A phase is how far the end of a connection has come.
type phase uint32

const (
	open     phase = iota // messages go both ways
	ending                // the peer's close frame, violation or FIN has come; what came before is answered yet
	answered              // that is done: nothing may be written any more
	ended                 // the engine has closed the connection; callbacks of earlier messages still come
	closing               // this side's close frame is written; the peer's has not come
	agreed                // both are there
	dropped               // by Abort
	vanished              // the engine has closed the connection, behind closing, agreed or dropped

	phases // how many there are
)

// A step leads from one phase to another.
type step uint8

const (
	closes   step = iota // this side writes its close frame
	answers              // this side writes its last frame behind the peer's end
	concedes             // the peer's end has come
	drops                // this side ends the connection at once
	vanishes             // the engine has closed the connection

	steps // how many there are
)

// transitions are the phases after each step.
var transitions = [phases][steps]phase{
	//        closes    answers   concedes  drops     vanishes
	open:     {closing, answered, ending, dropped, ended},
	ending:   {agreed, answered, ending, dropped, ended},
	answered: {agreed, answered, answered, dropped, ended},
	ended:    {ended, ended, ended, ended, ended},
	closing:  {closing, closing, agreed, dropped, vanished},
	agreed:   {agreed, agreed, agreed, dropped, vanished},
	dropped:  {dropped, dropped, dropped, dropped, vanished},
	vanished: {vanished, vanished, vanished, vanished, vanished},
}

// A closer has the phase of a connection. Any goroutine may look; a step is taken under Conn.mu.
type closer struct{ now atomic.Uint32 }

func (e *closer) phase() phase { return phase(e.now.Load()) }

func (e *closer) step(s step) { e.now.Store(uint32(transitions[e.phase()][s])) }

// writable reports whether frames may be written.
func (e *closer) writable() bool { return e.phase() <= ending }

// muted reports whether OnMessage is not called any more, because this side has closed.
func (e *closer) muted() bool { return e.phase() >= closing }

// over reports whether nothing can be sent, not even a close frame.
func (e *closer) over() bool { return e.phase() == dropped || e.gone() }

// gone reports whether the engine has closed the connection.
func (e *closer) gone() bool { return e.phase() == ended || e.phase() == vanished }

// checkClose reports a code that Close refuses.
func (c StatusCode) checkClose() error {
	if c == 0 || c == StatusNoStatusReceived || c.mayTravel() {
		return nil
	}
	return fmt.Errorf("websocket: Close with status %v: it may not be sent, "+
		"use 1000 to 1003, 1007 to 1014 or 3000 to 4999", c)
}

// sendClose writes the close frame, above every limit. It is called under mu.
func (e *closer) sendClose(c *Conn, code StatusCode, reason string, s step) error {
	e.endOutput(c, s)
	body := appendCloseBody(make([]byte, 0, maxControl), code, reason)
	b, err := c.settings().encode(frameHeader{fin: true, op: OpClose}, body)
	if err != nil {
		return err
	}
	defer b.Release()
	if c.nc == nil {
		c.needCold().early = append(c.needCold().early, b.Bytes()...)
		return nil
	}
	return c.force(b.Bytes())
}

// endOutput has nothing more written but a close frame. It is called under mu.
func (e *closer) endOutput(c *Conn, s step) {
	c.forcePending()
	e.step(s)
	c.slow().Wake()
}

// endWith remembers why the connection ends, if nothing has been remembered yet. It is called under
// mu.
func (e *closer) endWith(c *Conn, err error) {
	if r := c.needCold(); r.end == nil {
		r.end = err
	}
}

// fail ends the connection for a reason of this side: the peer is told the code, if nothing else
// was said before. Any goroutine.
func (e *closer) fail(c *Conn, code StatusCode, text string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.failLocked(c, code, text, err)
}

// failLocked is fail for callers that hold mu.
func (e *closer) failLocked(c *Conn, code StatusCode, text string, err error) {
	if e.over() {
		return
	}
	e.endWith(c, err)
	c.dropUnread()
	if e.writable() {
		_ = e.sendClose(c, code, text, closes) // the connection ends in any case
	} else {
		e.step(closes) // no more callbacks
	}
	if c.nc != nil {
		_ = c.nc.Close()
	}
}

// conclude ends the connection because of the peer's close frame, violation or FIN. Callbacks of
// earlier messages may still answer: the connection ends when they have returned, or when Read has
// been called for all of them. On the loop.
func (e *closer) conclude(c *Conn, err error) {
	c.mu.Lock()
	e.step(concedes)
	e.endWith(c, err)
	busy := c.callbacks != nil
	unread := c.endReads(err)
	if e.writable() { // else boundClose sets the timer
		c.ping.state, c.ping.mark = pingsEnding, e.unanswered(c)
		if !unread {
			c.ping.mark++ // the leaving event
		}
		c.nc.SetTimer(c.settings().closeTimeout)
	}
	c.mu.Unlock()
	switch {
	case unread: // Read comes to it
	case busy:
		c.dispatch(event{kind: leaving, err: err})
	default:
		e.leave(c, err)
	}
}

// unanswered is how many events wait for callbacks, or for Read. It is called under mu.
func (e *closer) unanswered(c *Conn) int64 {
	if in := c.held(); in != nil {
		return int64(in.len())
	}
	return 0
}

// answersExpired: none of the callbacks, or of the messages for Read, has made way for the next one
// for CloseTimeout. If one has, the next has that time, too. On the loop.
func (e *closer) answersExpired(c *Conn) {
	c.mu.Lock()
	left, err := e.unanswered(c), e.reason(c, nil)
	c.mu.Unlock()
	if left < c.ping.mark {
		c.ping.mark = left
		c.nc.SetTimer(c.settings().closeTimeout)
		return
	}
	e.leave(c, err)
}

// leave answers the peer's close frame with the same code, or takes it as the answer to ours. If
// the frame is invalid, the answer says why; a FIN without one has no answer. Then it closes the
// connection; only a client, after a close frame, waits for the server to do that (§7.1.1).
func (e *closer) leave(c *Conn, err error) {
	var code StatusCode
	var text string
	var v *violation
	broken := errors.As(err, &v)
	if broken {
		code, text = v.code, v.text
	} else {
		code = CloseStatus(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.over() {
		return
	}
	switch {
	case !e.writable():
	case err == errNoClose:
		e.endOutput(c, answers)
	default:
		_ = e.sendClose(c, code, text, answers) // the connection ends in any case
	}
	if broken || c.settings().random == nil || c.cold.fin {
		_ = c.nc.Close()
		return
	}
	c.nc.Notify()
}

// boundClose gives the peer a time to answer, or the server to close. On the loop.
func (e *closer) boundClose(c *Conn) {
	if !e.writable() && c.ping.state != pingsClosing {
		c.ping.state, c.ping.mark = pingsClosing, int64(c.nc.Queued())
		c.nc.SetTimer(c.settings().closeTimeout)
	}
}

// closeProgress is how many bytes a closing connection with output must get rid of in each
// CloseTimeout.
const closeProgress = 4 << 10

// closeExpired: the closing handshake was not completed in time. A peer that still reads output has
// the time once more, because it has not read the close frame yet. Output that does not move is
// dropped.
func (e *closer) closeExpired(c *Conn) {
	queued := int64(c.nc.Queued())
	if mark := c.ping.mark; mark-queued >= min(closeProgress, max(mark, 1)) {
		c.ping.mark = queued
		c.nc.SetTimer(c.settings().closeTimeout)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.endWith(c, errNoEcho)
	if queued > 0 {
		c.nc.Abort(errNoEcho)
		return
	}
	_ = c.nc.Close()
}

// reason is what OnClose is told. err is the engine's view of the end. It is called under mu.
func (e *closer) reason(c *Conn, err error) error {
	switch {
	case c.cold != nil && c.cold.end != nil:
		return c.cold.end
	case err != nil:
		return fmt.Errorf("websocket: the connection broke: %w", err)
	}
	return errStopped
}
