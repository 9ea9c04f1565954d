package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/tunnel"
	"github.com/myriad-go/myriad/tlsloop"
)

// A dialing makes one connection: to the server, or to a proxy and through it. It lives on when the
// call for which it was begun is served by another connection.
type dialing struct {
	t     *Transport
	host  *host
	x     *Call
	ctx   context.Context // with the values of the call's; it ends only where a program is given it
	proxy *url.URL
	addr  string // of the server
	https bool

	pc   *conn
	conn atomic.Pointer[myriad.Conn] // once it is connected
	over atomic.Bool                 // it stands, or has failed

	mu    sync.Mutex
	ended bool   // guarded by mu: it is cancelled, or has failed
	stop  func() // guarded by mu: ends ctx, or the engine's dial; nil: neither can end
}

// newDialing is called with the transport's lock. start begins it.
func newDialing(t *Transport, h *host, x *Call) *dialing {
	d := &dialing{t: t, host: h, x: x, proxy: x.proxy, addr: x.addr, https: h.key.scheme == "https"}
	if d.ctx = x.req.Context(); d.ctx.Done() != nil {
		d.ctx = context.WithoutCancel(d.ctx)
	}
	if d.proxy != nil || t.dialer() != nil || t.tlsDialer() != nil {
		d.ctx, d.stop = context.WithCancel(d.ctx)
	}
	return d
}

// end ends what is under way. Any goroutine.
func (d *dialing) end() {
	d.mu.Lock()
	d.ended = true
	stop := d.stop
	d.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// hasEnded reports whether end was called.
func (d *dialing) hasEnded() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended
}

// start dials, if there is anything to dial.
func (d *dialing) start() {
	if d == nil {
		return
	}
	pc := &conn{t: d.t, host: d.host, dial: d, inUse: true, h2: d.host.mayH2 && !d.https}
	d.pc = pc
	at := d.addr
	if d.proxy != nil {
		at = canonicalAddr(d.proxy)
	}
	h, err := d.handler(pc)
	if err != nil {
		d.fail(err)
		return
	}
	plain, secure := d.t.dialer(), d.t.tlsDialer()
	switch {
	case secure != nil && d.https && d.proxy == nil:
		d.t.sys.Go(func() { d.custom(at, secure, pc, pc) })
	case plain != nil:
		d.t.sys.Go(func() { d.custom(at, plain, pc, h) })
	default:
		d.engine(at, h)
	}
}

// engine has the engine dial.
func (d *dialing) engine(at string, h myriad.Handler) {
	cancel := d.t.engine.DialFunc(d.traced(), "tcp", at, h, d.connected)
	d.mu.Lock()
	ended := d.ended
	if d.stop == nil { // else it ends ctx, and by that the dial
		d.stop = cancel
	}
	d.mu.Unlock()
	if ended {
		cancel()
	}
}

// traced is the context of the engine's dial. The resolver is given the hooks for names alone: it
// would call those for connections with its own to a name server.
func (d *dialing) traced() context.Context {
	t := d.x.trace
	if t == nil {
		return d.ctx
	}
	names := &httptrace.ClientTrace{DNSStart: t.DNSStart, DNSDone: t.DNSDone}
	ctx := httptrace.WithClientTrace(withoutValues{d.ctx}, names)
	return driver.WithDialTrace(ctx, &driver.DialTrace{
		Start: func(network, addr string) {
			if t.ConnectStart != nil {
				t.ConnectStart(network, addr)
			}
		},
		Done: func(network, addr string, err error) {
			if t.ConnectDone != nil {
				t.ConnectDone(network, addr, err)
			}
		},
	})
}

// withoutValues is a context that has only the end of another one.
type withoutValues struct{ context.Context }

// Value implements context.Context.
func (withoutValues) Value(any) any { return nil }

// handler is what speaks first on the connection.
func (d *dialing) handler(pc *conn) (myriad.Handler, error) {
	var h myriad.Handler = pc
	if d.https {
		h = d.secure(pc, d.addr)
	}
	switch p := d.proxy; {
	case p == nil:
		return h, nil
	case socks(p):
		return tunnel.Socks(d.through(h))
	case d.https && p.Scheme == "https": // TLS in TLS: the inner one is on a conn of its own
		inner, err := d.tunnel(tunnel.Nested(d.t.engine, d.through(h), d.connected))
		return d.secure(inner, canonicalAddr(p)), err
	case d.https:
		return d.tunnel(h)
	}
	pc.plain = true
	if u := d.proxy.User; u != nil {
		pc.auth = tunnel.BasicAuth(u)
	}
	if d.proxy.Scheme == "https" {
		return d.secure(pc, canonicalAddr(d.proxy)), nil
	}
	return h, nil
}

// secure is the client's side of a handshake, and next behind it.
func (d *dialing) secure(next myriad.Handler, addr string) myriad.Handler {
	cfg := d.t.TLSClientConfig.Clone()
	if cfg == nil {
		cfg = &tls.Config{}
	}
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	cfg.NextProtos = d.offers(next, cfg.NextProtos)
	o := tlsloop.Options{Timeout: d.t.TLSHandshakeTimeout, Failed: func(*myriad.Conn, error, uint64) {}}
	if o.Timeout == 0 {
		o.Timeout = -1
	}
	o.Closed = func(_ *myriad.Conn, err error) {
		if err == nil {
			err = myriad.ErrClosed
		}
		d.traceTLS(tls.ConnectionState{}, err)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			d.fail(fmt.Errorf("TLS handshake timeout: %w", err))
			return
		}
		d.fail(fmt.Errorf("TLS handshake: %w", err))
	}
	return &handshaking{d, o.Client(cfg, next)}
}

