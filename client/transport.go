package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/mux"
)

const (
	// defaultHeadBytes is Transport.MaxResponseHeaderBytes for 0, as in net/http.
	defaultHeadBytes = 10 << 20
	// blockTimeout bounds an HTTP/2 field block, behind which all of a connection waits, unless
	// ResponseHeaderTimeout is shorter.
	blockTimeout = time.Minute
	// defaultQueued is Transport.MaxQueued for 0.
	defaultQueued = 1_000_000
	// defaultIdlePerHost is Transport.MaxIdleConnsPerHost for 0, as in net/http.
	defaultIdlePerHost = http.DefaultMaxIdleConnsPerHost
)

// A Transport is an http.RoundTripper on event loops. Its fields have the names and meanings of
// http.Transport's, and its zero value works. It must not be copied, and its fields not be changed,
// once it has been used. Any goroutine may call its methods.
type Transport struct {
	// Engine runs the connections. Nil: myriad.Default().
	Engine *myriad.Engine

	// Proxy says which proxy to use for a request: "http", "https", "socks5" or "socks5h"; nil:
	// none. It is called on the goroutine of RoundTrip or Do.
	Proxy func(*http.Request) (*url.URL, error)
	// OnProxyConnectResponse is called with the answer to CONNECT, on the loop. Its error ends the
	// dial.
	OnProxyConnectResponse func(ctx context.Context, proxyURL *url.URL, connectReq *http.Request,
		connectRes *http.Response) error
	// ProxyConnectHeader is sent with CONNECT.
	ProxyConnectHeader http.Header
	// GetProxyConnectHeader replaces ProxyConnectHeader. It is called on the goroutine that dials,
	// which may be a loop's.
	GetProxyConnectHeader func(ctx context.Context, proxyURL *url.URL, target string) (http.Header, error)

	// DialContext makes unencrypted connections in place of the engine. It costs a goroutine while
	// it runs, and a net.Conn without a descriptor costs two for as long as it lives
	// (Engine.Adopt).
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// DialTLSContext makes the connections for https without a proxy, with the costs of
	// DialContext.
	DialTLSContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// Dial and DialTLS are used where DialContext and DialTLSContext are nil. They are deprecated.
	Dial    func(network, addr string) (net.Conn, error)
	DialTLS func(network, addr string) (net.Conn, error)
	// TLSClientConfig is for https. Nil: the zero Config. Its NextProtos are offered behind the
	// Transport's; whether "h2" is among them depends on Protocols alone.
	TLSClientConfig *tls.Config
	// TLSHandshakeTimeout bounds the handshake. 0: no bound.
	TLSHandshakeTimeout time.Duration

	// DisableKeepAlives uses each connection for one request.
	DisableKeepAlives bool
	// DisableCompression keeps the Transport from asking for gzip and decompressing it.
	DisableCompression bool
	// MaxUncompressedBytes bounds a body that the Transport decompresses: what is beyond fails with
	// ErrBodyTooLarge. 0: no bound, because the body is decompressed as it is read.
	MaxUncompressedBytes int64

	// MaxIdleConns is how many idle connections are kept altogether. 0: no limit.
	MaxIdleConns int
	// MaxIdleConnsPerHost is the same for one host. 0: 2; negative: none.
	MaxIdleConnsPerHost int
	// MaxConnsPerHost is how many connections a host has, those being dialled included. At the
	// limit requests wait in order. A connection that drains is not counted: its server has sent
	// GOAWAY, or it closes behind a response. As many may drain as may be open. A dial whose
	// request has ended, or was served otherwise, gives its place up after two seconds at the
	// latest, if another request needs that. 0: no limit.
	MaxConnsPerHost int
	// MaxQueued is how many requests may wait for a connection altogether, also for one that is
	// being dialled. At the limit more fail with ErrQueueFull. 0: 1,000,000.
	MaxQueued int
	// IdleConnTimeout closes a connection that has been idle for so long. 0: no limit.
	IdleConnTimeout time.Duration
	// ResponseHeaderTimeout bounds the wait for a response's head after the request has been
	// written. 0: no limit.
	ResponseHeaderTimeout time.Duration
	// ExpectContinueTimeout is how long a request with "Expect: 100-continue" waits for the
	// server's agreement before it sends its body. 0: it does not wait.
	ExpectContinueTimeout time.Duration
	// MaxResponseHeaderBytes bounds a response's head, with the interim responses before it. 0: 10
	// MiB. A head has 16,384 fields at most.
	MaxResponseHeaderBytes int64

	// Protocols are those that may be spoken. UnencryptedHTTP2 without HTTP1 is HTTP/2 by prior
	// knowledge. Nil: HTTP/1, and HTTP/2 for https as in http.Transport. That is offered with
	// ForceAttemptHTTP2, or if TLSClientConfig and all dialers are nil. If TLSNextProto is not nil,
	// its "h2" decides alone.
	Protocols *http.Protocols
	// ForceAttemptHTTP2 offers HTTP/2 also with the fields named above.
	ForceAttemptHTTP2 bool
	// HTTP2 has settings of HTTP/2, such as MaxReceiveBufferPerStream (0: 64 KiB) and
	// MaxReceiveBufferPerConnection (0: 64 MiB). CountError runs on a loop and must not block.
	// Requests beyond the server's limit of streams get another connection, as MaxConnsPerHost
	// allows, unless StrictMaxConcurrentRequests has them wait.
	HTTP2 *http.HTTP2Config
	// TLSNextProto switches HTTP/2 off if it is not nil and has no "h2", as in http.Transport. Its
	// functions are not called: they take a *tls.Conn, and a loop has none.
	TLSNextProto map[string]func(authority string, c *tls.Conn) http.RoundTripper
	// ReadBufferSize and WriteBufferSize have no effect: a loop has one read buffer for all its
	// connections, and writes are not buffered.
	ReadBufferSize, WriteBufferSize int

	transportState
}

