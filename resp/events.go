package resp

import (
	"math"
	"os"

	"github.com/myriad-go/myriad"
)

// front opens connections: it is the handler that a listener gives them.
type front live

// Opened gives the connection its own handler.
func (f *front) Opened(nc *myriad.Conn) { nc.SetHandler(newConn((*live)(f), nc), nil) }

// Received is never reached: the handler changes in Opened.
func (*front) Received(nc *myriad.Conn, _ []byte) { nc.Abort(nil) }

// Closed is reached by a connection that ended before.
func (*front) Closed(*myriad.Conn, error) {}

func newConn(l *live, nc *myriad.Conn) *handler {
	c := &Conn{nc: nc, lane: l.lanes[nc.Loop().Index()]}
	state := l.ids.Add(1)<<idShift | uint64(l.s.Overflow)*stateOverflow
	if l.open {
		state |= stateAuthed
	}
	c.state.Store(state)
	return (*handler)(c)
}

// handler is the Conn as the engine sees it, out of the way of its public methods. All of it runs
// on the loop.
type handler Conn

var (
	_ myriad.Drainer        = (*handler)(nil)
	_ myriad.Ender          = (*handler)(nil)
	_ myriad.TruncatedEnder = (*handler)(nil)
	_ myriad.Timed          = (*handler)(nil)
	_ myriad.Notified       = (*handler)(nil)
	_ myriad.Stopper        = (*handler)(nil)
)

// Opened implements myriad.Handler.
func (h *handler) Opened(nc *myriad.Conn) {
	c, l := (*Conn)(h), h.lane.live
	l.conns.Add(1)
	nc.SetWriteLimit(c.limit())
	if d := l.s.IdleTimeout; d > 0 {
		nc.SetTimer(d)
	}
	if l.s.OnOpen != nil {
		l.s.OnOpen(c)
	}
	if c.lane.drained {
		c.drain()
	}
}

// Expired closes a connection that has been silent for too long.
func (h *handler) Expired(nc *myriad.Conn) {
	c := (*Conn)(h)
	c.mu.Lock()
	busy := c.work != nil && c.work.running
	c.mu.Unlock()
	if busy || c.is(stateSubscribed) {
		nc.SetTimer(c.lane.live.s.IdleTimeout)
		return
	}
	nc.Abort(os.ErrDeadlineExceeded)
}

// Received implements myriad.Handler.
func (h *handler) Received(nc *myriad.Conn, p []byte) {
	c := (*Conn)(h)
	if d := c.lane.live.s.IdleTimeout; d > 0 {
		nc.SetTimer(d)
	}
	if c.is(stateClosing | stateDraining) {
		return
	}
	if c.lane.live.inline {
		p = c.serveView(p)
	}
	if len(p) > 0 {
		c.take(p)
	}
}

// Ended is the peer's FIN: what it has sent is answered, and the connection closed.
func (h *handler) Ended(*myriad.Conn) { (*Conn)(h).drain() }

// Truncated is the peer's FIN without a close_notify of TLS. A command shows its own end, so this
// is the same as Ended.
func (h *handler) Truncated(*myriad.Conn, error) { (*Conn)(h).drain() }

// Stopping is the engine's shutdown.
func (h *handler) Stopping(*myriad.Conn) { (*Conn)(h).drain() }

// drain closes the connection when the commands that have come are answered.
func (c *Conn) drain() {
	c.mu.Lock()
	c.set(stateDraining)
	busy := c.work != nil && (c.work.running || c.work.stalled)
	c.mu.Unlock()
	if !busy {
		c.Close()
	}
}

// Notified goes on with commands that another goroutine has left to the loop.
func (h *handler) Notified(*myriad.Conn) { (*Conn)(h).goOn() }

// Drained implements myriad.Drainer.
func (h *handler) Drained(*myriad.Conn) {
	c := (*Conn)(h)
	c.drainedPushes()
	c.mu.Lock()
	if c.work != nil {
		c.work.stalled = false
	}
	c.mu.Unlock()
	c.goOn()
}

// Closed implements myriad.Handler.
func (h *handler) Closed(_ *myriad.Conn, err error) {
	c := (*Conn)(h)
	c.mu.Lock()
	c.set(stateClosing | stateClosed)
	if w := c.work; w != nil && (!w.running || w.ask) {
		c.forget()
	}
	c.endPushes()
	c.mu.Unlock()
	c.runEnds()
	if f := c.lane.live.s.OnClose; f != nil {
		f(c, err)
	}
	c.lane.live.gone()
}

// drain begins an orderly end of all connections.
func (ln *lane) drain() { ln.end((*Conn).drain) }

// abort resets all connections.
func (ln *lane) abort() { ln.end(func(c *Conn) { c.nc.Abort(ErrServerClosed) }) }

// end has f called for all connections there are. One that opens later is drained.
func (ln *lane) end(f func(c *Conn)) {
	ln.drained = true
	ln.loop.Conns(0, math.MaxInt, func(nc *myriad.Conn) {
		if h, ok := nc.Handler().(*handler); ok && h.lane == ln {
			f((*Conn)(h))
		}
	})
}
