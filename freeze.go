package myriad

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/wheel"
)

// This file is the seam by which connections move to another engine, mostly that of another
// process (docs/adr/0035). A move has three steps:
//
//  1. Freeze takes connections at rest out of their drivers. Their peers see a pause, and what they
//     send waits in the kernel.
//  2. Frozen.Records writes them down. The other engine makes frozen connections of the records:
//     Engine.Thaw and Frozen.Add.
//  3. One side lets go (Frozen.Moved), and then the other one goes on (Frozen.GoOn). Or the old one
//     goes on and the new one lets go (Frozen.Drop).
//
// The rule that keeps every byte: of the two engines at most one may have called GoOn, and it calls
// it after the other one can not call it any more. Package handover keeps the rule.

// A Freezer is a Handler whose connection can move to another engine. The methods run on the loop,
// and must not block.
//
// The life of a frozen connection: AtRest has returned true. From then on none of the handler's
// methods is called, and nothing is read. The conn may still be written to, by any goroutine; the
// bytes wait. Freeze is called, perhaps some milliseconds later, and perhaps several times. Then
// the connection goes on, here or in the other engine, and Notified is called once if the handler
// has that. Or Moved is called, or Closed if it has ended meanwhile.
type Freezer interface {
	Handler
	// Thawer is what makes the handler in the other engine: mostly the server that the connection
	// belongs to. It is comparable, as pointers are, and the same for many connections. Nil: this
	// connection cannot move.
	Thawer() Thawer
	// AtRest reports whether Freeze can write down all that there is of the connection. It cannot
	// while a message is half received or half sent. Nor can it while a callback or a goroutine of
	// the program works for the connection. The engine itself has found that its output has left,
	// that its sides are not closing, and that it has no layer. AtRest changes nothing.
	AtRest(c *Conn) bool
	// Freeze appends the protocol's state to dst, in the first of its Thawer's Formats. The
	// connection may still go on here, so Freeze changes nothing. If Freeze fails, the connection
	// goes on here. If the connection was written to, or asked for something, during the call, the
	// engine calls Freeze again. After eight such calls the connection goes on here.
	//
	// The engine adds what is its own: the rest of the timer, undelivered input, output that was
	// queued after AtRest, and the ends of both sides. Pause, SetWriteLimit and SetAddrs move, too.
	Freeze(c *Conn, dst []byte) ([]byte, error)
	// Moved is the last call, in place of Closed, when the other engine has the connection. The
	// peer notices nothing; the program, too, should take it that the connection goes on.
	Moved(c *Conn)
}

// A Thawer goes on with connections that another engine has frozen.
type Thawer interface {
	// Formats are the names of the states that Thaw reads, such as "websocket/1". The first is the
	// one that Freeze of its connections writes. Any goroutine.
	Formats() []string
	// Thaw returns the handler of a connection that was frozen with this state. Opened is not
	// called. c is frozen itself: it may be written to, SetTimer replaces the time that is left,
	// and no method of the handler is called before the connection goes on. It may still turn out
	// that it does not move: then Closed is called, with the reason, and the peer is the old
	// engine's. Until a method other than Closed is called, the handler does nothing that others
	// notice. A state that it does not understand is an error, which ends the whole move. It
	// copies what it keeps of state. On the loop.
	Thaw(c *Conn, format string, state []byte) (Handler, error)
}

// A Leaver is a Thawer that has connections which never move, because of their protocol. Leave is
// called when another process goes on with those that do: the others are to end in order, and take
// no further requests. Connections that may come to rest are left alone. Any goroutine but a
// loop's; it does not wait.
type Leaver interface {
	Thawer
	Leave()
}

// ErrNotMoved is what Closed gets for a connection that was thawed and does not move after all: it
// goes on in the engine that has frozen it.
var ErrNotMoved = errors.New("myriad: the connection goes on in the engine that it was to come from")

// Frozen are connections that no driver reads. They belong to their loops, keep their places among
// Config.MaxConns, and wait for one of GoOn, Moved and Drop. An engine that is shut down waits for
// that, too, until the context of Shutdown ends. The methods are for one goroutine at a time, which
// is not a loop's.
type Frozen struct {
	engine  *Engine
	parts   []frozenPart // one for each loop, which owns it; conns apart, the caller reads it while no loop runs for f
	leaving atomic.Int32 // connections whose driver has yet to give them up
	parker  driver.Parker
	left    int
}

// A frozenPart are the frozen connections of one loop.
type frozenPart struct {
	conns   []*frozenConn
	left    int // connections of these Thawers that are not at rest
	err     error
	records []Record
}

