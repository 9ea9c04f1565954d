package websocket

import (
	"github.com/myriad-go/myriad"
)

// handler is the Conn as the engine sees it, out of the way of its public methods. All of it runs
// on the loop.
type handler Conn

var (
	_ myriad.Ender    = (*handler)(nil)
	_ myriad.Drainer  = (*handler)(nil)
	_ myriad.Timed    = (*handler)(nil)
	_ myriad.Notified = (*handler)(nil)
	_ myriad.Stopper  = (*handler)(nil)
)

// Opened begins with the connection upgraded: the response to the handshake has been written.
func (h *handler) Opened(nc *myriad.Conn) { (*Conn)(h).begins(nc) }

func (c *Conn) begins(nc pipe) {
	c.arrive(nc)
	c.heard = c.now()
	c.due = 0
	if c.settings().pingInterval > 0 {
		c.due = c.heard + c.settings().pingInterval.Milliseconds()
	}
	c.arm(c.heard)
	c.boundClose()
	if c.settings().onOpen != nil {
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
	if c.is(dropped) {
		nc.Abort(errDropped)
		return
	}
	c.startClocks()
	if c.cold == nil || c.cold.early == nil {
		return
	}
	early := c.cold.early
	c.cold.early = nil
	if err := c.force(early); err != nil {
		c.set(muted | dropped)
		c.endWith(err)
		nc.Abort(err)
	}
	c.advance()
	c.slow().Wake()
	c.dropCold()
}

func (h *handler) Received(_ *myriad.Conn, p []byte) { (*Conn)(h).receives(p) }

func (c *Conn) receives(p []byte) {
	c.heard = c.now()
	c.pings &^= pinged
	c.take(p)
}

// take reads frames until p is used up or enough waits for callbacks.
func (c *Conn) take(p []byte) {
	for len(p) > 0 {
		n, m, err := c.reader.feed(p)
		p = p[n:]
		switch {
		case err != nil:
			c.violated(err)
			return
		case m.op == OpText || m.op == OpBinary:
			if c.message(m) {
				c.pause(p)
				return
			}
		case m.op == OpPing:
			c.answerPing(m.payload)
			m.release()
		case m.op == OpClose:
			c.peerClosed(m.payload)
			m.release()
		default:
			c.answered(m.payload)
			m.release()
		}
	}
}

// Ended is the peer's FIN: in order only behind its close frame. Callbacks of what has come before
// may still answer, behind a close frame and without one.
func (h *handler) Ended(*myriad.Conn) { (*Conn)(h).ended() }

func (c *Conn) ended() {
	c.mu.Lock()
	c.set(finRead)
	answerable := !c.is(closeSent)
	begun := c.is(concluded)
	if !answerable {
		c.endWith(errNoClose) // unless a close frame has come before
		_ = c.nc.Close()
	}
	c.mu.Unlock()
	if answerable && !begun {
		c.conclude(errNoClose)
	}
}

// Truncated is the peer's FIN without a close_notify of TLS. A close frame shows the end as well as
// that does, so it is the same as Ended.
func (h *handler) Truncated(nc *myriad.Conn, _ error) { h.Ended(nc) }

// Notified looks at what other goroutines want done on the loop: a timer for the close frame they
// have sent, or reading to go on.
func (h *handler) Notified(*myriad.Conn) { (*Conn)(h).notified() }

func (c *Conn) notified() {
	c.boundClose()
	c.partsEnded()
	c.flushPong()
	c.resume()
	c.rearm()
}

// Stopping is the engine's shutdown.
func (h *handler) Stopping(*myriad.Conn) { (*Conn)(h).stopping() }

func (c *Conn) stopping() {
	_ = c.Close(StatusGoingAway, "shutting down") // one that is closing already goes on as it does
}

func (h *handler) Expired(*myriad.Conn) { (*Conn)(h).expired() }

func (c *Conn) expired() {
	switch {
	case c.is(closeSent):
		c.closeExpired()
		return
	case c.is(concluded):
		c.answersExpired()
		return
	}
	c.retryPong()
	c.wakeLate()
	now := c.now()
	c.giveUpLate(now)
	if c.due > 0 && now >= c.due {
		c.judgeSilence(now)
	}
	c.arm(now)
}

func (h *handler) Closed(_ *myriad.Conn, err error) { (*Conn)(h).ends(err) }

func (c *Conn) ends(err error) {
	c.reader.release()
	c.mu.Lock()
	c.set(closed | closeSent)
	err = c.reason(err)
	if r := c.cold; r != nil && r.pong != nil {
		r.pong.Release()
		r.pong = nil
	}
	if c.slow() != nil {
		c.slow().End()
	}
	c.dropRest()
	c.strip(err)
	c.mu.Unlock()
	if c.is(joined) {
		rosterOf(c.nc.Loop()).leave(c)
	}
	if c.settings().onClose != nil {
		c.dispatch(event{kind: ended, err: err})
	}
}