var _ http.RoundTripper = (*Transport)(nil)

// transportState is what a Transport has once it has been used.
type transportState struct {
	once    sync.Once
	started error // of once
	engine  *myriad.Engine
	sys     driver.System
	figures *figures
	parkers sync.Pool // of driver.Parker
	scratch sync.Pool // of *scratch
	heads   sync.Pool // of *[]byte
	mux     mux.Config
	pool    pool

	mu      sync.Mutex
	cancels map[*http.Request]*Call                      // guarded by mu: those with a Cancel channel
	others  atomic.Pointer[map[string]http.RoundTripper] // by scheme; written under mu
}

// init gives the transport its engine, once.
func (t *Transport) init() error {
	t.once.Do(func() {
		t.engine = t.Engine
		if t.engine == nil {
			t.engine, t.started = myriad.Default()
			if t.started != nil {
				return
			}
		}
		t.sys = t.engine.System()
		t.figures = t.engine.Shared(figuresKey{}, newFigures).(*figures)
		t.parkers.New = func() any { return t.sys.NewParker() }
		t.scratch.New = func() any { return new(scratch) }
		t.heads.New = func() any { return new([]byte) }
		t.mux = mux.Config{Client: true, HeaderList: t.limits(0).HeadBytes, HeadTimeout: blockTimeout, Now: t.sys.Now,
			Log: mux.NewLog(func(f mux.Fault) { t.engine.Logger().Warn("client: " + f.String()) })}
		if d := t.ResponseHeaderTimeout; d > 0 {
			t.mux.HeadTimeout = min(d, blockTimeout)
		}
		t.mux.Take(t.HTTP2)
		t.pool.init(t)
	})
	return t.started
}

// errRoundTripOnLoop says what to do instead.
var errRoundTripOnLoop = fmt.Errorf("client: RoundTrip on a loop's goroutine, where Do must be used: %w",
	myriad.ErrOnLoop)

// RoundTrip implements http.RoundTripper. It waits for the head of the response. On a loop's own
// goroutine it fails with myriad.ErrOnLoop; an inline task of the engine hands its loop off.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.init(); err != nil {
		closeBody(req)
		return nil, err
	}
	if !t.engine.HandOff() {
		closeBody(req)
		return nil, errRoundTripOnLoop
	}
	x := &Call{t: t, original: req, attempting: attempting{req: req}}
	if other := t.other(req); other != nil {
		r, err := x.roundTripBy(other)
		if !errors.Is(err, http.ErrSkipAltProtocol) {
			return r, err
		}
	}
	x.parker = t.parkers.Get().(driver.Parker)
	t.start(x)
	for !x.finished.Load() {
		x.parker.Park()
	}
	t.parkers.Put(x.parker)
	return x.response, x.err
}

