package websocket

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/lifetime"
	"github.com/myriad-go/myriad/internal/outbox"
)

// A Conn is one WebSocket connection. Its methods may be called from any goroutine. Read waits for
// a message; Write, WritePrepared and WriteContext wait for room; none of the others waits for the
// peer.
type Conn struct {
	nc     pipe   // set once under mu: with the Conn, or when Accept's connection arrives at its loop
	reader reader // the loop's
	value  any
	heard  int64 // the loop's: when something was received last, in milliseconds
	// the loop's: when the silence is to be judged, likewise; 0: never. While closing, what was
	// queued when the timer was set
	due int64

	mu      sync.Mutex
	backlog *backlog      // guarded by mu: what waits for callbacks, else nil
	cold    *cold         // guarded by mu: what few connections need, else nil
	state   atomic.Uint32 // changed under mu

	subprotocol uint8 // its place in Options.Subprotocols, from 1; 0: none
	pings       pingState
	pongs       uint8    // the loop's: sent since the output was last seen to be empty
	overflow    Overflow // guarded by mu
}

// A cold part is what few connections need. It is allocated when it is needed.
type cold struct {
	early []byte     // frames written before the connection has arrived at its loop
	pong  *buf.Block // the payload of the latest ping, if it could not be answered yet
	end   error      // why the connection is closing, for OnClose: the first reason stays

	inbox   *inbox                     // of a connection that is read by Read
	windows *windows                   // of compression that keeps them
	slow    *outbox.Outbox[*buf.Block] // what waits for room; nil: there has always been room
	// members of groups that wait for room; guarded by Conn.mu as all of cold, unlike the members
	late  []*Member
	limit int // SetOverflow's

	pings *sentPings         // pings that wait for their pongs, for OnPong; nil: none
	life  *lifetime.Lifetime // nil: Context was not called, and there are no values for it

	lateSince int64 // when the first of late began to wait, in milliseconds; 0: none is
}

// The bits of Conn.state.
const (
	closeSent uint32 = 1 << iota // nothing may be written any more
	concluded                    // the peer's close frame or a violation has come: nothing it sends counts any more
	finRead                      // the peer has ended its side
	muted                        // no OnMessage any more
	dropped                      // CloseNow
	closed                       // by the engine
	offered                      // the kernel has refused what is queued, and there has been no room since
	inParts                      // a message in parts has begun: no other can be sent
	partsOver                    // it has ended, and the loop has not seen that
	joined                       // it is a member of a group, or was
	stalled                      // Write has waited for Options.WriteTimeout: it waits no more until there is room
)

// pingState is the loop's.
type pingState uint8

const (
	pinged   pingState = 1 << iota // and nothing has come since
	bounding                       // the timer bounds the closing handshake
)

func newConn(s *settings, t deflateTerms) *Conn {
	c := &Conn{reader: reader{rules: s.rulesFor(t)}, overflow: s.overflow}
	if s.pull {
		c.cold = &cold{inbox: new(inbox)}
	}
	return c
}

// settings are those that the rules of its reader belong to.
func (c *Conn) settings() *settings { return c.reader.rules.settings }

func (c *Conn) is(bits uint32) bool { return c.state.Load()&bits != 0 }

// set is called under mu.
func (c *Conn) set(bits uint32) { c.state.Store(c.state.Load() | bits) }

// needCold is called under mu.
func (c *Conn) needCold() *cold {
	if c.cold == nil {
		c.cold = new(cold)
	}
	return c.cold
}

// dropCold gives the cold part back if nothing is left in it. It is called under mu.
func (c *Conn) dropCold() {
	if r := c.cold; r != nil && r.early == nil && r.pong == nil && r.end == nil && r.inbox == nil && r.windows == nil &&
		r.slow.Empty() && r.late == nil && r.pings == nil && r.life == nil && r.limit == 0 {
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
	return c.settings().subprotocols[c.subprotocol-1]
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
