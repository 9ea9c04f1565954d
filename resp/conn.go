package resp

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/outbox"
)

// A Conn is a connection of a Server. Its methods may be called from any goroutine.
type Conn struct {
	nc     *myriad.Conn
	lane   *lane
	mu     sync.Mutex
	work   *work         // guarded by mu: commands that have come, nil: none
	cold   *cold         // guarded by mu: what few connections need, else nil
	state  atomic.Uint32 // changed under mu
	number uint32        // constant
}

// The bits of Conn.state.
const (
	stateAuthed      uint32 = 1 << iota // or nothing has to be
	stateRESP3                          // HELLO 3
	stateReplyOff                       // CLIENT REPLY OFF
	stateSkip                           // CLIENT REPLY SKIP: the next reply is not sent
	stateSkipping                       // that command has returned, and the next one's reply is the one
	stateSubscribed                     // SetSubscribed
	stateClosing                        // no command is run any more
	stateDraining                       // closes when the commands that have come are answered
	stateClosed                         // by the engine
	stateTransaction                    // SetTransaction
)

// A cold is allocated when it is needed.
type cold struct {
	name     string
	library  [2]string // CLIENT SETINFO
	user     string
	value    any
	ends     []func()
	overflow Overflow
	limit    int                    // of output in bytes
	outbox   *outbox.Outbox[pushed] // nil: the peer has never been slow
	room     room
	unsent   int // what was queued when the connection looked idle last
}

// A room is what is known of the output queue's room for pushed messages.
type room uint8

const (
	roomOpen    room = iota // nothing was refused since there was room
	roomRefused             // the kernel has refused what is queued
	roomStalled             // a Push has waited in vain for PushTimeout
)

func (c *Conn) is(bits uint32) bool { return c.state.Load()&bits != 0 }

// set is called under mu.
func (c *Conn) set(bits uint32, on bool) {
	state := c.state.Load() &^ bits
	if on {
		state |= bits
	}
	c.state.Store(state)
}

// read is what few connections need, to be read. It is called under mu.
func (c *Conn) read() cold {
	if c.cold == nil {
		return cold{overflow: c.lane.live.s.Overflow, limit: c.lane.live.rules.limit}
	}
	return *c.cold
}

// change is what few connections need, to be changed. It is called under mu.
func (c *Conn) change() *cold {
	if c.cold == nil {
		all := c.read()
		c.cold = &all
	}
	return c.cold
}

// get is read for callers that do not hold mu.
func (c *Conn) get() cold {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

// ID is the connection's number, from 1, which is unique in its server. Behind 4,294,967,295 the
// numbers begin again.
func (c *Conn) ID() uint64 { return uint64(c.number) }

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
func (c *Conn) Name() string { return c.get().name }

// User is the name that the peer has authenticated with; empty: it has not, or needed not.
func (c *Conn) User() string { return c.get().user }

// Value is what SetValue was given last.
func (c *Conn) Value() any { return c.get().value }

// SetValue keeps something of the application's with the connection. It costs an idle connection
// some 200 bytes.
func (c *Conn) SetValue(v any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change().value = v
}

// SetSubscribed says whether the peer has subscriptions. With RESP2 it may then send only commands
// about subscriptions, PING, QUIT and RESET.
func (c *Conn) SetSubscribed(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(stateSubscribed, on)
}

// SetTransaction says whether the peer has a transaction open (MULTI). Until it is off, or the peer
// sends RESET, the server passes AUTH, HELLO, CLIENT and PING to its Handler. It does not answer
// them itself then. The Handler checks them with Reply.CheckOwn, keeps them, and runs them with
// Reply.ServeOwn. RESET and QUIT run at once, as in Redis. A Mux that is the Handler itself never
// gets these commands.
func (c *Conn) SetTransaction(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(stateTransaction, on)
}

// OnEnd has f called once: when the connection ends, when its peer sends RESET, or when it goes on
// in another process. If it has ended, f is called at once. f must not block.
func (c *Conn) OnEnd(f func()) {
	c.mu.Lock()
	if c.is(stateClosed) {
		c.mu.Unlock()
		f()
		return
	}
	defer c.mu.Unlock()
	all := c.change()
	all.ends = append(all.ends, f)
}

// runEnds calls what OnEnd was given.
func (c *Conn) runEnds() {
	c.mu.Lock()
	var ends []func()
	if c.cold != nil {
		ends, c.cold.ends = c.cold.ends, nil
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
	c.set(stateClosing, true)
	c.mu.Unlock()
	_ = c.nc.Close() // always nil
}

// Abort drops what is queued and resets the connection; OnClose gets err.
func (c *Conn) Abort(err error) {
	c.mu.Lock()
	c.set(stateClosing, true)
	c.mu.Unlock()
	c.nc.Abort(err)
}

// errEnded is net.ErrClosed in the words of this package.
var errEnded = fmt.Errorf("resp: the connection is closing or closed: %w", net.ErrClosed)