// offers are the protocols for ALPN, with the user's behind the Transport's own. A proxy is offered
// none.
func (d *dialing) offers(next myriad.Handler, users []string) (names []string) {
	if next != myriad.Handler(d.pc) || !d.https {
		return nil
	}
	if d.host.mayH2 {
		if names = append(names, "h2"); d.t.speaks().HTTP1() {
			names = append(names, "http/1.1")
		}
	}
	for _, name := range users {
		if name != "h2" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// handshaking tells httptrace of the beginning of a handshake.
type handshaking struct {
	d    *dialing
	next myriad.Handler
}

func (h *handshaking) Opened(c *myriad.Conn) {
	if t := h.d.x.trace; t != nil && t.TLSHandshakeStart != nil {
		t.TLSHandshakeStart()
	}
	c.SetHandler(h.next, nil)
}

// Received is never called.
func (*handshaking) Received(*myriad.Conn, []byte) {}

// Closed is for a connection that ends before the handshake.
func (h *handshaking) Closed(_ *myriad.Conn, err error) { h.d.closed(err) }

func (d *dialing) traceTLS(state tls.ConnectionState, err error) {
	if t := d.x.trace; t != nil && t.TLSHandshakeDone != nil {
		t.TLSHandshakeDone(state, err)
	}
}

// A dialer is a user's function that makes connections.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

func (t *Transport) dialer() dialer    { return either(t.DialContext, t.Dial) }
func (t *Transport) tlsDialer() dialer { return either(t.DialTLSContext, t.DialTLS) }

func either(f dialer, old func(network, addr string) (net.Conn, error)) dialer {
	if f == nil && old != nil {
		return func(_ context.Context, network, addr string) (net.Conn, error) { return old(network, addr) }
	}
	return f
}

// custom runs the user's function, and adopts what it has made.
func (d *dialing) custom(at string, dial dialer, pc *conn,
	h myriad.Handler) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	nc, err := dial(ctx, "tcp", at)
	if err == nil && nc == nil {
		err = fmt.Errorf("client: DialContext gave neither a connection nor an error")
	}
	if tc, ok := nc.(*tls.Conn); ok && err == nil && h == myriad.Handler(pc) {
		if err = tc.HandshakeContext(ctx); err == nil {
			state := tc.ConnectionState()
			pc.tls = &state
		} else {
			_ = nc.Close()
		}
	}
	if err != nil {
		d.connected(nil, err)
		return
	}
	d.connected(d.t.engine.Adopt(nc, nil, h))
}

// connected is the end of the engine's part.
func (d *dialing) connected(c *myriad.Conn, err error) {
	if err != nil {
		d.fail(err)
		return
	}
	d.conn.Store(c)
	if d.hasEnded() && !d.over.Load() {
		c.Abort(context.Canceled)
	}
}

// cancel ends a dial that no call needs. Any goroutine.
func (d *dialing) cancel() {
	d.end()
	if c := d.conn.Load(); c != nil && !d.over.Load() {
		c.Abort(context.Canceled)
	}
	d.fail(context.Canceled)
}

// closed is for the handlers before conn: the connection has ended too early.
func (d *dialing) closed(err error) {
	if err == nil {
		err = errServerClosed
	}
	d.fail(err)
}

// stands is the end of a dial: pc is ready.
func (d *dialing) stands(pc *conn) {
	if d.over.Swap(true) {
		pc.c.Abort(nil)
		pc.dead, pc.c = true, nil
		return
	}
	if pc.tls != nil {
		d.traceTLS(*pc.tls, nil)
	}
	d.t.mu.Lock()
	d.host.dialing--
	d.host.spokeH1 = true
	var more []*dialing // those that have waited to know the protocol
	for next := d.t.dialFor(d.host); next != nil; next = d.t.dialFor(d.host) {
		more = append(more, next)
	}
	d.t.mu.Unlock()
	pc.dial = nil
	for _, next := range more {
		next.start()
	}
	if pc.t.IdleConnTimeout > 0 {
		pc.c.SetTimer(pc.t.IdleConnTimeout)
	}
	pc.free()
}

// standsMux is stands for HTTP/2.
func (d *dialing) standsMux(m *muxConn) bool {
	if d.over.Swap(true) {
		return false
	}
	if m.tls != nil {
		d.traceTLS(*m.tls, nil)
	}
	d.t.mu.Lock()
	defer d.t.mu.Unlock()
	d.host.dialing--
	if d.host.mux == nil {
		d.host.mux = m
	}
	return true
}

// fail ends the dial, once, and its call, if that still waits for it.
func (d *dialing) fail(err error) {
	if d.over.Swap(true) {
		return
	}
	d.end()
	if d.proxy != nil {
		err = &net.OpError{Op: "proxyconnect", Net: "tcp", Err: err}
	}
	d.t.mu.Lock()
	mine := d.x.waits && d.x.dial == d
	if mine {
		d.host.remove(d.x)
		d.x.dial = nil
		d.t.queued--
	}
	d.t.mu.Unlock()
	if mine {
		d.x.fail(err)
	}
	d.t.closed(d.host, true)
}
