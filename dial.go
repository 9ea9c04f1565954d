package myriad

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

const (
	// attemptDelay is how long Dial waits for one address before it tries the next one as well (RFC
	// 8305, section 5).
	attemptDelay = 250 * time.Millisecond
	// attemptTimeout is how long one address may take. It leaves room for three repetitions of a
	// lost SYN.
	attemptTimeout = 10 * time.Second
	// maxAddresses is how many of a name's addresses are tried.
	maxAddresses = 16
)

// Dial connects to addr ("tcp", "tcp4", "tcp6", "unix") and serves the connection with h. Names are
// resolved on the calling goroutine. Of several addresses (16 at most) one is tried after the
// other, a new one when one has failed or after 250 ms. Families alternate, beginning with that of
// the resolver's first address. The first to connect wins and the others are closed (Happy
// Eyeballs, RFC 8305). TCP connections have no delay (TCP_NODELAY) and keep-alive set.
//
// Dial waits until the connection stands or ctx ends, which bounds all of it. Besides, one address
// is given up after 10 s, and all of them after Config.DialTimeout, with os.ErrDeadlineExceeded.
// Each address that is being tried counts against Config.MaxConns: at the limit Dial fails with
// ErrTooMany. The error tells of every address that was tried. A unix socket whose backlog is full
// fails at once (EAGAIN), for the kernel keeps no client waiting there.
//
// h is opened once, with the connection that is returned; a failed Dial calls no handler. Any
// goroutine but a loop's, on which it fails with ErrOnLoop; an inline task of this engine hands its
// loop off.
func (e *Engine) Dial(ctx context.Context, network, addr string, h Handler) (*Conn, error) {
	c, err := e.dial(ctx, network, addr, h)
	if err != nil {
		return nil, fmt.Errorf("myriad: Dial %s %s: %w", network, addr, err)
	}
	return c, nil
}

func (e *Engine) dial(ctx context.Context, network, addr string, h Handler) (*Conn, error) {
	if !e.HandOff() {
		return nil, ErrOnLoop
	}
	addrs, err := e.sys.Resolve(ctx, network, addr)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, &net.AddrError{Err: "the name has no address", Addr: addr}
	}
	w := &dialWaiter{waiter: e.sys.NewParker()}
	r := &race{handler: h, addrs: interleave(addrs), tell: w.tell, trace: driver.DialTraceOf(ctx)}
	if !r.post(e) {
		return nil, errShutDown
	}
	return w.wait(ctx, r)
}

// post starts the race on a loop. It returns false if all loops have ended.
func (r *race) post(e *Engine) bool {
	for range e.loops {
		r.loop = e.nextLoop()
		if r.loop.Post(r.start) {
			return true
		}
	}
	return false
}

// interleave alternates the families, each in the resolver's order (RFC 8305, section 4), and keeps
// maxAddresses.
func interleave(addrs []net.Addr) []net.Addr {
	if len(addrs) == 1 {
		return addrs
	}
	first := familyOf(addrs[0])
	var mine, others []net.Addr
	for _, a := range addrs {
		if familyOf(a) == first {
			mine = append(mine, a)
		} else {
			others = append(others, a)
		}
	}
	mixed := make([]net.Addr, 0, len(addrs))
	for i := range max(len(mine), len(others)) {
		if i < len(mine) {
			mixed = append(mixed, mine[i])
		}
		if i < len(others) {
			mixed = append(mixed, others[i])
		}
	}
	return mixed[:min(len(mixed), maxAddresses)]
}

func familyOf(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.To4() == nil {
		return "tcp6"
	}
	return a.Network()
}

// A race is one Dial: attempts to connect, all of one loop, of which at most one wins. That loop
// owns it.
type race struct {
	loop    *Loop
	handler Handler
	addrs   []net.Addr // not tried yet
	running []*Conn    // attempts under way, the newest last
	until   int64      // loop time at which all of it ends
	failed  []error
	over    bool
	tell    func(*Conn, error) // is called once, with the winner after its handler was opened, or with the error
	trace   *driver.DialTrace  // nil: none
}

// dialing is one attempt. It stands in for the conn's handler while that connects, so that few
// bytes are needed for each of thousands of conns that dial at once.
type dialing struct {
	Handler // the race's, not to be called yet
	race    *race
	conn    *Conn
	addr    net.Addr
	until   int64 // loop time
}

// dialing is what a conn is while it connects.
func (c *Conn) dialing() *dialing { return c.handler.(*dialing) }

// A dialWaiter is a goroutine that waits for the end of a race.
type dialWaiter struct {
	waiter driver.Parker
	done   atomic.Bool
	conn   *Conn // written before done, as err is
	err    error
}

func (w *dialWaiter) tell(c *Conn, err error) {
	w.conn, w.err = c, err
	w.done.Store(true)
	w.waiter.Unpark()
}