// Do sends req without a goroutine that waits. done is called once: with the response, when its
// head has come, or with an error. It runs on a loop, or on the goroutine that ends the request's
// context, or before Do returns; it must not block. So the response's Body must not be read in it,
// where that would wait: OnBody gives the body by callback, and any other goroutine may read it.
//
// As a Body that is decompressed has to be read by a goroutine, Do does not ask for gzip by itself.
// A request body that is not in memory costs a goroutine while it is sent. Any goroutine.
func (t *Transport) Do(req *http.Request, done func(*http.Response, error)) *Call {
	x := &Call{t: t, original: req, attempting: attempting{req: req}, done: done}
	if err := t.init(); err != nil {
		closeBody(req)
		done(nil, err)
		return x
	}
	if other := t.other(req); other != nil {
		t.sys.Go(func() {
			r, err := x.roundTripBy(other)
			if errors.Is(err, http.ErrSkipAltProtocol) {
				t.start(x)
				return
			}
			x.phase.Store(uint32(Done))
			done(r, err)
		})
		return x
	}
	t.start(x)
	return x
}

// RegisterProtocol has rt serve the requests of a scheme, such as "file" by http.NewFileTransport.
// If rt fails with http.ErrSkipAltProtocol, the Transport goes on with the request itself. Do runs
// rt on a goroutine, and Call.Cancel does not reach it: use the request's context. It panics if the
// scheme is registered already. Any goroutine.
func (t *Transport) RegisterProtocol(scheme string, rt http.RoundTripper) {
	t.mu.Lock()
	defer t.mu.Unlock()
	others := map[string]http.RoundTripper{}
	if before := t.others.Load(); before != nil {
		maps.Copy(others, *before)
	}
	if others[scheme] != nil {
		panic("client: protocol " + scheme + " is registered already")
	}
	others[scheme] = rt
	t.others.Store(&others)
}

// other is what serves a request's scheme, or nil.
func (t *Transport) other(r *http.Request) http.RoundTripper {
	others := t.others.Load()
	if others == nil || r.URL == nil || r.URL.Scheme == "https" && upgrades(r) {
		return nil
	}
	return (*others)[r.URL.Scheme]
}

// start begins a call. If the request is invalid, or its context has ended, the call has not begun
// and has no phase: it fails with the plain error, as in net/http.
func (t *Transport) start(x *Call) {
	x.trace = traceOf(x.req.Context())
	t.figures.add(Queued)
	key, err := x.prepare()
	if err == nil {
		err = x.watch()
	}
	if err != nil {
		x.settle(nil)
		x.over(err)
		x.deliver(nil, err)
		return
	}
	x.trace.getConn(x.addr)
	t.pool.acquire(x, key)
}

// CloseIdleConnections closes connections that wait for a request. Those in use are not
// interrupted.
func (t *Transport) CloseIdleConnections() {
	if t.init() != nil {
		return
	}
	conns, muxes := t.pool.closeIdle()
	for _, pc := range conns {
		pc.retire()
	}
	for _, m := range muxes {
		m.c.Notify()
	}
}

// CancelRequest cancels a request that has a Cancel channel, as http.Client gives it for its
// Timeout. It has no effect on others: cancel their contexts.
func (t *Transport) CancelRequest(req *http.Request) {
	t.mu.Lock()
	x := t.cancels[req]
	t.mu.Unlock()
	if x != nil {
		x.cancel(x.canceled())
	}
}

// noteCancel has CancelRequest find x.
func (t *Transport) noteCancel(x *Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cancels == nil {
		t.cancels = map[*http.Request]*Call{}
	}
	t.cancels[x.original] = x
}

func (t *Transport) forgetCancel(req *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.cancels, req)
}

// strict reports whether calls beyond a server's limit of streams wait, instead of having another
// connection.
func (t *Transport) strict() bool { return t.HTTP2 != nil && t.HTTP2.StrictMaxConcurrentRequests }

