package tlsloop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

// Dial connects to addr as e.Dial does, and makes the client's side of a handshake. It returns when
// h has been opened, or with an error; a failed Dial calls no handler. cfg is used as by Client,
// except that an empty ServerName is taken from addr; nil is the zero Config. ctx and
// Options.Timeout bound the handshake, and not the connection after it. Any goroutine but a loop's.
func Dial(ctx context.Context, e *myriad.Engine, network, addr string, cfg *tls.Config, h myriad.Handler) (*myriad.Conn,
	error) {
	return Options{}.Dial(ctx, e, network, addr, cfg, h)
}

// Dial is the function Dial with these options. Without Failed only the caller gets the error.
func (o Options) Dial(ctx context.Context, e *myriad.Engine, network, addr string, cfg *tls.Config,
	h myriad.Handler) (*myriad.Conn, error) {
	d := &dialer{handler: h, waiter: e.System().NewParker(), closed: o.Closed}
	o.Closed = d.lost
	if o.Failed == nil {
		o.Failed = func(*myriad.Conn, error, uint64) {}
	}
	k := newKind(named(cfg, addr), true, o)
	c, err := e.Dial(ctx, network, addr, &opener{kind: k, pick: d.pick, heir: h, quiet: true})
	if err != nil {
		return nil, err
	}
	if err = d.wait(ctx, c); err != nil {
		return nil, fmt.Errorf("tlsloop: Dial %s %s: %w", network, addr, err)
	}
	return c, nil
}

// named is cfg with the name of the server.
func named(cfg *tls.Config, addr string) *tls.Config {
	host, _, err := net.SplitHostPort(addr)
	if cfg != nil && cfg.ServerName != "" || err != nil {
		return cfg
	}
	if cfg == nil {
		return &tls.Config{ServerName: host}
	}
	cfg = cfg.Clone()
	cfg.ServerName = host
	return cfg
}

// A dialer is one Dial, and the handler of its conn between the handshake and the caller's handler.
type dialer struct {
	handler myriad.Handler
	waiter  driver.Parker
	closed  func(*myriad.Conn, error) // Options.Closed
	decided atomic.Bool               // the handler is opened, or never will be
	done    atomic.Bool               // err is written before it
	err     error
}

func (d *dialer) pick(tls.ConnectionState) myriad.Handler { return d }

// Opened ends the wait once the caller's handler has been opened, unless the caller has given up.
func (d *dialer) Opened(c *myriad.Conn) {
	if d.decided.Swap(true) {
		return // it is being aborted
	}
	c.SetHandler(d.handler, nil)
	c.Loop().Later(func() { d.finish(nil) })
}

// Received is reached only by a conn that is being aborted.
func (*dialer) Received(*myriad.Conn, []byte) {}

// Closed is for a conn that breaks before the caller's handler is there.
func (d *dialer) Closed(_ *myriad.Conn, err error) { d.fail(err) }

// lost is for a conn whose handshake has not succeeded.
func (d *dialer) lost(c *myriad.Conn, err error) {
	if d.closed != nil {
		d.closed(c, err)
	}
	d.fail(err)
}

func (d *dialer) fail(err error) {
	if d.decided.Swap(true) {
		return
	}
	if err == nil {
		err = myriad.ErrClosed
	}
	d.finish(err)
}

func (d *dialer) finish(err error) {
	d.err = err
	d.done.Store(true)
	d.waiter.Unpark()
}

// wait is for the goroutine that dials.
func (d *dialer) wait(ctx context.Context, c *myriad.Conn) error {
	stop := context.AfterFunc(ctx, d.waiter.Unpark)
	defer stop()
	for !d.done.Load() {
		d.waiter.Park()
		if err := ctx.Err(); err != nil && !d.decided.Swap(true) {
			c.Abort(err)
			return err
		}
	}
	return d.err
}
