package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/retryafter"
	"github.com/myriad-go/myriad/web/internal/exchange"
	"github.com/myriad-go/myriad/web/internal/http1"
	"github.com/myriad-go/myriad/web/internal/http2"
	"github.com/myriad-go/myriad/workers"
)

// inlineQueue is how many bytes may wait for a client whose next request is to run on the loop.
const inlineQueue = 64 << 10

// Server serves HTTP on an engine's loops. Fields that http.Server has mean the same here; they
// must not change once the server serves. The zero value works.
type Server struct {
	Addr    string       // for ListenAndServe; "" is ":http"
	Handler http.Handler // nil: http.DefaultServeMux

	// DisableGeneralOptionsHandler passes "OPTIONS *" to the handler.
	DisableGeneralOptionsHandler bool

	// TLSConfig is for the TLS methods, which use a copy of it. Zero means what crypto/tls means by
	// it: TLS 1.2 and up.
	TLSConfig *tls.Config
	// LeanTLS has connections of TLS 1.3 with AES-GCM leave crypto/tls behind their handshake: see
	// tlsloop.Options. What Hijack returns for one is no *tls.Conn.
	LeanTLS bool
	// TLSNextProto has functions for protocols that ALPN has chosen, in place of Handler;
	// TLSConfig.NextProtos must name them, but for "h2". Such a connection leaves the engine, and
	// the function has it for itself on a goroutine until it returns, which Shutdown waits for
	// (RegisterOnShutdown may hasten it). The *http.Server has this server's settings and serves
	// nothing. The handler does what this server does for "OPTIONS *", and has a method BaseContext
	// with what ConnContext has returned. The *myriad.Conn of ConnState does nothing meanwhile.
	TLSNextProto map[string]func(*http.Server, *tls.Conn, http.Handler)

	// Protocols are the versions of HTTP that are served. HTTP2 is HTTP/2 over TLS, which ALPN
	// chooses; if TLSNextProto has "h2", that serves it. UnencryptedHTTP2 is HTTP/2 without TLS for
	// clients that begin with its preface ("prior knowledge"). Without HTTP1 a connection that
	// comes to nothing else is closed. nil: HTTP1, and HTTP2 unless TLSNextProto is set and has no
	// "h2".
	Protocols *http.Protocols
	// HTTP2 has limits for HTTP/2. These fields have defaults of their own, and what is said here:
	//
	//   - MaxConcurrentStreams (0: 250): requests of a connection that are neither answered yet nor
	//     cancelled by the client. Twice as many handlers may run, with those of requests that are.
	//     Beyond either number further requests are refused. A client that cancels more than four
	//     times as many, and at least 500, within one round trip, may lose its connection.
	//   - MaxReceiveBufferPerStream (0: 64 KiB): bytes of a request's body that may wait for its
	//     handler. 4 MiB or more count as 0.
	//   - MaxReceiveBufferPerConnection (0: 1 MiB): bytes that may wait in all streams together.
	//     Less than 64 KiB, and 4 MiB or more, count as 0. The server raises it to an eighth of
	//     MaxConcurrentStreams times MaxReceiveBufferPerStream, which is 2,048,000 bytes by
	//     default, so that slow uploads leave room for others.
	//   - MaxReadFrameSize (0: 16 KiB) and MaxDecoderHeaderTableSize (0: 4 KiB).
	//   - CountError: it runs on a loop and must not block. The server calls it with names such as
	//     "stream_protocol_error".
	//
	// The other fields mean the same as in net/http.
	HTTP2 *http.HTTP2Config
	// Tunnels offers the extended CONNECT to HTTP/2 clients (RFC 8441). Browsers then open
	// WebSockets on the HTTP/2 connection that they have. The handler gets the method CONNECT, a
	// path, and the protocol as r.Header[":protocol"]; websocket.Accept and Tunnel accept it.
	// False: browsers open an HTTP/1.1 connection for each WebSocket. A handler that knows Upgrade
	// or Hijack alone needs that.
	Tunnels bool

	// ReadTimeout bounds reading a request with its body, ReadHeaderTimeout its head (0:
	// ReadTimeout), WriteTimeout the time from the end of the head to the end of the answer (then
	// the connection is reset), IdleTimeout the wait for the next request (0: ReadTimeout). A
	// connection that waits keeps its place among the engine's Config.MaxConns, at which new
	// clients wait: nothing but IdleTimeout ends it. 0 everywhere: no bound, except that the first
	// head must have come within a minute of the connection's beginning, and each other within a
	// minute of its own.
	ReadTimeout       time.Duration
	ReadHeaderTimeout time.Duration
	WriteTimeout      time.Duration
	IdleTimeout       time.Duration

	// ProxyProtocol are the networks of load balancers whose connections begin with a header of the
	// PROXY protocol, version 1 or 2; so do all on a unix socket. Request.RemoteAddr, the net.Conn
	// of ConnContext and ConnState, and the log have the client's address then. ConnState and
	// ConnContext are called when the header has come; it comes before TLS. A connection from a
	// trusted network is reset and logged if it has no header, a wrong one, or one that takes
	// longer than the first head may. From all others a header is a malformed request: they are
	// ordinary clients. A net.Conn that a listener of Serve has wrapped, or whose handshake it has
	// made, has no header here. Nil: there are none, also on unix sockets. See package proxyproto.
	ProxyProtocol []netip.Prefix

	// MaxHeaderBytes bounds a request's head, of which 4,096 bytes more are let pass, as in
	// net/http. Beyond that it is answered with 431, as are more than 1,024 fields, or with 414 if
	// its first line alone is too long. At a time 32 connections of a loop may have more than 32
	// KiB of an incomplete head. Others wait, while their time for a head runs. 0 or less:
	// http.DefaultMaxHeaderBytes.
	MaxHeaderBytes int
	// MaxBodyBytes bounds a request's body, beyond which it is answered with 413, or its Read fails
	// with *http.MaxBytesError. 0: no bound; memory is bounded nevertheless, because bodies stream.
	MaxBodyBytes int64

	// ConnState and ConnContext run on a loop, on Serve's goroutine, or on that of a handler which
	// has outlived its connection, and must not block. With either of them an idle connection among
	// many costs some 200 bytes more, because it has to stay the net.Conn that they were given.
	ConnState   func(net.Conn, http.ConnState)
	ConnContext func(ctx context.Context, c net.Conn) context.Context
	BaseContext func(net.Listener) context.Context
	ErrorLog    *log.Logger // nil: the log package's

	// Engine runs the connections. Nil: myriad.Default(). Shutdown and Close never stop it.
	Engine *myriad.Engine
	// Dispatch chooses where the handler runs. 0: DispatchAuto.
	Dispatch Dispatch
	// Workers is the most handlers that run at once on the pool, without those that wait for their
	// client (Overload). Goroutines are started as needed, a thousand within milliseconds when
	// handlers block, and retire when idle. A handler that waits for a request to the same server
	// needs a worker for that request too. Overload says what happens to requests above the limit.
	// 0: workers.DefaultWorkers, which is 16,384.
	Workers int
	// Overload is what happens when Workers handlers run: OverloadQueue, OverloadRefuse or
	// OverloadPause.
	Overload Overload
	// Queue is the most requests that wait while Workers handlers run or are about to; further ones
	// are answered with 503. 0: workers.DefaultQueue, which is 65,536.
	Queue int
	// PipelineDepth is how many pipelined requests of one connection may run at once, at most
	// 1,024; their answers leave in order, and each but the first in line waits with at most 64
	// KiB, then its handler does. Requests with a body, and those behind one that may end HTTP on
	// the connection, begin when everything before them has been answered. 0 is 1.
	PipelineDepth int

	// ReuseRequests uses the memory of a request again for a later one on any connection, once the
	// handler has returned: the *http.Request, its Header, URL and context, and the ResponseWriter
	// with its Header. It saves most of the garbage of a small request, and it is dangerous: a
	// handler that keeps one of these, or uses it on a goroutine of its own, sees or answers
	// another client's request. So no goroutine may outlive the handler with any of them, and what
	// is handed on must be copied (Request.Clone). Strings taken from a request stay as they are.
	// Requests with a body, and those from whose context another was derived, are never used again.
	// Without it nothing that a handler is given is.
	ReuseRequests bool

	// ThawStream is called with each Stream that comes from another process, and with what the
	// function of its OnFreeze has appended there. It keeps s, and sets OnClose, OnDrained and
	// OnFreeze anew. An error ends the whole hand-over. It runs on the loop, and must not block.
	ThawStream func(s *Stream, state []byte) error

	mostAwake int // mostAwake, if above 0: for tests

	once    sync.Once
	initErr error
	state   *state
	closing atomic.Bool
	noAlive atomic.Bool // SetKeepAlivesEnabled(false)

	mu         sync.Mutex
	listeners  map[*listening]struct{}
	onShutdown []func()
}