// A frozenConn is what the loop keeps of a frozen connection. Its conn's cold part points to it.
type frozenConn struct {
	conn *Conn
	set  *Frozen
	from Thawer        // of an own connection
	sock driver.Socket // nil until the driver has given it up
	due  int64         // when its timer is due, in milliseconds of the loop's clock; 0: it is not set
	born uint32        // see Loop.born
	over bool          // it has ended, or goes on, apart from the others
	doom error         // the loop has aborted before the driver has given it up
}

// A Record is a frozen connection as it goes to another engine.
type Record struct {
	// Thawer is that of the connection's Freezer in Records, and the one that is to go on with it
	// in Frozen.Add. Programs give both one name.
	Thawer Thawer
	Format string // which the Thawer has to understand
	State  []byte // of engine and protocol, at most 64 MiB
	// Socket is the connection itself. In Records it belongs to the Frozen. Add takes it, also on
	// error.
	Socket driver.Socket
}

// Freeze takes those connections out of their drivers whose Freezer has one of these Thawers, and
// that are at rest. For those that are not it looks again for wait, while the others are frozen
// already. On a busy machine the loops may hardly have run when wait is over. So Freeze goes on
// while further connections come to rest, for at most eight times wait. Frozen.Left says how many
// have not come to rest: they live on, and a later Freeze may find them at rest. It counts
// connections on their way to a loop, too: what handles them is not known yet. New connections are
// frozen as well, unless listeners are paused before.
//
// It fails with ErrUnsupported if the engine's driver cannot give sockets to another engine; then
// nothing is frozen. Any goroutine but a loop's.
func (e *Engine) Freeze(wait time.Duration, thawers ...Thawer) (*Frozen, error) {
	if e.has.Moves == nil {
		return nil, fmt.Errorf("myriad: Freeze: %w: the driver %s cannot share sockets", ErrUnsupported, e.sys.Name())
	}
	f := e.newFrozen()
	began, before, vain := e.sys.Now(), math.MaxInt, 0
	for {
		e.onLoops(func(l *Loop) { f.part(l).left += l.peersInHand() }) // before they are in an intake
		e.onLoops(func(l *Loop) { f.freezeAll(l, thawers) })
		for f.leaving.Load() > 0 {
			f.parker.Park()
		}
		f.left = 0
		var failure error
		for i := range f.parts {
			f.left += f.parts[i].left
			f.parts[i].left = 0
			failure = errors.Join(failure, f.parts[i].err)
		}
		if failure != nil {
			f.GoOn()
			return nil, failure
		}
		if vain++; f.left < before {
			before, vain = f.left, 0
		}
		took := e.sys.Now().Sub(began)
		if f.left == 0 || took >= wait && (vain >= vainLooks || took >= wait*mostWaits) {
			return f, nil
		}
		f.parker.ParkFor(restPause)
	}
}

const (
	// restPause is how long Freeze waits before it looks again for connections that were not at
	// rest.
	restPause = time.Millisecond
	// vainLooks is how often in a row it looks in vain before it counts that as no progress. The
	// loops run between two looks.
	vainLooks = 3
	// mostWaits is the longest time that Freeze takes, in multiples of its wait.
	mostWaits = 8
)

// Thaw returns an empty set, to which Frozen.Add adds connections that another engine has frozen.
// It fails with ErrUnsupported where the driver cannot. Any goroutine.
func (e *Engine) Thaw() (*Frozen, error) {
	if e.has.Moves == nil {
		return nil, fmt.Errorf("myriad: Thaw: %w: the driver %s cannot share sockets", ErrUnsupported, e.sys.Name())
	}
	return e.newFrozen(), nil
}

func (e *Engine) newFrozen() *Frozen {
	return &Frozen{engine: e, parts: make([]frozenPart, len(e.loops)), parker: e.sys.NewParker()}
}

// onLoops has f called on each loop that has not ended, and waits until all have returned.
func (e *Engine) onLoops(f func(l *Loop)) {
	var running atomic.Int32
	p := e.sys.NewParker()
	done := func() {
		if running.Add(-1) == 0 {
			p.Unpark()
		}
	}
	running.Store(1)
	for _, l := range e.loops {
		running.Add(1)
		if !l.Post(func() { defer done(); f(l) }) {
			running.Add(-1)
		}
	}
	done()
	for running.Load() > 0 {
		p.Park()
	}
}

// Len is how many connections are frozen.
func (f *Frozen) Len() int {
	var n atomic.Int64
	f.eachPart(func(_ *Loop, p *frozenPart) { // a loop that aborts ends them meanwhile
		for _, z := range p.conns {
			if !z.over {
				n.Add(1)
			}
		}
	})
	return int(n.Load())
}

