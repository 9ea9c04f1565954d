package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/tunnel"
	"github.com/myriad-go/myriad/tlsloop"
)

// A dialing makes one connection: to the server, or to a proxy and through it. Each step is the
// myriad.Handler of the conn, and is replaced by the next one:
//
//	engine's dial, or DialContext -> TLS to the proxy -> CONNECT or SOCKS5 -> TLS to the server -> conn or muxConn
//
// It lives on when the call for which it was begun is served by another connection.
type dialing struct {
	t     *Transport
	ctx   context.Context // with the values of the call's; it ends only where a program is given it
	trace trace
	proxy *url.URL
	addr  string // of the server
	https bool
	began time.Time
	pc    *conn // what it makes
	host  *host
	dialPlace

	mu        sync.Mutex
	stop      func()       // guarded by mu: ends ctx, or the engine's dial; nil: neither can end
	c         *myriad.Conn // guarded by mu: once it is connected
	left      bool         // guarded by mu: end was called
	handshake *handshaking // guarded by mu: the latest of them
}

// dialPlace is what the pool keeps of a dial. It is guarded by pool.mu.
type dialPlace struct {
	x     *Call  // the call that waits for it and fails with it; nil: there is none
	spare *spare // then
	state dialState
}

// A dialState is what the pool knows of a dial.
type dialState uint8

const (
	dialUnderWay dialState = iota
	dialStood
	dialFailed
	dialCancelled
)

// newDialing is called with pool.mu. start begins it.
func newDialing(t *Transport, h *host, x *Call) *dialing {
	d := &dialing{t: t, host: h, trace: x.trace, proxy: x.proxy, addr: x.addr, https: h.key.scheme == "https",
		began: t.sys.Now()}
	if d.ctx = x.req.Context(); d.ctx.Done() != nil {
		d.ctx = context.WithoutCancel(d.ctx)
	}
	if d.proxy != nil || t.dialer() != nil || t.tlsDialer() != nil {
		d.ctx, d.stop = context.WithCancel(d.ctx)
	}
	return d
}

// isOver reports whether the dial has failed or was given up.
func (d *dialing) isOver() bool {
	d.t.pool.mu.Lock()
	defer d.t.pool.mu.Unlock()
	return d.state != dialUnderWay
}

// start dials.
func (d *dialing) start() {
	d.pc = &conn{t: d.t, pooled: pooled{host: d.host}, dial: d, idling: idling{inUse: true}}
	at := d.addr
	if d.proxy != nil {
		at = canonicalAddr(d.proxy)
	}
	h, err := d.handler()
	if err != nil {
		d.fail(err)
		return
	}
	plain, secure := d.t.dialer(), d.t.tlsDialer()
	switch {
	case secure != nil && d.https && d.proxy == nil:
		d.t.sys.Go(func() { d.custom(at, secure, d.pc) })
	case plain != nil:
		d.t.sys.Go(func() { d.custom(at, plain, h) })
	default:
		d.engine(at, h)
	}
}

// engine has the engine dial.
func (d *dialing) engine(at string, h myriad.Handler) {
	cancel := d.t.engine.DialFunc(d.trace.dial(d.ctx), "tcp", at, h, d.connected)
	d.mu.Lock()
	left := d.left
	if d.stop == nil { // else it ends ctx, and by that the dial
		d.stop = cancel
	}
	d.mu.Unlock()
	if left {
		cancel()
	}
}

// custom runs the user's function, and adopts what it has made.
func (d *dialing) custom(at string, dial dialer, h myriad.Handler) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	nc, err := dial(ctx, "tcp", at)
	if err == nil && nc == nil {
		err = errors.New("client: DialContext returned neither a connection nor an error")
	}
	if tc, ok := nc.(*tls.Conn); ok && err == nil && h == myriad.Handler(d.pc) {
		d.trace.handshakeStart()
		if err = tc.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			d.trace.handshakeDone(tls.ConnectionState{}, err)
			d.fail(err)
			return
		}
		state := tc.ConnectionState()
		d.pc.tls = &state
	}
	if err != nil {
		d.fail(d.toProxy(err))
		return
	}
	d.connected(d.t.engine.Adopt(nc, nil, h))
}

// connected is the end of the engine's part.
func (d *dialing) connected(c *myriad.Conn, err error) {
	if err != nil {
		d.fail(d.toProxy(dialError(err)))
		return
	}
	d.mu.Lock()
	d.c = c
	left := d.left
	d.mu.Unlock()
	if left {
		c.Abort(errAbandoned)
	}
}

