package myriad

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
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
// Dial waits until the connection stands or ctx ends, which bounds all of it, and not the
// connection that stands. Besides, one address is given up after 10 s, and all of them after
// Config.DialTimeout, with os.ErrDeadlineExceeded. Each address that is being tried counts against
// Config.MaxConns: at the limit Dial fails with ErrTooMany. The error tells of every address that
// was tried. A unix socket whose backlog is full fails at once (EAGAIN), for the kernel keeps no
// client waiting there.
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

const (
	// maxLookups is how many goroutines ask the resolver for DialFunc at a time, in one engine.
	maxLookups = 256
	// maxLookupCallers is how many calls of DialFunc wait for the resolver. At the limit more of
	// them fail with ErrBusy.
	maxLookupCallers = 65_536
)

// DialFunc is Dial without a goroutine that waits. It returns at once, and done gets the result.
// ctx, limits and errors are those of Dial. done is called exactly once and must not block. With a
// connection it is called on that connection's loop, after h was opened. With an error it is called
// on any goroutine, perhaps before DialFunc returns. Any goroutine, a loop's too.
//
// A literal address, or a unix socket, costs no goroutine. A name does, for as long as it is being
// resolved, because package net can only wait for that. An engine resolves 256 names at a time, and
// one name once for all that dial it meanwhile. Others wait in order, 65,536 calls at most; more
// fail with ErrBusy. The resolver goes on when ctx ends, and done does not wait for it.
//
// cancel ends the dial as the end of ctx does. It takes less memory than a context that can be
// cancelled. It need not be called, has no effect once there is a connection, and does not wait for
// done. Any goroutine.
func (e *Engine) DialFunc(ctx context.Context, network, addr string, h Handler, done func(*Conn, error)) (
	cancel func()) {
	d := &dialFunc{engine: e, network: network, addr: addr, done: done,
		race: race{handler: h, trace: driver.DialTraceOf(ctx)}}
	if err := ctx.Err(); err != nil {
		d.finish(nil, err)
		return func() {}
	}
	if ctx.Done() != nil {
		d.mu.Lock()
		d.stop = context.AfterFunc(ctx, func() { d.cancel(ctx.Err()) })
		d.mu.Unlock()
	}
	if isLiteral(network, addr) {
		d.resolved(e.sys.Resolve(ctx, network, addr))
	} else {
		e.lookups.add(e, context.WithoutCancel(ctx), lookupKey{network, addr}, d.resolved)
	}
	return func() { d.cancel(context.Canceled) }
}

// isLiteral reports whether addr needs no resolver.
func isLiteral(network, addr string) bool {
	if network == "unix" {
		return true
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return true // Resolve fails at once
	}
	if _, err = netip.ParseAddr(host); err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// A dialFunc is one call of DialFunc.
type dialFunc struct {
	engine        *Engine
	network, addr string
	done          func(*Conn, error)
	race          race // its loop's once it is racing

	mu     sync.Mutex
	stop   func() bool // guarded by mu: of ctx
	racing bool        // guarded by mu: the name is resolved
	over   bool        // guarded by mu: done was called, or is about to be
}

// cancel ends the dial with the context's error. Any goroutine.
func (d *dialFunc) cancel(err error) {
	d.mu.Lock()
	over, racing := d.over, d.racing
	d.mu.Unlock()
	switch {
	case over:
	case racing:
		d.race.cancel(err)
	default:
		d.finish(nil, err)
	}
}

// resolved begins to connect. Any goroutine.
func (d *dialFunc) resolved(addrs []net.Addr, err error) {
	if err == nil && len(addrs) == 0 {
		err = &net.AddrError{Err: "the name has no address", Addr: d.addr}
	}
	if err != nil {
		d.finish(nil, err)
		return
	}
	d.race.addrs, d.race.tell = interleave(addrs), d.finish
	d.mu.Lock()
	posted := d.over || d.race.post(d.engine)
	d.racing = posted && !d.over
	d.mu.Unlock()
	if !posted {
		d.finish(nil, errShutDown)
	}
}

// finish calls done, once.
func (d *dialFunc) finish(c *Conn, err error) {
	d.mu.Lock()
	over, stop := d.over, d.stop
	d.over = true
	d.mu.Unlock()
	if over {
		return
	}
	if stop != nil {
		stop()
	}
	if err != nil {
		d.done(nil, fmt.Errorf("myriad: Dial %s %s: %w", d.network, d.addr, err))
		return
	}
	d.done(c, nil)
}

// lookups are the names that an engine resolves for DialFunc.
type lookups struct {
	mu      sync.Mutex
	running int
	callers int // of all names
	waiting []lookupKey
	known   map[lookupKey]*lookup
}

type lookupKey struct{ network, addr string }

// A lookup is one name, and what is to be called with its addresses.
type lookup struct {
	ctx     context.Context // the values of the first caller's
	callers []func([]net.Addr, error)
}

// add has told called with the addresses of a name.
func (s *lookups) add(e *Engine, ctx context.Context, key lookupKey, told func([]net.Addr, error)) {
	s.mu.Lock()
	if s.callers >= maxLookupCallers {
		s.mu.Unlock()
		told(nil, ErrBusy)
		return
	}
	s.callers++
	if known := s.known[key]; known != nil {
		known.callers = append(known.callers, told)
		s.mu.Unlock()
		return
	}
	if s.known == nil {
		s.known = map[lookupKey]*lookup{}
	}
	s.known[key] = &lookup{ctx, []func([]net.Addr, error){told}}
	s.waiting = append(s.waiting, key)
	start := s.running < maxLookups
	if start {
		s.running++
	}
	s.mu.Unlock()
	if start {
		e.sys.Go(func() { s.run(e) })
	}
}

// run resolves names until none waits.
func (s *lookups) run(e *Engine) {
	for {
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.running--
			s.mu.Unlock()
			return
		}
		key := s.waiting[0]
		s.waiting = s.waiting[1:]
		ctx := s.known[key].ctx
		s.mu.Unlock()
		addrs, err := e.sys.Resolve(ctx, key.network, key.addr)
		s.mu.Lock()
		callers := s.known[key].callers
		delete(s.known, key)
		s.callers -= len(callers)
		s.mu.Unlock()
		for _, told := range callers {
			told(addrs, err)
		}
	}
}
