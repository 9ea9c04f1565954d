package std

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// A conn is one connection, or an attempt at one. The owner and the conn's goroutines share it
// under mu, which is never held during a wait for the network.
type conn struct {
	d    *Driver
	id   driver.ID
	nc   net.Conn        // set before its goroutines start; by Dial's, before dialled
	raw  syscall.RawConn // only of the net package's own sockets
	stop context.CancelFunc

	// The owner's.
	dialing   bool
	endedTold bool
	queued    int64 // output that has not been reported sent
	lending   int   // bytes of data that Received is being given
	over      bool  // the last event has been emitted

	mu      sync.Mutex
	turn    sync.Cond // where the reader waits for the owner
	running int       // goroutines
	listed  bool      // in the mailbox
	leaving leaving
	err     error // of the last event
	done    bool  // the last event may be emitted

	dialled  bool
	paused   bool
	waiting  activity // of the reader
	resting  bool     // watch has nothing to wait for just now
	poked    bool     // the read deadline has passed so that the reader looks up
	data     []byte   // received and not delivered
	lent     *[]byte  // the pooled buffer that data is in, nil if it is another
	ended    bool     // by the peer
	broken   error    // why nothing more can be received
	sendFail error    // why nothing more can be sent

	writing bool // a writer runs
	out     buf.Chain
	file    *File // behind out
	off     int64
	left    int64 // bytes of the file
	sent    int64 // to be reported
	fin     bool  // CloseWrite was called
	finSent bool
	short   bool // by Cut
	cut     bool // ending our side has closed the whole conn
}

// leaving is how a connection comes to its end.
type leaving uint8

const (
	staying  leaving = iota
	breaking         // it failed, and the owner does not know yet
	closing
	aborting
	detaching
)

// activity is what the reader does outside of mu.
type activity uint8

const (
	nothing activity = iota
	reading
	watching // for a reset, without taking bytes
)

func (d *Driver) newConn() *conn {
	c := &conn{d: d}
	c.turn.L = &c.mu
	return c
}

// Attach implements driver.Driver.
func (d *Driver) Attach(sock driver.Socket) (driver.ID, error) {
	s, ok := sock.(*Socket)
	if !ok || s.conn() == nil {
		sock.Close()
		return 0, fmt.Errorf("std: attach %T: %w", sock, driver.ErrUnsupported)
	}
	c := d.newConn()
	id, err := d.members.add(d.loop, c)
	if err != nil {
		sock.Close()
		return 0, err
	}
	c.id, c.data = id, s.ahead
	s.ahead = nil
	c.begin(s.take())
	return id, nil
}

// begin starts to read.
func (c *conn) begin(nc net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nc, c.raw = nc, rawConn(nc)
	if len(c.data) > 0 {
		c.list()
	}
	c.spawn(c.read)
}

// spawn starts one of the conn's goroutines. mu is held.
func (c *conn) spawn(f func()) {
	c.running++
	c.d.start(func() {
		defer c.exit()
		f()
	})
}

// list puts the conn into the mailbox. mu is held.
func (c *conn) list() {
	if !c.listed {
		c.listed = true
		c.d.mail.put(c)
	}
}

// Dial implements driver.Driver.
func (d *Driver) Dial(addr net.Addr) (driver.ID, error) {
	switch addr.(type) {
	case *net.TCPAddr, *net.UnixAddr:
	default:
		return 0, fmt.Errorf("std: dial %v: address of type %T: %w", addr, addr, driver.ErrUnsupported)
	}
	c := d.newConn()
	id, err := d.members.add(d.loop, c)
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(d.life)
	c.id, c.dialing, c.stop = id, true, stop
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spawn(func() { c.dial(ctx, addr) })
	return id, nil
}

// dial runs on a goroutine of its own.
func (c *conn) dial(ctx context.Context, addr net.Addr) {
	defer c.stop()
	dialer := net.Dialer{KeepAlive: -1, KeepAliveConfig: c.d.alive} // without Enable, KeepAlive counts
	dialer.SetMultipathTCP(false)
	nc, err := dialer.DialContext(ctx, addr.Network(), addr.String())
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.nc, c.dialled = nc, true
		c.list()
	case c.leaving == staying:
		c.leaving, c.err = breaking, err
	}
}

// conn finds a connection that stands and on which nothing has ended.
func (d *Driver) conn(id driver.ID) *conn {
	if c := d.live(id); c != nil && !c.dialing {
		return c
	}
	return nil
}