// handler is what speaks first on the connection.
func (d *dialing) handler() (myriad.Handler, error) {
	pc := d.pc
	var h myriad.Handler = pc
	if d.https {
		h = d.secure(pc, d.addr, false)
	}
	switch p := d.proxy; {
	case p == nil:
		return h, nil
	case socks(p):
		by := d.through(h)
		by.Failed = func(err error) { d.fail(d.bySocks(err)) }
		h, err := tunnel.Socks(by)
		if err != nil {
			err = d.bySocks(err)
		}
		return h, err
	case d.https && p.Scheme == "https": // TLS in TLS: the inner one is on a conn of its own
		inner, err := d.tunnel(tunnel.Nested(d.t.engine, d.through(h), d.connected))
		return d.secure(inner, canonicalAddr(p), true), err
	case d.https:
		return d.tunnel(h)
	}
	pc.plain = true
	if u := d.proxy.User; u != nil {
		pc.auth = tunnel.BasicAuth(u)
	}
	if d.proxy.Scheme == "https" {
		return d.secure(pc, canonicalAddr(d.proxy), true), nil
	}
	return h, nil
}

// through is a dial by a proxy, behind which next speaks.
func (d *dialing) through(next myriad.Handler) *tunnel.Dial {
	return &tunnel.Dial{Proxy: d.proxy, Target: d.addr, Next: next, Timeout: tunnel.Timeout, Limits: d.t.limits(0),
		Failed: func(err error) { d.fail(d.t.headError(err, false)) }, Over: d.isOver,
		ServerFirst: d.host.mayH2 && !d.https}
}

// tunnel is the handler of a connection to an HTTP proxy until that has connected it to the server.
func (d *dialing) tunnel(next myriad.Handler) (myriad.Handler, error) {
	header := d.t.ProxyConnectHeader
	if d.t.GetProxyConnectHeader != nil {
		var err error
		if header, err = d.t.GetProxyConnectHeader(d.ctx, d.proxy, d.addr); err != nil {
			return nil, err
		}
	}
	if err := checkFields("proxy header", header); err != nil {
		return nil, err
	}
	if header = header.Clone(); header == nil {
		header = http.Header{}
	}
	if u := d.proxy.User; u != nil {
		header.Set("Proxy-Authorization", tunnel.BasicAuth(u))
	}
	asked := &http.Request{Method: "CONNECT", URL: &url.URL{Opaque: d.addr}, Host: d.addr, Header: header}
	judge := func(head *h1.ResponseHead) error { return d.judge(asked, head) }
	return tunnel.Connect(d.through(next), connectRequest(d.addr, header), judge), nil
}

func connectRequest(addr string, header http.Header) []byte {
	p := h1.AppendRequestLine(nil, "CONNECT", addr)
	host := addr
	if h := header.Get("Host"); h != "" {
		host = h
	}
	p = h1.AppendField(p, "Host", host)
	if _, set := header["User-Agent"]; !set {
		p = h1.AppendField(p, "User-Agent", userAgent)
	} else if agent := header.Get("User-Agent"); agent != "" {
		p = h1.AppendField(p, "User-Agent", agent)
	}
	return append(appendFields(p, header, noTrace, true), "\r\n"...)
}

// judge decides whether a proxy's answer to CONNECT connects. As in net/http only 200 does, and the
// reason is the error's text.
func (d *dialing) judge(asked *http.Request, head *h1.ResponseHead) error {
	r := newResponse(asked, false, head)
	r.Body = http.NoBody
	if f := d.t.OnProxyConnectResponse; f != nil {
		if err := f(d.ctx, d.proxy, asked, r); err != nil {
			return err
		}
	}
	switch {
	case head.Status == http.StatusOK:
		return nil
	case len(head.Reason) > 0:
		return errors.New(string(head.Reason))
	}
	return errors.New("unknown status code")
}

