package resp

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
)

// A Conn is a connection of a Server. Its methods may be called from any goroutine.
type Conn struct {
	nc    *myriad.Conn
	lane  *lane
	mu    sync.Mutex
	work  *work         // guarded by mu: commands that have come, nil: none
	more  *more         // guarded by mu: what few connections need, else nil
	state atomic.Uint64 // changed under mu
}

// The bits of Conn.state.
const (
	stateAuthed      uint64 = 1 << iota // or nothing has to be
	stateRESP3                          // HELLO 3
	stateReplyOff                       // CLIENT REPLY OFF
	stateSkip                           // CLIENT REPLY SKIP: the next reply is not sent
	stateSkipping                       // that command has returned, and the next one's reply is the one
	stateSubscribed                     // SetSubscribed
	stateClosing                        // no command is run any more
	stateDraining                       // closes when the commands that have come are answered
	stateClosed                         // by the engine
	stateDrained                        // a push was refused or dropped since OnDrained
	stateTransaction                    // SetTransaction
	stateOverflow                       // Overflow in the bits from here on
)

const (
	overflowBits = 7 * stateOverflow
	idShift      = 16 // the connection's number is in the bits from here on
)

// more is allocated when it is needed.
type more struct {
	name    string
	library [2]string // CLIENT SETINFO
	user    string
	value   any
	ends    []func()
	limit   int // SetOverflow's
	pushes  pushes
}

func (c *Conn) is(bits uint64) bool { return c.state.Load()&bits != 0 }

// set is called under mu.
func (c *Conn) set(bits uint64) { c.state.Store(c.state.Load() | bits) }

// unset is called under mu.
func (c *Conn) unset(bits uint64) { c.state.Store(c.state.Load() &^ bits) }

// rare is called under mu.
func (c *Conn) rare() *more {
	if c.more == nil {
		c.more = new(more)
	}
	return c.more
}

// ID is the connection's number, from 1, which is unique in its server.
func (c *Conn) ID() uint64 { return c.state.Load() >> idShift }

// Protocol is what the peer speaks now: RESP2 until it has said HELLO 3.
func (c *Conn) Protocol() Protocol {
	if c.is(stateRESP3) {
		return RESP3
	}
	return RESP2
}

// RemoteAddr is the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// LocalAddr is the address at this end.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// Name is what the peer has called itself (CLIENT SETNAME).
func (c *Conn) Name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.more == nil {
		return ""
	}
	return c.more.name
}

// User is the name that the peer has authenticated with; empty: it has not, or needed not.
func (c *Conn) User() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.more == nil {
		return ""
	}
	return c.more.user
}

// Value is what SetValue was given last.
func (c *Conn) Value() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.more == nil {
		return nil
	}
	return c.more.value
}

// SetValue keeps something of the application's with the connection. It costs an idle connection
// some 200 bytes.
func (c *Conn) SetValue(v any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rare().value = v
}

// SetSubscribed says whether the peer has subscriptions. With RESP2 it may then send only commands
// about subscriptions, PING, QUIT and RESET.
func (c *Conn) SetSubscribed(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unset(stateSubscribed)
	if on {
		c.set(stateSubscribed)
	}
}

// SetTransaction says whether the peer has a transaction open (MULTI). Until it is off, or the peer
// sends RESET, the server passes AUTH, HELLO, CLIENT and PING to its Handler. It does not answer
// them itself then. The Handler checks them with Reply.CheckOwn, keeps them, and runs them with
// Reply.ServeOwn. RESET and QUIT run at once, as in Redis. A Mux that is the Handler itself never
// gets these commands.
func (c *Conn) SetTransaction(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unset(stateTransaction)
	if on {
		c.set(stateTransaction)
	}
}

// OnEnd has f called once: when the connection ends, or when its peer sends RESET. If it has ended,
// f is called at once. f must not block.
func (c *Conn) OnEnd(f func()) {
	c.mu.Lock()
	if c.is(stateClosed) {
		c.mu.Unlock()
		f()
		return
	}
	defer c.mu.Unlock()
	c.rare().ends = append(c.rare().ends, f)
}

// runEnds calls what OnEnd was given.
func (c *Conn) runEnds() {
	c.mu.Lock()
	var ends []func()
	if c.more != nil {
		ends, c.more.ends = c.more.ends, nil
	}
	c.mu.Unlock()
	for _, f := range ends {
		f()
	}
}

// Close sends what is queued and closes the connection. Commands that have come and not begun are
// not run.
func (c *Conn) Close() {
	c.mu.Lock()
	c.set(stateClosing)
	c.mu.Unlock()
	_ = c.nc.Close() // always nil
}

// Abort drops what is queued and resets the connection; OnClose gets err.
func (c *Conn) Abort(err error) {
	c.mu.Lock()
	c.set(stateClosing)
	c.mu.Unlock()
	c.nc.Abort(err)
}

// errEnded is net.ErrClosed in the words of this package.
var errEnded = fmt.Errorf("resp: the connection is closing or closed: %w", net.ErrClosed)

// queue queues replies, whatever the limit is. full says that it was exceeded: then no more
// commands run until there is room. p may be used again.
func (c *Conn) queue(p []byte) (full bool) {
	for len(p) > 0 {
		piece := p[:min(len(p), replyPiece)]
		_, err := c.nc.Write(piece)
		if errors.Is(err, myriad.ErrFull) {
			full = true
			err = c.force(piece)
		}
		if err != nil && !errors.Is(err, net.ErrClosed) {
			c.nc.Abort(fmt.Errorf("resp: a reply could not be sent: %w", err))
		}
		p = p[len(piece):]
	}
	return full
}

const (
	// replyPiece is the most that is written at once.
	replyPiece = 1 << 20
	// layerRoom is more than TLS adds to a short reply. To a long one it adds less than its length.
	layerRoom = 1 << 10
)

// force queues p above the limit, and stalls the commands. The write that is refused is made under
// mu, so that Drained comes after that.
func (c *Conn) force(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.nc.Write(p)
	if !errors.Is(err, myriad.ErrFull) {
		return err
	}
	if c.work == nil {
		c.work = c.lane.live.workOf(c)
	}
	c.work.stalled = true
	c.nc.SetWriteLimit(c.nc.Queued() + 2*len(p) + layerRoom)
	_, err = c.nc.Write(p)
	c.nc.SetWriteLimit(c.limit())
	return err
}
