package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/tlsloop"
	"github.com/myriad-go/myriad/workers"
)

// ErrServerClosed is what Listen and Wait return after Shutdown or Close.
var ErrServerClosed = errors.New("resp: server closed")

// Defaults of Server.
const (
	DefaultPushTimeout = 10 * time.Second
	defaultWriteLimit  = 256 << 10
)

// A Server serves RESP2 and RESP3 on an engine's loops. Its fields must not change once it serves.
// The zero value works, and knows only the commands of the connection itself: HELLO, AUTH, CLIENT,
// RESET, QUIT and PING.
type Server struct {
	// Handler runs all other commands. A *Mux tells them apart. Nil: there are none.
	Handler Handler
	// Auth checks a name and a password; the name is "default" if the peer has given none. It may
	// block. A peer that has not succeeded may send only AUTH, HELLO, QUIT and RESET, with at most
	// 10 arguments of at most 16 KiB. Nil: nothing has to be authenticated.
	Auth func(c *Conn, user, password string) bool
	// AuthOptional lets peers that have not authenticated send all commands; the handler decides.
	AuthOptional bool

	// Engine runs the connections. Nil: myriad.Default(). Shutdown and Close never stop it.
	Engine *myriad.Engine
	// Dispatch chooses where commands run. 0: DispatchAuto.
	Dispatch Dispatch
	// Workers is the pool for commands that do not run on a loop. Its owner closes it. Nil: the
	// server makes one.
	Workers *workers.Pool

	// Limits bound what a peer sends. What exceeds them is answered with an error, and the
	// connection closed.
	Limits Limits
	// WriteLimit is how many bytes may wait for a peer that reads slowly. While replies exceed it,
	// no more commands of that connection are run or read, so that at most the replies of one run
	// of commands wait besides. For messages that are pushed, Overflow decides. 0: 256 KiB.
	WriteLimit int
	// Overflow says what happens to pushed messages above WriteLimit. The zero value,
	// OverflowBlock: Push waits for room.
	Overflow Overflow
	// PushTimeout is for how long OverflowBlock has a Push wait for room. 0: 10 s; negative:
	// without end.
	PushTimeout time.Duration
	// IdleTimeout resets a connection from which nothing has come for so long, unless it has
	// subscriptions or a command of it runs. 0: never.
	IdleTimeout time.Duration

	// TLSConfig is for ListenTLS.
	TLSConfig *tls.Config

	// OnOpen is called for each connection before its first command, and OnClose at its end. Both
	// run on the connection's loop and must not block.
	OnOpen  func(c *Conn)
	OnClose func(c *Conn, err error)
	// OnDrained is called when there is room again after messages were refused or dropped: less
	// than half of WriteLimit waits. It runs on the loop and must not block.
	OnDrained func(c *Conn)

	// Logger gets panics in handlers. Nil: slog.Default().
	Logger *slog.Logger
	// Version is what HELLO says is the version of Redis. Some clients choose by it which
	// commands they send. Empty: "7.0.15".
	Version string

	once    sync.Once
	initErr error
	live    *live
	closing atomic.Bool

	mu        sync.Mutex
	listeners []*Listener
}

// live is what a server has once it serves.
type live struct {
	s       *Server
	engine  *myriad.Engine
	mux     *Mux // nil: the handler is none
	grammar commandGrammar
	// strangers is for connections that have not authenticated.
	strangers commandGrammar
	limit     int
	timeout   time.Duration // of Push; 0: none
	log       *slog.Logger
	inline    bool
	pool      bool
	open      bool // nothing has to be authenticated
	tasks     *dispatch.Dispatcher
	lanes     []*lane
	spare     sync.Pool // of *work
	ids       atomic.Uint64
	conns     atomic.Int64 // and lanes that have not come to their end
	mu        sync.Mutex
	waiters   []driver.Parker // of Shutdown
}

// A lane is a server's state on one loop, and owned by that loop where it does not say otherwise.
type lane struct {
	live    *live
	loop    *myriad.Loop
	tasks   *dispatch.Local
	names   names // any goroutine
	drained bool  // Shutdown was called: a new connection is closed
	desk    work  // of DispatchInline
}

// start makes what the server needs, once.
func (s *Server) start() (*live, error) {
	s.once.Do(func() { s.live, s.initErr = s.newLive() })
	if s.closing.Load() {
		return nil, ErrServerClosed
	}
	return s.live, s.initErr
}

func (s *Server) check() error {
	l := s.Limits
	switch {
	case s.Dispatch > DispatchInline:
		return fmt.Errorf("resp: Server.Dispatch is %v: use one of the constants", s.Dispatch)
	case s.Overflow >= overflows:
		return fmt.Errorf("resp: Server.Overflow is %v: use one of the constants", s.Overflow)
	case s.WriteLimit < 0:
		return fmt.Errorf("resp: Server.WriteLimit is %d: it must not be negative", s.WriteLimit)
	case l.Args < 0 || l.Bulk < 0 || l.Depth < 0 || l.Bytes < 0 || l.Bytes > buf.MaxBlock/4:
		return fmt.Errorf("resp: Server.Limits are %+v: none may be negative, and Bytes at most %d", l, buf.MaxBlock/4)
	}
	return nil
}