// secure is the client's side of a handshake with the server or the proxy, and next behind it.
func (d *dialing) secure(next myriad.Handler, addr string, proxy bool) myriad.Handler {
	cfg := d.t.TLSClientConfig.Clone()
	if cfg == nil {
		cfg = &tls.Config{}
	}
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	cfg.NextProtos = d.offers(next, cfg.NextProtos)
	h := &handshaking{proxy: proxy}
	o := tlsloop.Options{Timeout: d.t.TLSHandshakeTimeout, Failed: func(*myriad.Conn, error, uint64) {},
		Closed: h.failed}
	if o.Timeout == 0 {
		o.Timeout = -1
	}
	h.next = o.Client(cfg, next)
	d.mu.Lock()
	h.before, d.handshake = d.handshake, h
	if !d.left {
		h.d.Store(d)
	}
	d.mu.Unlock()
	return h
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

// handshaking begins a handshake. The connection keeps it, by tlsloop.Options, until it closes: so
// it lets go of the dial as soon as that is over.
type handshaking struct {
	d      atomic.Pointer[dialing] // nil: the dial is over
	next   myriad.Handler
	proxy  bool         // it is with the proxy
	before *handshaking // with the proxy
}

// Opened tells httptrace of the beginning.
func (h *handshaking) Opened(c *myriad.Conn) {
	if d := h.d.Load(); d != nil {
		d.trace.handshakeStart()
	}
	c.SetHandler(h.next, nil)
}

// Received is never called.
func (*handshaking) Received(*myriad.Conn, []byte) {}

// Closed is for a connection that ends before the handshake.
func (h *handshaking) Closed(c *myriad.Conn, err error) { h.failed(c, err) }

// failed is tlsloop.Options.Closed. The errors are those of crypto/tls, as in net/http.
func (h *handshaking) failed(_ *myriad.Conn, err error) {
	d := h.d.Load()
	if d == nil {
		return
	}
	switch {
	case err == nil:
		err = net.ErrClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errHandshakeTimeout
	}
	err = asRead(err)
	d.trace.handshakeDone(tls.ConnectionState{}, err)
	if h.proxy {
		err = d.toProxy(err)
	}
	d.fail(err)
}

// stands is the end of a dial: pc is ready for its first call. On the loop.
func (d *dialing) stands(pc *conn) {
	pc.dial = nil
	if pc.tls != nil {
		d.trace.handshakeDone(*pc.tls, nil)
	}
	if d.t.IdleConnTimeout > 0 {
		pc.c.SetTimer(d.t.IdleConnTimeout)
	}
	ok, err := d.t.pool.stood(d, pc)
	switch {
	case !ok:
		pc.state = connOver
		pc.c.Abort(errAbandoned)
	case err != nil:
		pc.retire()
	}
	d.release()
}

// standsMux is stands for HTTP/2. x is the connection's first call, if there is one. It returns
// false if the dial was given up. On the loop.
func (d *dialing) standsMux(m *muxConn) (x *Call, ok bool) {
	if m.tls != nil {
		d.trace.handshakeDone(*m.tls, nil)
	}
	x, ok = d.t.pool.stoodMux(d, m)
	d.release()
	return x, ok
}

// release has what lives as long as the connection let go of the dial, and so of its call.
func (d *dialing) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for h := d.handshake; h != nil; h = h.before {
		h.d.Store(nil)
	}
}

// fail ends the dial, and its call if that still waits for it. Any goroutine.
func (d *dialing) fail(err error) {
	d.t.pool.failed(d, asRead(err))
	d.end()
}

// toProxy is the error of a connection to the proxy, if there is one, as in net/http. What the
// proxy answers, and what the server does behind it, are errors of their own.
func (d *dialing) toProxy(err error) error {
	if d.proxy == nil {
		return err
	}
	return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: asRead(err)}
}

// bySocks is the error of a SOCKS5 proxy, as in net/http.
func (d *dialing) bySocks(err error) error {
	return &net.OpError{Op: "socks connect", Net: "tcp", Source: addrText(canonicalAddr(d.proxy)),
		Addr: addrText(d.addr), Err: asRead(err)}
}

// An addrText is a net.Addr of TCP that may have a name.
type addrText string

// Network implements net.Addr.
func (addrText) Network() string  { return "tcp" }
func (a addrText) String() string { return string(a) }

// abandon ends a dial that the pool has cancelled. Any goroutine.
func (d *dialing) abandon() {
	if c := d.end(); c != nil {
		c.Abort(errAbandoned)
	}
}

// end ends what is under way.
func (d *dialing) end() *myriad.Conn {
	d.mu.Lock()
	d.left = true
	stop, c := d.stop, d.c
	d.mu.Unlock()
	d.release()
	if stop != nil {
		stop()
	}
	return c
}