// state is what a server has once it serves.
type state struct {
	exchange.Server
	http1   http1.Server
	http2   http2.Server
	lanes   []*lane      // by loop
	shaking shaking      // *tls.Conns in their handshake
	given   shaking      // and those that a function of TLSNextProto has
	std     *http.Server // for http.ServerContextKey

	thawOnce sync.Once
	thaws    *front // of connections that another process has accepted
}

// A lane is a server's state on one loop, and owned by that loop.
type lane struct {
	exchange.Lane
	h1      http1.Lane
	s       *Server
	st      *state
	greeted greeting // connections that have not come to HTTP: PROXY headers, TLS handshakes
}

// listening is one Serve call.
type listening struct {
	stop func() error
	done chan struct{}
}

// ListenAndServe listens on the TCP address addr (":http" if it is empty) and serves h on the
// default engine, as http.ListenAndServe does. If h is nil, it serves http.DefaultServeMux. It
// returns an error always. Use a Server for timeouts, limits and Shutdown.
func ListenAndServe(addr string, h http.Handler) error {
	return (&Server{Addr: addr, Handler: h}).ListenAndServe()
}

// ListenAndServeTLS is ListenAndServe for HTTPS, on ":https" if addr is empty. The files hold a
// certificate with its chain, and its key, in PEM.
func ListenAndServeTLS(addr, certFile, keyFile string, h http.Handler) error {
	return (&Server{Addr: addr, Handler: h}).ListenAndServeTLS(certFile, keyFile)
}