// Left is how many connections Freeze has left, because they did not come to rest, and Records,
// because they could not be written down.
func (f *Frozen) Left() int { return f.left }

// part is f's part of a loop. The loop knows of f while there is something in it.
func (f *Frozen) part(l *Loop) *frozenPart { return &f.parts[l.index] }

func (f *Frozen) add(l *Loop, z *frozenConn) {
	p := f.part(l)
	if len(p.conns) == 0 {
		l.frozen = append(l.frozen, f)
	}
	p.conns = append(p.conns, z)
}

// forget ends f's part of the loop, and returns what was in it.
func (f *Frozen) forget(l *Loop) []*frozenConn {
	p := f.part(l)
	conns := p.conns
	p.conns = nil
	l.frozen = slices.DeleteFunc(l.frozen, func(other *Frozen) bool { return other == f })
	return slices.DeleteFunc(conns, func(z *frozenConn) bool { return z.over })
}

// freezeAll freezes what is at rest on the loop.
func (f *Frozen) freezeAll(l *Loop, thawers []Thawer) {
	p := f.part(l)
	p.left += l.intake.waiting()
	for slot := range uint32(l.conns.Len()) {
		c := l.conn(slot)
		if c == nil {
			w, ok := l.hibernation.waker(slot).(interface{ Thawer() Thawer })
			if !ok || !slices.Contains(thawers, w.Thawer()) {
				continue
			}
			c = l.hibernation.awake(slot)
		}
		h, ok := c.handler.(Freezer)
		if !ok || c.state() == frozen {
			continue
		}
		from := h.Thawer()
		if from == nil || !slices.Contains(thawers, from) {
			continue
		}
		switch frozen, err := f.freeze(c, h, from); {
		case err != nil && p.err == nil:
			p.err = err
		case !frozen:
			p.left++
		}
	}
}

// freeze takes c out of its driver if it is at rest.
func (f *Frozen) freeze(c *Conn, h Freezer, from Thawer) (bool, error) {
	l := c.loop
	if l.stopping || !c.settled() || !l.calls.atRest(c, h) || !c.settled() {
		return false, nil
	}
	switch err := l.drv.Detach(c.id); {
	case errors.Is(err, driver.ErrNotIdle), errors.Is(err, driver.ErrStale):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("myriad: Freeze of a connection from %v: %w", c.RemoteAddr(), err)
	}
	slot := c.id.Slot()
	z := &frozenConn{conn: c, set: f, from: from, born: *l.born.Row(slot)}
	if at, set := l.wheel.At(slot); set {
		z.due = max(1, at)
	}
	l.wheel.Clear(slot)
	c.ownCold().frozen = z
	c.advance(frozen)
	f.leaving.Add(1)
	f.add(l, z)
	return true, nil
}

// settled reports whether neither the engine nor another goroutine has something to do for c.
func (c *Conn) settled() bool {
	l := c.loop
	if c.state() != open || l.calls.current.Load() == c || l.calls.switching(c) || l.tasks.has(c) {
		return false
	}
	if x := c.cold.Load(); x != nil && (x.layer != nil || x.bridge != nil || x.peer != nil || x.sending) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.cold.Load(); x != nil && (len(x.files) > 0 || x.reason != nil) {
		return false
	}
	return c.queued.Load() == 0 && c.asked&^(shown|wantFIN) == 0 && (c.asked&wantFIN == 0 || c.is(finSent))
}

// left is the driver's word that it has given the connection up.
func (z *frozenConn) left(sock driver.Socket) {
	c := z.conn
	c.loop.remove(c)
	c.id = 0
	z.sock = sock
	if z.doom != nil {
		c.loop.dropFrozen(z, z.doom)
	}
	z.leaves()
}

func (z *frozenConn) leaves() {
	if z.set.leaving.Add(-1) == 0 {
		z.set.parker.Unpark()
	}
}

// ended is for a connection that has broken on its way out of the driver.
func (z *frozenConn) ended() {
	z.over = true
	z.leaves()
}

// eachPart has do called on each loop for the connections of f there, and waits.
func (f *Frozen) eachPart(do func(l *Loop, p *frozenPart)) {
	f.engine.onLoops(func(l *Loop) {
		if p := f.part(l); len(p.conns) > 0 {
			do(l, p)
		}
	})
}