// limits bounds a head, behind interim responses of so many bytes.
func (t *Transport) limits(interim int) h1.Limits {
	most := t.MaxResponseHeaderBytes
	if most <= 0 {
		most = defaultHeadBytes
	}
	n := int(max(1, min(most, h1.MaxHeadBytes)-int64(interim)))
	return h1.Limits{HeadBytes: n, LineBytes: n, Fields: maxFields}
}

// headTooLarge is the error of a response whose head is beyond its limit. A head with too many
// fields has it, too.
func (t *Transport) headTooLarge() error {
	return fmt.Errorf("net/http: server response headers exceeded %d bytes; aborted (Transport.MaxResponseHeaderBytes)",
		t.limits(0).HeadBytes)
}

// headError is the error of a head that cannot be parsed, behind interim responses or not.
func (t *Transport) headError(err error, interim bool) error {
	e, ok := errors.AsType[*h1.Error](err)
	switch {
	case !ok:
		return err
	case e.Status != http.StatusRequestHeaderFieldsTooLarge && e.Status != http.StatusRequestURITooLong:
		return errors.New("client: malformed HTTP response: " + e.Reason)
	case interim:
		return ErrInterim
	}
	return t.headTooLarge()
}

// speaks are the protocols that Transport.Protocols allows, or its default.
func (t *Transport) speaks() http.Protocols {
	if t.Protocols != nil {
		return *t.Protocols
	}
	var p http.Protocols
	p.SetHTTP1(true)
	if t.TLSNextProto != nil {
		p.SetHTTP2(t.TLSNextProto["h2"] != nil)
		return p
	}
	p.SetHTTP2(t.ForceAttemptHTTP2 || t.TLSClientConfig == nil && t.dialer() == nil && t.tlsDialer() == nil)
	return p
}

// mayH2 reports whether connections of a key may speak HTTP/2. A proxy that takes requests itself
// is spoken to in HTTP/1.
func (t *Transport) mayH2(k hostKey) bool {
	p := t.speaks()
	switch {
	case k.onlyH1 || k.addr == "":
		return false
	case k.scheme == "https":
		return p.HTTP2()
	}
	return p.UnencryptedHTTP2() && !p.HTTP1()
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

// isStale reports whether a connection has been idle for longer than IdleConnTimeout, although its
// timer has not ended: timers stand still while the system sleeps, or the process is stopped. So it
// is the wall clock that counts.
func (t *Transport) isStale(idleSince time.Time) bool {
	return t.IdleConnTimeout > 0 && !idleSince.IsZero() &&
		t.sys.Now().Round(0).Sub(idleSince.Round(0)) > t.IdleConnTimeout
}

// Clone returns a Transport with the same exported fields and no connections.
func (t *Transport) Clone() *Transport {
	return &Transport{
		Engine: t.Engine, Proxy: t.Proxy, OnProxyConnectResponse: t.OnProxyConnectResponse,
		ProxyConnectHeader: t.ProxyConnectHeader.Clone(), GetProxyConnectHeader: t.GetProxyConnectHeader,
		DialContext: t.DialContext, DialTLSContext: t.DialTLSContext, Dial: t.Dial, DialTLS: t.DialTLS,
		TLSClientConfig:     t.TLSClientConfig.Clone(),
		TLSHandshakeTimeout: t.TLSHandshakeTimeout, DisableKeepAlives: t.DisableKeepAlives,
		DisableCompression: t.DisableCompression, MaxUncompressedBytes: t.MaxUncompressedBytes,
		MaxIdleConns: t.MaxIdleConns, MaxIdleConnsPerHost: t.MaxIdleConnsPerHost, MaxConnsPerHost: t.MaxConnsPerHost,
		MaxQueued: t.MaxQueued, IdleConnTimeout: t.IdleConnTimeout, ResponseHeaderTimeout: t.ResponseHeaderTimeout,
		ExpectContinueTimeout: t.ExpectContinueTimeout, MaxResponseHeaderBytes: t.MaxResponseHeaderBytes,
		Protocols: clone(t.Protocols), ForceAttemptHTTP2: t.ForceAttemptHTTP2, HTTP2: clone(t.HTTP2),
		TLSNextProto: maps.Clone(t.TLSNextProto), ReadBufferSize: t.ReadBufferSize, WriteBufferSize: t.WriteBufferSize,
	}
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