// wait returns the result of r. When ctx ends it stops the race, and takes what comes of that: the
// connection may have been made in the same moment, and its handler opened.
func (w *dialWaiter) wait(ctx context.Context, r *race) (*Conn, error) {
	stop := context.AfterFunc(ctx, w.waiter.Unpark)
	defer stop()
	for told := false; !w.done.Load(); {
		w.waiter.Park()
		if err := ctx.Err(); err != nil && !told {
			told = true
			r.cancel(err)
		}
	}
	return w.conn, w.err
}

// cancel ends the race with err, unless it is over. Any goroutine.
func (r *race) cancel(err error) {
	r.loop.Post(func() { r.lose(errors.Join(append([]error{err}, r.failed...)...)) })
}

// start runs on the loop, as all that follows.
func (r *race) start() {
	r.until = r.loop.now + ceilMillis(r.loop.engine.cfg.DialTimeout)
	r.next()
}

// next tries the next address that can be tried, and ends the race when there is nothing left to
// hope for.
func (r *race) next() {
	for len(r.addrs) > 0 && !r.over && !r.loop.stopping {
		addr := r.addrs[0]
		r.addrs = r.addrs[1:]
		err := r.loop.attempt(r, addr)
		if err == nil {
			return
		}
		r.failed = append(r.failed, attemptError(addr, err))
	}
	switch {
	case r.over:
	case r.loop.stopping:
		r.lose(errors.Join(append([]error{errShutDown}, r.failed...)...))
	case len(r.running) == 0:
		r.lose(errors.Join(r.failed...))
	}
}

// attempt starts to connect to one address.
func (l *Loop) attempt(r *race, addr net.Addr) error {
	if !l.engine.quota.take() {
		l.engine.hits.tooMany.Add(1)
		return ErrTooMany
	}
	r.trace.Begin(addr)
	id, err := l.drv.Dial(addr)
	if err != nil {
		r.trace.End(addr, err)
		l.engine.quota.give()
		return err
	}
	c := newConn(l, r.handler)
	c.remote = driver.AddrOf(addr)
	c.status |= connecting
	d := &dialing{r.handler, r, c, addr, min(r.until, l.now+ceilMillis(attemptTimeout))}
	c.handler = d
	l.enter(c, id)
	r.running = append(r.running, c)
	due := d.until
	if len(r.addrs) > 0 {
		due = min(due, l.now+ceilMillis(attemptDelay))
	}
	l.wheel.Set(id.Slot(), due)
	return nil
}

// attemptDue is an attempt's timer: it has had its time, or the newest one has kept the next
// waiting for long enough.
func (l *Loop) attemptDue(c *Conn) {
	d := c.dialing()
	r := d.race
	switch {
	case r.over:
	case l.now >= d.until:
		l.drv.Close(c.id)
		d.finish(fmt.Errorf("no answer in time: %w", os.ErrDeadlineExceeded))
	default:
		l.wheel.Set(c.id.Slot(), d.until)
		if r.running[len(r.running)-1] == c {
			r.next()
		}
	}
}

// finish is for an attempt that has failed: the next address is tried at once.
func (d *dialing) finish(err error) {
	r := d.race
	if r.over || !r.leave(d.conn) {
		return
	}
	r.trace.End(d.addr, err)
	r.failed = append(r.failed, attemptError(d.addr, err))
	if r.loop.now >= r.until {
		r.addrs = nil
	}
	r.next()
}

// attemptError is why one address failed, in the form that package net gives it.
func attemptError(addr net.Addr, err error) error {
	if number, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError("connect", number)
	}
	return &net.OpError{Op: "dial", Net: addr.Network(), Addr: addr, Err: err}
}

// leave takes an attempt out of the race, and reports whether it was in it.
func (r *race) leave(c *Conn) bool {
	for i, other := range r.running {
		if other == c {
			r.running = append(r.running[:i], r.running[i+1:]...)
			return true
		}
	}
	return false
}

// lose ends the race, unless it is over: attempts under way are closed, and the caller is told.
func (r *race) lose(err error) {
	if r.over {
		return
	}
	r.giveUp()
	r.tell(nil, err)
}

// giveUp closes the attempts under way.
func (r *race) giveUp() {
	r.over = true
	for _, c := range r.running {
		r.loop.wheel.Clear(c.id.Slot())
		r.loop.drv.Close(c.id)
		r.trace.End(c.dialing().addr, context.Canceled)
	}
	r.running = nil
}

// dialed opens the handler of a connection that now stands: it has won. The others are closed
// before the handler may do anything.
func (l *Loop) dialed(c *Conn) {
	d := c.dialing()
	r := d.race
	r.trace.End(d.addr, nil)
	c.handler = r.handler
	c.status &^= connecting
	l.wheel.Clear(c.id.Slot())
	r.leave(c)
	r.giveUp()
	l.current.Store(c)
	l.openDialed(c, r)
	l.leave(c)
}

func (l *Loop) openDialed(c *Conn, r *race) {
	defer r.tell(c, nil)
	l.callOpened(c)
}
