package sim

import (
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/bound"
)

const defaultReadBuffer = 16 << 10

// A Driver is one loop's. It checks its caller: what the contract forbids panics, as far as it can
// be noticed.
type Driver struct {
	w         *World
	loop      uint8
	name      string
	rbuf      []byte
	slots     []*conn
	free      []uint32
	queued    []*conn // those with something to tell, each once, in order
	batch     []*conn // those of the Poll that is running, or whose event did not return, that are still to be served
	looks     []driver.ID
	listeners []*conn
	full      bool // the last batch has left some of queued
	woken     bool
	closed    bool
	owner     *actor // the actor that polls, nil for a goroutine outside
	goid      uint64 // its goroutine, once it has polled
	calls     int
	inPoll    bool
	wt        *waiter // in Poll
}

// state is a slot's.
type state uint8

const (
	free state = iota
	listening
	dialing
	live
	ending // Close, Abort or Detach was called; the last event is to come
)

// A conn is a slot in use, by a connection or a listener.
type conn struct {
	d     *Driver
	index uint32
	gen   uint32
	state state

	e *end
	l *Listener

	out        output
	closeWrite bool
	paused     bool
	inFlight   bool // one receive was under way at Pause
	ended      bool // Ended was emitted
	sendErr    error

	isQueued  bool
	dial      *dial
	dialDone  bool
	dialErr   error
	last      func(ev driver.Events) // the last event, when it is due
	accepting bool                   // listener
}

// Open implements driver.System.
func (w *World) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.ReadBuffer <= 0 {
		o.ReadBuffer = defaultReadBuffer
	}
	d := &Driver{w: w, loop: loop, name: fmt.Sprintf("driver%d", loop), rbuf: make([]byte, o.ReadBuffer)}
	w.drivers = append(w.drivers, d)
	w.note(d.name, "open", 0, int64(o.ReadBuffer))
	if w.o.ThreadBound {
		return bound.New(d), nil
	}
	return d, nil
}

// Facilities implements driver.System.
func (w *World) Facilities() driver.Facilities {
	f := driver.Facilities{Linger: w.Linger}
	if !w.o.NoDetach {
		f.Moves = &driver.Moves{Unread: w.unread, Share: w.share, ShareListener: w.shareListener}
	}
	if w.o.Pairs {
		f.Pair = w.pair
	}
	return f
}

// pair is a link that no fault breaks.
func (w *World) pair() (driver.Socket, net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, b := w.newLink(driver.UnixAddr, driver.UnixAddr, true)
	w.queue.remove(a.planned)
	c := &netConn{w: w, e: b}
	b.holder = c
	w.keep(b, "net.Conn of a pair")
	return w.newSocket(a, "of a pair"), c, nil
}

// Name implements driver.System.
func (w *World) Name() string { return "sim" }

// sampled is how often a call from outside is checked against the goroutine's number, which is slow
// to find out.
const sampled = 16

// enter locks the world for a call by the driver's owner, and checks that the owner calls. A call
// of one actor for another, or of a goroutine outside for an actor, is always noticed; two
// goroutines outside are told apart in one call of sixteen. exit follows.
func (d *Driver) enter(op string) {
	w := d.w
	w.mu.Lock()
	if d.closed {
		w.mu.Unlock()
		w.fail("contract: %s after Shutdown of %s", op, d.name)
	}
	d.calls++
	if d.goid == 0 || w.caller() == d.owner && (d.owner != nil || d.calls%sampled != 0) {
		return
	}
	if g := driver.Goroutine(); g != d.goid {
		w.mu.Unlock()
		w.fail("contract: %s on goroutine %d, but goroutine %d owns %s: one goroutine makes every call but Wake", op, g,
			d.goid, d.name)
	}
}

// Own is Capabilities.Own.
func (d *Driver) Own() {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if d.inPoll {
		d.refuse("Own during Poll: a driver changes hands between two calls")
	}
	d.goid, d.owner = d.w.identity()
}

func (d *Driver) exit() { d.w.mu.Unlock() }

// disown is for when an event is ending the owner's goroutine: the next goroutine that polls is the
// owner.
func (d *Driver) disown() { d.goid, d.owner = 0, nil }

// refuse panics because the caller broke the contract; the lock is given back first so that a test
// can recover.
func (d *Driver) refuse(format string, args ...any) {
	d.w.mu.Unlock()
	defer d.w.mu.Lock() // for the caller's deferred exit
	d.w.fail("contract: "+format, args...)
}

// find is the slot that id names, unless it is stale or on its way out.
func (d *Driver) find(id driver.ID) *conn {
	if id.Loop() != d.loop || int(id.Slot()) >= len(d.slots) {
		return nil
	}
	c := d.slots[id.Slot()]
	if c.gen != id.Generation() || c.state == free || c.state == ending {
		return nil
	}
	return c
}