// Serve accepts connections from l and serves h on the default engine, as http.Serve does; h may be
// nil: http.DefaultServeMux. It closes l and returns an error always: closing l ends it.
// Server.Serve says which listeners cost goroutines.
func Serve(l net.Listener, h http.Handler) error {
	return (&Server{Handler: h}).Serve(l)
}

// ServeTLS is Serve for HTTPS; l gives connections without TLS. The files are those of
// ListenAndServeTLS. Without them it fails and leaves l open.
func ServeTLS(l net.Listener, h http.Handler, certFile, keyFile string) error {
	return (&Server{Handler: h}).ServeTLS(l, certFile, keyFile)
}

// ListenAndServe listens on Addr and serves until Shutdown or Close, then returns
// http.ErrServerClosed.
func (s *Server) ListenAndServe() error {
	addr := s.Addr
	if addr == "" {
		addr = ":http"
	}
	ln, err := s.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return ln.Wait()
}

// A Listener is an address that a Server listens on.
type Listener struct {
	inner *myriad.Listener
	l     *listening
}

// Listen binds addr ("tcp", "tcp4", "tcp6", "unix") and serves it in the background, with no
// goroutine.
func (s *Server) Listen(network, addr string) (*Listener, error) {
	if err := s.start(); err != nil {
		return nil, err
	}
	return s.listen(network, addr, newFront(s))
}

func (s *Server) listen(network, addr string, front *front) (*Listener, error) {
	inner, err := s.state.Engine.Listen(network, addr, front)
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return nil, op // says all, as from net/http
	}
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	l := &listening{stop: func() error {
		s.state.Load.Remove(inner)
		_ = inner.Close() // its engine may have done so: it fails with nothing else
		return nil
	}, done: make(chan struct{})}
	tracked := false
	defer func() {
		if !tracked { // the server has been closed, or BaseContext has panicked
			_ = l.stop()
		}
	}()
	front.setBase(listenerView{inner})
	s.state.Load.Add(inner)
	if tracked = s.track(l); !tracked {
		return nil, http.ErrServerClosed
	}
	return &Listener{inner, l}, nil
}

