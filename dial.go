package myriad

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/myriad-go/myriad/internal/driver"
)

// dialing is one attempt to connect, shared by the goroutine that waits for it and the loop.
type dialing struct {
	waiter driver.Parker
	done   atomic.Bool
	err    error // written before done
}

func (d *dialing) finish(err error) {
	if d.done.Load() {
		return
	}
	d.err = err
	d.done.Store(true)
	d.waiter.Unpark()
}

// Dial connects to addr ("tcp", "tcp4", "tcp6", "unix") and serves the connection with h. Names are resolved on the calling
// goroutine; the addresses are tried in order. It waits until the connection stands or ctx ends; a
// failed Dial calls no handler. Any goroutine but a loop's.
func (e *Engine) Dial(ctx context.Context, network, addr string, h Handler) (*Conn, error) {
	addrs, err := e.sys.Resolve(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("myriad: Dial %s %s: %w", network, addr, err)
	}
	var errs []error
	for _, a := range addrs {
		c, err := e.dialOne(ctx, a, h)
		if err == nil {
			return c, nil
		}
		errs = append(errs, fmt.Errorf("%v: %w", a, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("myriad: Dial %s %s: %w", network, addr, errors.Join(errs...))
}

func (e *Engine) dialOne(ctx context.Context, addr net.Addr, h Handler) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := e.nextLoop()
	c := newConn(l, h)
	c.remote = driver.AddrOf(addr)
	d := &dialing{waiter: e.sys.NewParker()}
	c.ownExtra().dial = d
	if !l.post(func() { l.dial(c, d, addr) }) {
		return nil, ErrClosed
	}
	stop := context.AfterFunc(ctx, d.waiter.Unpark)
	defer stop()
	for !d.done.Load() {
		d.waiter.Park()
		if err := ctx.Err(); err != nil && !d.done.Load() {
			l.post(func() { l.abandon(c, d, err) })
			ctx = context.WithoutCancel(ctx)
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	return c, nil
}

// dial runs on the loop.
func (l *Loop) dial(c *Conn, d *dialing, addr net.Addr) {
	if l.stopping {
		d.finish(ErrClosed)
		return
	}
	id, err := l.drv.Dial(addr)
	if err != nil {
		d.finish(err)
		return
	}
	c.status |= connecting
	l.enter(c, id)
}

// abandon ends an attempt whose caller has given up, unless it has just succeeded.
func (l *Loop) abandon(c *Conn, d *dialing, err error) {
	if !d.done.Load() {
		d.finish(err)
		l.drv.Close(c.id)
	}
}

// dialed opens the handler of a connection that now stands.
func (l *Loop) dialed(c *Conn) {
	x := c.extra.Load()
	d := x.dial
	x.dial = nil
	c.status &^= connecting
	l.current.Store(c)
	l.callOpened(c)
	d.finish(nil)
	l.leave(c)
}