// conn is find for connections. A listener's id here is a mistake.
func (d *Driver) conn(op string, id driver.ID) *conn {
	c := d.find(id)
	if c != nil && c.state == listening {
		d.refuse("%s of listener %x: a listener knows StopAccept, ResumeAccept and CloseListener", op, uint64(id))
	}
	return c
}

func (d *Driver) listener(op string, id driver.ID) *conn {
	c := d.find(id)
	if c != nil && c.state != listening {
		d.refuse("%s of connection %x: it is not a listener", op, uint64(id))
	}
	return c
}

func (d *Driver) note(what string, c *conn, n int64) { d.w.note(d.name, what, uint64(c.id()), n) }

func (c *conn) id() driver.ID { return driver.MakeID(c.d.loop, c.index, c.gen) }

// take finds a free slot, by preference the one that was left last.
func (d *Driver) take(s state) (*conn, error) {
	var c *conn
	if n := len(d.free); n > 0 {
		c = d.slots[d.free[n-1]]
		d.free = d.free[:n-1]
	} else {
		if len(d.slots) >= min(d.w.o.MaxConns, driver.MaxSlots) {
			return nil, driver.ErrFull
		}
		c = &conn{index: uint32(len(d.slots))}
		d.slots = append(d.slots, c)
	}
	*c = conn{d: d, index: c.index, gen: nextGeneration(c.gen), state: s}
	return c, nil
}

func nextGeneration(gen uint32) uint32 {
	if gen++; gen == 0 {
		gen = 1 // the zero ID is never live
	}
	return gen
}

// release makes the slot free for another.
func (c *conn) release() {
	d := c.d
	c.out.drop()
	if c.e != nil && c.e.holder == c { // else a detached connection has its next holder
		c.e.holder = nil
	}
	*c = conn{d: d, index: c.index, gen: c.gen, state: free}
	d.free = append(d.free, c.index)
}

// Listen implements driver.Driver.
func (d *Driver) Listen(l driver.Listener) (driver.ID, error) {
	d.enter("Listen")
	defer d.exit()
	sl, ok := l.(*Listener)
	if !ok || sl.w != d.w {
		return 0, fmt.Errorf("sim: listen on %T of another system: %w", l, driver.ErrUnsupported)
	}
	if sl.closed {
		return 0, fmt.Errorf("sim: listen on %v: %w", sl.addr, net.ErrClosed)
	}
	c, err := d.take(listening)
	if err != nil {
		return 0, err
	}
	c.l, c.accepting = sl, true
	sl.readers = append(sl.readers, c)
	if !slices.Contains(d.listeners, c) { // its slot may have had one before
		d.listeners = append(d.listeners, c)
	}
	d.note("listen", c, 0)
	c.endChanged()
	return c.id(), nil
}

// StopAccept implements driver.Driver.
func (d *Driver) StopAccept(id driver.ID) {
	d.enter("StopAccept")
	defer d.exit()
	if c := d.listener("StopAccept", id); c != nil {
		d.note("stopaccept", c, 0)
		c.accepting = false
	}
}

// ResumeAccept implements driver.Driver.
func (d *Driver) ResumeAccept(id driver.ID) {
	d.enter("ResumeAccept")
	defer d.exit()
	if c := d.listener("ResumeAccept", id); c != nil {
		d.note("resumeaccept", c, 0)
		c.accepting = true
		c.endChanged()
	}
}

// CloseListener implements driver.Driver.
func (d *Driver) CloseListener(id driver.ID) {
	d.enter("CloseListener")
	defer d.exit()
	c := d.listener("CloseListener", id)
	if c == nil {
		return
	}
	d.note("closelistener", c, 0)
	c.l.forget(c)
	c.end(func(ev driver.Events) { ev.Closed(id, nil) })
}

func (l *Listener) forget(c *conn) {
	for i, other := range l.readers {
		if other == c {
			l.readers = append(l.readers[:i], l.readers[i+1:]...)
			return
		}
	}
}

// Attach implements driver.Driver.
func (d *Driver) Attach(s driver.Socket) (driver.ID, error) {
	d.enter("Attach")
	defer d.exit()
	sk, ok := s.(*Socket)
	if !ok || sk.w != d.w {
		d.w.mu.Unlock()
		defer d.w.mu.Lock()
		s.Close()
		return 0, fmt.Errorf("sim: attach of %T of another system: %w", s, driver.ErrUnsupported)
	}
	e := sk.give("Attach")
	if e == nil {
		return 0, driver.ErrStale
	}
	c, err := d.take(live)
	if err != nil {
		e.close()
		return 0, err
	}
	if e.holder != nil {
		d.w.fail("contract: Attach of a connection that another driver is attached to")
	}
	c.e = e
	e.holder = c
	d.note("attach", c, int64(e.id))
	c.endChanged()
	return c.id(), nil
}