// Addr is the bound address.
func (ln *Listener) Addr() net.Addr { return ln.inner.Addr() }

// Wait returns http.ErrServerClosed when the server is shut down.
func (ln *Listener) Wait() error {
	<-ln.l.done
	return http.ErrServerClosed
}

// start makes what the server needs, once.
func (s *Server) start() error {
	if s.closing.Load() {
		return http.ErrServerClosed
	}
	s.once.Do(func() {
		st, err := s.newState()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.state, s.initErr = st, err
		if st != nil {
			st.std.SetKeepAlivesEnabled(!s.noAlive.Load())
		}
	})
	return s.initErr
}

func (s *Server) newState() (*state, error) {
	if err := s.checkOverload(); err != nil {
		return nil, err
	}
	if p := s.protocols(); !p.HTTP1() && !p.HTTP2() && !p.UnencryptedHTTP2() {
		return nil, fmt.Errorf("web: Server.Protocols is %v: include HTTP1, or leave it nil", p)
	}
	engine := s.Engine
	if engine == nil {
		var err error
		if engine, err = myriad.Default(); err != nil {
			return nil, fmt.Errorf("web: %w", err)
		}
	}
	if s.PipelineDepth < 0 || s.PipelineDepth > http1.MaxDepth {
		return nil, fmt.Errorf("web: Server.PipelineDepth is %d: use 0 to %d", s.PipelineDepth, http1.MaxDepth)
	}
	head := s.MaxHeaderBytes
	if head <= 0 {
		head = http.DefaultMaxHeaderBytes
	}
	most := exchange.OrDefault(s.Workers, workers.DefaultWorkers)
	st := &state{std: s.standard(), Server: exchange.Server{
		Settings: s.settings(), Engine: engine, Began: engine.System().Now(),
	}}
	st.Load.Init(exchange.Overload(s.Overload), most)
	st.Tasks = dispatch.New(dispatch.Config{
		Mode: s.Dispatch,
		Workers: workers.Config{
			Workers: s.Workers, Queue: s.Queue,
			OnPanic: func(v any, stack []byte) { s.logf("web: panic outside a handler: %v\n%s", v, stack) },
		},
		MaxQueued: inlineQueue,
		MaxAway:   most,
		AllBack:   st.WakeWaiters,
		NoRoom:    st.NoRoom,
	})
	// servers that refuse at the same time were not started in the same nanosecond
	st.Retry = retryafter.New(uint64(st.Began.UnixNano()), st.Tasks.Done)
	p := s.protocols()
	st.http2.Init(&st.Server, s.HTTP2, head, s.Tunnels)
	st.http1 = http1.Server{
		Shared: &st.Server, Limits: http1.HeadLimits(head), Speaks: p.HTTP1(),
		OverTLS: s.speaksHTTP2(), Unencrypted: p.UnencryptedHTTP2(), Become: st.http2.Take,
	}
	mux, _ := s.handler().(*http.ServeMux)
	for _, l := range engine.Loops() {
		ln := &lane{s: s, st: st}
		ln.Lane = exchange.Lane{
			Server: &st.Server, Loop: l, Tasks: st.Tasks.On(l), Routes: exchange.Routes{Mux: mux},
			Arrived: ln.endGreeting,
		}
		ln.h1 = http1.Lane{Lane: &ln.Lane, Protocol: &st.http1}
		st.lanes = append(st.lanes, ln)
	}
	return st, nil
}