// Records writes the frozen connections down. Those that fail, or that a Close, Abort or CloseWrite
// has been called for meanwhile, go on here and count as left. What is written to one after that
// does not move.
func (f *Frozen) Records() []Record {
	f.eachPart(func(l *Loop, p *frozenPart) {
		for _, z := range p.conns {
			if z.over {
				continue
			}
			state, err := l.calls.frozenState(z)
			if err == nil {
				err = l.engine.canLend(z.sock)
			}
			if err == nil {
				h := z.conn.handler.(Freezer)
				p.records = append(p.records, Record{Thawer: z.from, Format: h.Thawer().Formats()[0], State: state,
					Socket: z.sock})
				continue
			}
			if !errors.Is(err, ErrBusy) && !errors.Is(err, ErrUnsupported) {
				l.engine.cfg.Logger.Error("myriad: a connection cannot move, and goes on here", "remote",
					z.conn.remote.String(), "err", err)
			}
			p.left++
			z.over = true
			l.goOn(z)
		}
	})
	var all []Record
	for i := range f.parts {
		p := &f.parts[i]
		all = append(all, p.records...)
		f.left += p.left
		p.records, p.left = nil, 0
	}
	return all
}

// canLend fails for a socket that has no descriptor to give to another process, though those of its
// driver mostly have one: that of a net.Conn of the program's own, on the driver std.
func (e *Engine) canLend(s driver.Socket) error {
	if lend := e.has.Moves.Lend; lend != nil {
		return lend(s, func(uintptr) {})
	}
	return nil
}

// GoOn lets the connections go on in this engine: what their peers have sent is read, and what was
// written to them is sent. It returns when all are with their drivers.
func (f *Frozen) GoOn() {
	f.eachPart(func(l *Loop, _ *frozenPart) {
		for _, z := range f.forget(l) {
			l.goOn(z)
		}
	})
}

// Moved lets go of the connections, which another engine has: this process closes its descriptors,
// their peers see nothing of it, and Freezer.Moved is called.
func (f *Frozen) Moved() { f.drop(nil) }

// Drop lets go of thawed connections that do not move after all: Closed is called with err, or
// with ErrNotMoved if that is nil. Their peers see nothing of it, because the other engine has
// them.
func (f *Frozen) Drop(err error) {
	if err == nil {
		err = ErrNotMoved
	}
	f.drop(err)
}

func (f *Frozen) drop(err error) {
	f.eachPart(func(l *Loop, _ *frozenPart) {
		for _, z := range f.forget(l) {
			l.dropFrozen(z, err)
		}
	})
}

// goOn attaches a frozen connection to the driver.
func (l *Loop) goOn(z *frozenConn) {
	c := z.conn
	x := c.cold.Load()
	id, err := l.drv.Attach(z.sock)
	if err != nil {
		l.endFrozen(z, fmt.Errorf("myriad: go on with a frozen connection: %w", err))
		return
	}
	x.frozen = nil
	l.enter(c, id, open)
	*l.born.Row(id.Slot()) = z.born
	if z.due != 0 {
		l.wheel.Set(id.Slot(), z.due)
	}
	if c.is(paused) || x.held.Len() > 0 {
		l.drv.Pause(id)
	}
	if l.stopping {
		l.dismiss(c)
	}
	l.settler.renew(c, wantNotify)
}

// endFrozen is the end of a frozen connection whose socket is closed.
func (l *Loop) endFrozen(z *frozenConn, err error) {
	defer l.engine.admission.quota.release()
	z.conn.bury()
	l.calls.lastCall(z.conn, err)
}

// dropFrozen closes this process's descriptor. err is nil if the connection has moved.
func (l *Loop) dropFrozen(z *frozenConn, err error) {
	_ = z.sock.Close()
	if err != nil {
		l.endFrozen(z, err)
		return
	}
	defer l.engine.admission.quota.release()
	z.conn.bury()
	l.calls.moved(z.conn)
}

// dropAllFrozen ends the frozen connections of a loop that aborts.
func (l *Loop) dropAllFrozen(err error) {
	for len(l.frozen) > 0 {
		f := l.frozen[0]
		for _, z := range f.forget(l) {
			if z.doom = err; z.sock != nil { // else the driver's last event is to come
				l.dropFrozen(z, err)
			}
		}
	}
}

// setTimer is SetTimer of a frozen conn.
func (z *frozenConn) setTimer(now int64, d time.Duration) {
	z.due = 0
	if d != 0 {
		z.due = max(1, now+wheel.Millis(max(d, 0)))
	}
}

// toldAddrs are the addresses that a proxy has told, if it has.
func (c *Conn) toldAddrs() (local, remote netip.AddrPort) {
	if !c.remote.IsAnnounced() {
		return local, remote
	}
	return addrPort(c.LocalAddr().String()), addrPort(c.RemoteAddr().String())
}

func addrPort(s string) netip.AddrPort {
	a, _ := netip.ParseAddrPort(s)
	return a
}
