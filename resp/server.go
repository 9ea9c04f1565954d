package resp

import (
	"cmp"
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
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/resp/wire"
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

	// FreezeValue and ThawValue let connections move to another process: see Thawer. FreezeValue
	// appends to dst what the program keeps for a connection. If it returns an error, the
	// connection stays. ThawValue gets that in the other process, in place of OnOpen, and copies
	// what it keeps of state. It may push messages, which are sent if the connection moves. If it
	// returns an error, the whole hand-over fails. Both run on the connection's loop, and must not
	// block.
	FreezeValue func(c *Conn, dst []byte) ([]byte, error)
	ThawValue   func(c *Conn, state []byte) error
	// OnMoved is called in place of OnClose when the connection goes on in the other process,
	// before the functions of OnEnd. In the new process it is called if the connection does not
	// move after all. It runs on the loop, and must not block.
	OnMoved func(c *Conn)

	// Logger gets panics in handlers. Nil: slog.Default().
	Logger *slog.Logger
	// Version is what HELLO says is the version of Redis. Some clients choose by it which
	// commands they send. Empty: "7.0.15".
	Version string

	state serverState
}

// A serverState is a Server's life: new, serving, closed. Any goroutine.
type serverState struct {
	mu        sync.Mutex
	live      *live // nil: it has never served
	closed    bool  // by Shutdown or Close
	listeners []*Listener
}

// live is what a server has once it serves.
type live struct {
	s       *Server
	engine  *myriad.Engine
	rules   rules
	tasks   *dispatch.Dispatcher
	lanes   []*lane
	spare   sync.Pool // of *work
	numbers atomic.Uint32
	conns   census
	ends    census // of lanes that have not come to their end
}

// rules are a Server's settings, completed. They do not change.
type rules struct {
	mux         *Mux // nil: the handler is none
	grammar     wire.Grammar
	strangers   wire.Grammar  // of connections that have not authenticated
	limit       int           // of output
	pushTimeout time.Duration // 0: none
	open        bool          // nothing has to be authenticated
	version     string
	log         *slog.Logger
}

// A lane is a server's state on one loop, and owned by that loop where it does not say otherwise.
type lane struct {
	live    *live
	loop    *myriad.Loop
	tasks   *dispatch.Local
	names   names // any goroutine
	drained bool  // Shutdown was called: a new connection is closed
	desk    work  // of serveView
}

// start makes what the server needs, once.
func (s *Server) start() (*live, error) {
	st := &s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil, ErrServerClosed
	}
	if st.live == nil {
		l, err := s.newLive()
		if err != nil {
			return nil, err
		}
		st.live = l
	}
	return st.live, nil
}

func (s *Server) newLive() (*live, error) {
	switch l := s.Limits; {
	case s.Dispatch >= dispatch.Modes:
		return nil, fmt.Errorf("resp: Server.Dispatch is %v: use one of the constants", s.Dispatch)
	case s.Overflow >= outbox.Policies:
		return nil, fmt.Errorf("resp: Server.Overflow is %v: use one of the constants", s.Overflow)
	case s.WriteLimit < 0:
		return nil, fmt.Errorf("resp: Server.WriteLimit is %d: it must not be negative", s.WriteLimit)
	case l.Args < 0 || l.Bulk < 0 || l.Depth < 0 || l.Bytes < 0 || l.Bytes > buf.MaxBlock/4:
		return nil, fmt.Errorf("resp: Server.Limits are %+v: none may be negative, and Bytes at most %d", l,
			buf.MaxBlock/4)
	}
	engine := s.Engine
	if engine == nil {
		var err error
		if engine, err = myriad.Default(); err != nil {
			return nil, fmt.Errorf("resp: %w", err)
		}
	}
	l := &live{s: s, engine: engine, rules: rules{
		grammar: wire.NewGrammar(s.Limits, false), strangers: wire.NewGrammar(s.Limits, true),
		limit: cmp.Or(s.WriteLimit, defaultWriteLimit), pushTimeout: max(0, cmp.Or(s.PushTimeout, DefaultPushTimeout)),
		open: s.Auth == nil || s.AuthOptional, version: cmp.Or(s.Version, likeRedis),
		log: cmp.Or(s.Logger, slog.Default()),
	}}
	l.rules.mux, _ = s.Handler.(*Mux)
	c := dispatch.Config{Mode: s.Dispatch,
		Workers: workers.Config{Queue: poolQueue, Logger: l.rules.log}}
	if s.Workers != nil {
		c.Pool = s.Workers
	}
	l.tasks = dispatch.New(c)
	for _, loop := range engine.Loops() {
		ln := &lane{live: l, loop: loop, tasks: l.tasks.On(loop)}
		ln.names.all.Store(&map[string]*name{})
		l.lanes = append(l.lanes, ln)
	}
	return l, nil
}