// live finds a connection that its owner has not told to end.
func (d *Driver) live(id driver.ID) *conn {
	c, ok := d.members.find(id).(*conn)
	if !ok || c.over {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving > breaking {
		return nil
	}
	return c
}

// Pause implements driver.Driver. What has been read already waits for Resume.
func (d *Driver) Pause(id driver.ID) {
	c := d.conn(id)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = true
	if c.sendFail != nil {
		c.list() // a paused connection reports it at once
	}
	c.turn.Signal() // to watch for a reset
}

// Resume implements driver.Driver.
func (d *Driver) Resume(id driver.ID) {
	c := d.conn(id)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = false
	if len(c.data) > 0 || c.ended {
		c.list()
	}
	if c.waiting == watching && !c.ended {
		c.poke()
	}
	c.turn.Signal()
}

// poke makes the reader look up from what it waits for. mu is held.
func (c *conn) poke() {
	if c.waiting != nothing && !c.poked {
		c.poked = true
		_ = c.nc.SetReadDeadline(longAgo)
	}
}

// Close implements driver.Driver.
func (d *Driver) Close(id driver.ID) {
	if c := d.live(id); c != nil {
		c.leave(closing, nil)
	}
}

// Abort implements driver.Driver.
func (d *Driver) Abort(id driver.ID) {
	if c := d.live(id); c != nil {
		c.leave(aborting, nil)
	}
}

// Detach implements driver.Driver.
func (d *Driver) Detach(id driver.ID) error {
	c := d.conn(id)
	switch {
	case c == nil:
		return driver.ErrStale
	case c.queued > 0:
		return driver.ErrNotIdle
	}
	c.mu.Lock()
	c.poked = true
	err := c.nc.SetReadDeadline(longAgo)
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("std: detach: the reader cannot be interrupted: %w: %w", driver.ErrUnsupported, err)
	}
	c.leave(detaching, nil)
	return nil
}

// report emits what has come since the last time: what was sent first, then bytes, then the end. At
// most one receive buffer.
func (c *conn) report(ev driver.Events) {
	c.mu.Lock()
	c.listed = false
	leaving, done, sent, dialled := c.leaving, c.done, c.sent, c.dialled
	c.sent, c.dialled = 0, false
	c.mu.Unlock()
	switch {
	case c.over:
		return
	case done:
		c.reportLast(leaving, ev)
		return
	case leaving != staying:
		return
	case dialled:
		c.dialing = false
		c.begin(c.nc)
		c.d.polled++
		ev.Dialed(c.id, driver.AddrOf(c.nc.LocalAddr()))
		return
	}
	if sent > 0 {
		c.queued -= sent
		c.d.polled++
		ev.Sent(c.id, sent)
	}
	c.reportInput(ev)
}

func (c *conn) reportInput(ev driver.Events) {
	c.mu.Lock()
	if c.leaving != staying {
		c.mu.Unlock()
		return
	}
	if p := c.data; len(p) > 0 && !c.paused && c.broken == nil {
		p = p[:min(len(p), c.d.room)]
		c.mu.Unlock()
		c.d.polled++
		c.lending = len(p)
		ev.Received(c.id, p[:len(p):len(p)])
		c.consumed()
		return
	}
	drained := c.ended && len(c.data) == 0
	err := c.broken
	if err == nil && (c.paused || drained) {
		err = c.sendFail
	}
	tell := drained && !c.paused && !c.endedTold
	c.mu.Unlock()
	switch {
	case err != nil:
		c.leave(breaking, err)
	case tell:
		c.endedTold = true
		c.d.polled++
		ev.Ended(c.id)
	}
}

// interrupted implements member.
func (c *conn) interrupted() {
	if c.lending > 0 {
		c.consumed()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list()
}

// consumed lets the reader go on.
func (c *conn) consumed() {
	n := c.lending
	c.lending = 0
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving == detaching {
		c.data = append([]byte(nil), c.data[n:]...)
		c.giveBack()
		return
	}
	if c.data = c.data[n:]; len(c.data) == 0 {
		c.data = nil
		c.giveBack()
	}
	if len(c.data) > 0 || c.ended || c.sendFail != nil {
		c.list()
	}
	c.turn.Signal()
}

// giveBack returns the pooled buffer. mu is held.
func (c *conn) giveBack() {
	if c.lent != nil {
		c.d.buffers.Put(c.lent)
		c.lent = nil
	}
}