func (s *Server) newLive() (*live, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	engine := s.Engine
	if engine == nil {
		var err error
		if engine, err = myriad.Default(); err != nil {
			return nil, fmt.Errorf("resp: %w", err)
		}
	}
	l := &live{s: s, engine: engine, log: s.Logger,
		grammar: newGrammar(s.Limits, false), strangers: newGrammar(s.Limits, true),
		limit:   or(s.WriteLimit, defaultWriteLimit),
		timeout: s.PushTimeout, open: s.Auth == nil || s.AuthOptional, inline: s.Dispatch == DispatchInline,
		pool: s.Dispatch == DispatchPool}
	if l.timeout == 0 {
		l.timeout = DefaultPushTimeout
	}
	l.timeout = max(l.timeout, 0)
	if l.log == nil {
		l.log = slog.Default()
	}
	l.mux, _ = s.Handler.(*Mux)
	c := dispatch.Config{Mode: dispatch.Mode(s.Dispatch), Workers: workers.Config{Queue: poolQueue, Logger: l.log}}
	if s.Workers != nil {
		c.Pool = s.Workers
	}
	l.tasks = dispatch.New(c)
	for _, loop := range engine.Loops() {
		l.lanes = append(l.lanes, &lane{live: l, loop: loop, tasks: l.tasks.On(loop)})
	}
	return l, nil
}

// poolQueue is the queue of a pool that a server makes for itself. A connection waits in it at most
// once, so the number of connections bounds it.
const poolQueue = 1 << 24

// A Listener is an address that a Server listens on.
type Listener struct {
	inner *myriad.Listener
	done  chan struct{}
}

// Listen binds addr ("tcp", "tcp4", "tcp6", "unix") and serves it in the background, with no
// goroutine.
func (s *Server) Listen(network, addr string) (*Listener, error) {
	l, err := s.start()
	if err != nil {
		return nil, err
	}
	return s.listen(l, network, addr, (*front)(l))
}

// ListenTLS is Listen for TLS with TLSConfig.
func (s *Server) ListenTLS(network, addr string) (*Listener, error) {
	l, err := s.start()
	if err != nil {
		return nil, err
	}
	if s.TLSConfig == nil {
		return nil, errors.New("resp: ListenTLS needs Server.TLSConfig")
	}
	return s.listen(l, network, addr,
		tlsloop.Handler(s.TLSConfig, func(tls.ConnectionState) myriad.Handler { return (*front)(l) }))
}

func (s *Server) listen(l *live, network, addr string, h myriad.Handler) (*Listener, error) {
	inner, err := l.engine.Listen(network, addr, h)
	if err != nil {
		return nil, fmt.Errorf("resp: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		_ = inner.Close() // nothing has been accepted that matters
		return nil, ErrServerClosed
	}
	ln := &Listener{inner, make(chan struct{})}
	s.listeners = append(s.listeners, ln)
	return ln, nil
}

// ListenAndServe listens on addr, a TCP address, and serves until Shutdown or Close. Then it
// returns ErrServerClosed.
func (s *Server) ListenAndServe(addr string) error {
	ln, err := s.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return ln.Wait()
}

// Addr is the bound address.
func (ln *Listener) Addr() net.Addr { return ln.inner.Addr() }

// Wait returns ErrServerClosed when the server is shut down.
func (ln *Listener) Wait() error {
	<-ln.done
	return ErrServerClosed
}

// Shutdown stops listening, answers the commands that have come, and closes the connections. It
// returns when all have closed, or with the error of ctx when that ends first; the connections live
// on then, until Close.
func (s *Server) Shutdown(ctx context.Context) error {
	l := s.stop()
	if l == nil {
		return nil
	}
	// The second time, because the loop that accepted may have handed connections to others until
	// it came to this in the first.
	for range 2 {
		l.each((*lane).drain)
		if err := l.waitQuiet(ctx); err != nil {
			return err
		}
	}
	l.tasks.Close()
	return nil
}

// Close stops listening and resets all connections. It waits neither for them nor for handlers.
func (s *Server) Close() error {
	if l := s.stop(); l != nil {
		l.each((*lane).abort)
		l.tasks.Close()
	}
	return nil
}

// stop ends listening. It returns nil if the server has never served.
func (s *Server) stop() *live {
	s.closing.Store(true)
	s.once.Do(func() { s.initErr = ErrServerClosed })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ln := range s.listeners {
		_ = ln.inner.Close() // its engine may have done so: it fails with nothing else
		close(ln.done)
	}
	s.listeners = nil
	return s.live
}

// each has f called for each lane, on its loop. A lane counts as a connection until that has
// happened.
func (l *live) each(f func(*lane)) {
	for _, ln := range l.lanes {
		l.conns.Add(1)
		if !ln.loop.Post(func() { f(ln); l.gone() }) {
			l.gone()
		}
	}
}

func (l *live) waitQuiet(ctx context.Context) error {
	p := l.engine.System().NewParker()
	l.mu.Lock()
	l.waiters = append(l.waiters, p)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waiters = slices.DeleteFunc(l.waiters, func(o driver.Parker) bool { return o == p })
	}()
	defer context.AfterFunc(ctx, p.Unpark)()
	for l.conns.Load() > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.Park()
	}
	return nil
}

// gone counts the end of a connection.
func (l *live) gone() {
	if l.conns.Add(-1) > 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.waiters {
		p.Unpark()
	}
}

// Conns is how many connections there are. Any goroutine.
func (s *Server) Conns() int {
	l, err := s.start()
	if err != nil {
		return 0
	}
	return int(l.conns.Load())
}