// likeRedis is the version of Redis whose answers these are.
const likeRedis = "7.0.15"

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
	return s.listen(l, network, addr, front{l})
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
		tlsloop.Handler(s.TLSConfig, func(tls.ConnectionState) myriad.Handler { return front{l} }))
}

func (s *Server) listen(l *live, network, addr string, h myriad.Handler) (*Listener, error) {
	inner, err := l.engine.Listen(network, addr, h)
	if err != nil {
		return nil, fmt.Errorf("resp: %w", err)
	}
	ln := &Listener{inner, make(chan struct{})}
	if !s.state.add(ln) {
		_ = inner.Close() // nothing has been accepted that matters
		return nil, ErrServerClosed
	}
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
	l := s.state.stop()
	if l == nil {
		return nil
	}
	// The second time, because the loop that accepted may have handed connections to others until
	// it came to this in the first.
	for range 2 {
		l.each((*lane).drain)
		for _, all := range []*census{&l.ends, &l.conns} {
			if err := all.wait(ctx, l.engine.System().NewParker()); err != nil {
				return err
			}
		}
	}
	l.tasks.Close()
	return nil
}

// Close stops listening and resets all connections. It waits neither for them nor for handlers.
func (s *Server) Close() error {
	if l := s.state.stop(); l != nil {
		l.each((*lane).abort)
		l.tasks.Close()
	}
	return nil
}

// add keeps a listener, unless the server is closed.
func (st *serverState) add(ln *Listener) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.closed {
		st.listeners = append(st.listeners, ln)
	}
	return !st.closed
}

// stop ends listening. It returns nil if the server has never served.
func (st *serverState) stop() *live {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	for _, ln := range st.listeners {
		_ = ln.inner.Close() // its engine may have done so: it fails with nothing else
		close(ln.done)
	}
	st.listeners = nil
	return st.live
}

// each has f called for each lane, on its loop.
func (l *live) each(f func(*lane)) {
	for _, ln := range l.lanes {
		l.ends.add()
		if !ln.loop.Post(func() { f(ln); l.ends.gone() }) {
			l.ends.gone()
		}
	}
}

// A census counts a server's connections, or its lanes. Any goroutine.
type census struct {
	n       atomic.Int64
	mu      sync.Mutex
	waiters []driver.Parker // of Shutdown
}

func (c *census) add() { c.n.Add(1) }

func (c *census) gone() {
	if c.n.Add(-1) > 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.waiters {
		p.Unpark()
	}
}

// wait returns when there are none, or with the error of ctx.
func (c *census) wait(ctx context.Context, p driver.Parker) error {
	c.mu.Lock()
	c.waiters = append(c.waiters, p)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiters = slices.DeleteFunc(c.waiters, func(o driver.Parker) bool { return o == p })
	}()
	defer context.AfterFunc(ctx, p.Unpark)()
	for c.n.Load() > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.Park()
	}
	return nil
}

// Conns is how many connections there are, also while Shutdown waits for them. Any goroutine.
func (s *Server) Conns() int {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if s.state.live == nil {
		return 0
	}
	return int(s.state.live.conns.n.Load())
}

// Dispatch chooses where a handler runs. The zero value is DispatchAuto. It is one type in web,
// websocket and resp.
type Dispatch = dispatch.Mode

const (
	// DispatchAuto runs each command where it is cheapest: on a pool of goroutines until commands
	// of its name have been quick (100 µs) many times in a row, then on the connection's loop.
	// After it has overstayed, commands of that name run on the pool again. Handlers may block. On
	// a loop that is bound to its thread (myriad.Loop.ThreadBound) every command runs on the pool.
	DispatchAuto = dispatch.Auto
	// DispatchPool hands every command to a bounded pool of warm goroutines.
	DispatchPool = dispatch.Pool
	// DispatchInline runs the handler on the loop, on a view of the loop's buffer. It is for
	// handlers that never block: all other connections of the loop wait until it returns.
	DispatchInline = dispatch.Inline
)