// settings are what requests and their connections need of s.
func (s *Server) settings() exchange.Settings {
	awake := s.mostAwake
	if awake <= 0 {
		awake = mostAwake
	}
	return exchange.Settings{
		ReadTimeout: s.ReadTimeout, ReadHeaderTimeout: s.ReadHeaderTimeout,
		WriteTimeout: s.WriteTimeout, IdleTimeout: cmp.Or(s.IdleTimeout, s.ReadTimeout),
		MaxBodyBytes: s.MaxBodyBytes, PipelineDepth: s.PipelineDepth, Queue: s.Queue,
		ReuseRequests: s.ReuseRequests, Dispatch: s.Dispatch, ConnState: s.ConnState,
		HasValues: s.BaseContext != nil || s.ConnContext != nil, MostAwake: awake,
		HandlerOf: s.handlerOf, Thawer: (*thawer)(s), Logf: s.logf, NoAlive: &s.noAlive, Closing: &s.closing,
	}
}

// mostAwake is how many connections of a lane may be awake while they wait.
const mostAwake = 1024

// standard is the *http.Server that handlers find under http.ServerContextKey: the same settings,
// never served.
func (s *Server) standard() *http.Server {
	return &http.Server{
		Addr: s.Addr, Handler: s.Handler, TLSConfig: s.TLSConfig, TLSNextProto: s.TLSNextProto, Protocols: s.Protocols,
		HTTP2:                        s.HTTP2,
		DisableGeneralOptionsHandler: s.DisableGeneralOptionsHandler,
		ReadTimeout:                  s.ReadTimeout, ReadHeaderTimeout: s.ReadHeaderTimeout,
		WriteTimeout: s.WriteTimeout, IdleTimeout: s.IdleTimeout, MaxHeaderBytes: s.MaxHeaderBytes,
		ConnState: s.ConnState, ErrorLog: s.ErrorLog, BaseContext: s.BaseContext, ConnContext: s.ConnContext,
	}
}

func (s *Server) track(l *listening) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	if s.listeners == nil {
		s.listeners = map[*listening]struct{}{}
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) untrack(l *listening) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

// SetKeepAlivesEnabled(false) closes the connections that wait for a request, and each other one
// after its answer. The *http.Server of TLSNextProto is told.
func (s *Server) SetKeepAlivesEnabled(on bool) {
	s.mu.Lock()
	s.noAlive.Store(!on)
	st := s.state
	if st != nil {
		st.std.SetKeepAlivesEnabled(on)
	}
	s.mu.Unlock()
	if on || st == nil {
		return
	}
	for _, ln := range st.lanes {
		ln.Loop.Post(ln.closeIdle)
	}
}

// RegisterOnShutdown has f called, on a goroutine of its own, whenever Shutdown is, which may be
// more than once: for what the server no longer owns, such as upgraded connections.
func (s *Server) RegisterOnShutdown(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onShutdown = append(s.onShutdown, f)
}

func (s *Server) handler() http.Handler {
	if s.Handler == nil {
		return http.DefaultServeMux
	}
	return s.Handler
}

// handlerOf is the handler for r.
func (s *Server) handlerOf(r *http.Request) http.Handler {
	if r.Method == http.MethodOptions && r.RequestURI == "*" && !s.DisableGeneralOptionsHandler {
		return generalOptions{}
	}
	return s.handler()
}

func (s *Server) checkOverload() error {
	switch {
	case s.Overload > OverloadPause:
		return fmt.Errorf("web: Server.Overload is %v: use OverloadQueue, OverloadRefuse or OverloadPause", s.Overload)
	case s.Workers < 0 || s.Queue < 0:
		return fmt.Errorf("web: Server.Workers is %d and Server.Queue %d: they must not be negative", s.Workers,
			s.Queue)
	}
	return nil
}

func (s *Server) logf(format string, args ...any) {
	if s.ErrorLog != nil {
		s.ErrorLog.Printf(format, args...)
		return
	}
	log.Printf(format, args...)
}

// listenerView shows an engine's listener to BaseContext.
type listenerView struct{ *myriad.Listener }

// Accept fails: the engine accepts.
func (listenerView) Accept() (net.Conn, error) {
	return nil, errors.New("web: this listener is served by an engine: it cannot be accepted from")
}

// generalOptions answers "OPTIONS *" as net/http does.
type generalOptions struct{}