// Dial implements driver.Driver.
func (d *Driver) Dial(addr net.Addr) (driver.ID, error) {
	d.enter("Dial")
	defer d.exit()
	switch addr.(type) {
	case *net.TCPAddr, *net.UnixAddr:
	default:
		return 0, fmt.Errorf("sim: dial of an address of type %T: %w", addr, driver.ErrUnsupported)
	}
	c, err := d.take(dialing)
	if err != nil {
		return 0, err
	}
	d.note("dial "+addr.String(), c, 0)
	gen := c.gen
	c.dial = d.w.connect(addr, func(e *end, err error) {
		if c.gen != gen || c.state != dialing {
			if e != nil {
				e.abort()
			}
			return
		}
		c.dial, c.dialDone, c.dialErr, c.e = nil, true, err, e
		if e != nil {
			e.holder = c
		}
		c.endChanged()
	})
	return c.id(), nil
}

// CloseWrite implements driver.Driver.
func (d *Driver) CloseWrite(id driver.ID) {
	d.enter("CloseWrite")
	defer d.exit()
	if c := d.conn("CloseWrite", id); c != nil {
		c.mustBeLive("CloseWrite")
		d.note("closewrite", c, 0)
		c.closeWrite = true
		c.pump()
	}
}

// Pause implements driver.Driver.
func (d *Driver) Pause(id driver.ID) {
	d.enter("Pause")
	defer d.exit()
	if c := d.conn("Pause", id); c != nil && !c.paused {
		d.note("pause", c, 0)
		c.paused, c.inFlight = true, d.w.chance(d.w.o.InFlight)
	}
}

// Resume implements driver.Driver.
func (d *Driver) Resume(id driver.ID) {
	d.enter("Resume")
	defer d.exit()
	if c := d.conn("Resume", id); c != nil && c.paused {
		d.note("resume", c, 0)
		c.paused, c.inFlight = false, false
		c.endChanged()
	}
}

// Close implements driver.Driver.
func (d *Driver) Close(id driver.ID) { d.closeOrAbort("Close", id, (*end).close) }

// Abort implements driver.Driver.
func (d *Driver) Abort(id driver.ID) { d.closeOrAbort("Abort", id, (*end).abort) }

func (d *Driver) closeOrAbort(op string, id driver.ID, give func(*end)) {
	d.enter(op)
	defer d.exit()
	c := d.conn(op, id)
	if c == nil {
		return
	}
	d.note(op, c, 0)
	if c.dial != nil {
		c.dial.cancel()
	}
	if c.e != nil {
		give(c.e)
		if c.e.holder == c { // another one has the connection, too
			c.e.holder = nil
		}
	}
	c.end(func(ev driver.Events) { ev.Closed(id, nil) })
}

// Detach implements driver.Driver.
func (d *Driver) Detach(id driver.ID) error {
	d.enter("Detach")
	defer d.exit()
	c := d.conn("Detach", id)
	switch {
	case c == nil || c.state != live:
		return driver.ErrStale
	case d.w.o.NoDetach:
		return driver.ErrUnsupported
	case !c.out.idle():
		return driver.ErrNotIdle
	}
	d.note("detach", c, 0)
	e := c.e
	e.holder = nil
	s := d.w.newSocket(e, "detached")
	c.end(func(ev driver.Events) { ev.Detached(id, s) })
	return nil
}

// end plans the last event. The blocks that are queued go now or with it, as on a ring.
func (c *conn) end(last func(ev driver.Events)) {
	w := c.d.w
	c.state = ending
	if w.chance(0.5) {
		c.out.drop()
	}
	due := func() {
		c.last = last
		c.tellOwner()
	}
	if w.chance(w.o.LateClose) {
		w.after(w.latency()+time.Microsecond, delivery, due)
		return
	}
	due()
}

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Own: d.Own, Look: d.Look, Full: d.Full, SendMany: d.SendMany}
}

// Full reports whether the last Poll has left connections with news.
func (d *Driver) Full() bool {
	d.enter("Full")
	defer d.exit()
	return d.full
}

// Look has the next Poll serve a connection alone.
func (d *Driver) Look(id driver.ID) {
	d.enter("Look")
	defer d.exit()
	if c := d.find(id); c != nil {
		d.note("look", c, 0)
		d.looks = append(d.looks, id)
	}
}

// lookNext takes those out of the queue that Look was given.
func (d *Driver) lookNext() (batch []*conn) {
	for _, id := range d.looks {
		c := d.find(id)
		if c == nil || !c.isQueued {
			continue
		}
		if i := slices.Index(d.queued, c); i >= 0 {
			d.queued = slices.Delete(d.queued, i, i+1)
			batch = append(batch, c)
		}
	}
	d.looks = d.looks[:0]
	return batch
}
