package myriad

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/myriad-go/myriad/internal/driver"
)

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