func (generalOptions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "0")
	if r.ContentLength == 0 {
		return
	}
	const most = 4 << 10 // of unread input
	_, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, most))
	if _, more := errors.AsType[*http.MaxBytesError](err); more || r.ContentLength > most {
		w.Header().Set("Connection", "close")
	}
}

// protocols are those that are served.
func (s *Server) protocols() (p http.Protocols) {
	if s.Protocols != nil {
		return *s.Protocols
	}
	p.SetHTTP1(true)
	p.SetHTTP2(s.TLSNextProto == nil || s.TLSNextProto["h2"] != nil)
	return p
}

// speaksHTTP2 reports whether this server itself serves HTTP/2 over TLS.
func (s *Server) speaksHTTP2() bool {
	p := s.protocols()
	return p.HTTP2() && s.TLSNextProto["h2"] == nil
}

// Shutdown stops listening, closes idle connections, and lets every request that has begun be
// answered. It returns when all connections have closed, all handlers have returned, and every
// Serve is about to return; then with the first error of closing the listeners. If ctx ends before,
// it returns ctx's error. Detached responses are closed; upgraded and hijacked connections, with
// the handlers that have hijacked them, are not its business (RegisterOnShutdown). A second call
// waits like the first.
func (s *Server) Shutdown(ctx context.Context) error {
	st, failed := s.stopListening()
	s.runOnShutdown(st)
	if st == nil {
		return failed
	}
	st.shaking.end(st.Engine.System().Now().Add(exchange.NewConnGrace))
	// The second time, because the loop that accepted may have handed connections to others until
	// it came to this in the first.
	for range 2 {
		st.drain()
		if err := st.WaitQuiet(ctx); err != nil {
			return err
		}
	}
	st.Tasks.Close() // handlers that have hijacked their connection may still run
	return failed
}

// drain has all lanes end in order. Each counts as a connection until its loop has come to that,
// and so to those that waited to be opened.
func (st *state) drain() {
	for _, ln := range st.lanes {
		st.Conns.Add(1)
		if !ln.Loop.Post(func() { ln.drain(); st.ConnGone() }) {
			st.ConnGone()
		}
	}
}

// Close stops listening and resets all connections but those upgraded or hijacked. Neither Serve
// nor handlers that run are waited for; their requests' contexts are cancelled. The error is what
// failed first when the listeners were closed.
func (s *Server) Close() error {
	st, failed := s.stopListening()
	if st == nil {
		return failed
	}
	for _, ln := range st.lanes {
		ln.Loop.Post(func() { ln.abort(); st.given.end(time.Unix(1, 0)) })
	}
	st.shaking.cut()
	st.Tasks.Close()
	return failed
}

// stopListening ends every Serve. failed is what went wrong first with closing what they listen on.
func (s *Server) stopListening() (st *state, failed error) {
	s.closing.Store(true)
	s.once.Do(func() { s.initErr = http.ErrServerClosed })
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		if err := l.stop(); failed == nil {
			failed = err
		}
		close(l.done)
		delete(s.listeners, l)
	}
	return s.state, failed
}

// runOnShutdown calls what RegisterOnShutdown was given. st is nil for a server that has never
// served.
func (s *Server) runOnShutdown(st *state) {
	start := driver.Process{}.Go
	if st != nil {
		start = st.Engine.System().Go
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.onShutdown {
		start(f)
	}
}

// drain begins an orderly end: connections that wait for a request go now, the others after their
// answer.
func (ln *lane) drain() {
	ln.Drained = true
	for c := range ln.greeted {
		ln.hasten(c)
	}
	ln.wakeAll()
	for _, h := range slices.Clone(ln.Awake) {
		h.Shut()
	}
}

// closeIdle closes the connections that wait for another request.
func (ln *lane) closeIdle() {
	ln.wakeAll()
	for _, h := range slices.Clone(ln.Awake) {
		h.CloseIdle()
	}
}

func (ln *lane) abort() {
	ln.Drained, ln.Aborted = true, true
	for c := range ln.greeted {
		c.Abort(http.ErrServerClosed)
	}
	ln.wakeAll()
	for _, h := range ln.Awake {
		h.Known().C.Abort(http.ErrServerClosed)
	}
}
