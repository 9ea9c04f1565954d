package exchange

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/retryafter"
	"github.com/myriad-go/myriad/tlsloop"
)

// Settings are those fields of a Server that exchanges and their connections need, whatever the
// version of HTTP.
type Settings struct {
	ReadTimeout, ReadHeaderTimeout, WriteTimeout time.Duration

	IdleTimeout time.Duration // ReadTimeout, if the server has no other

	MaxBodyBytes  int64
	PipelineDepth int
	Queue         int
	ReuseRequests bool
	Dispatch      dispatch.Mode
	ConnState     func(net.Conn, http.ConnState)
	// HasValues says that contexts have values of the program's: BaseContext or ConnContext is set.
	HasValues bool
	// MostAwake is how many connections of a lane may be awake while they wait.
	MostAwake int
	HandlerOf func(r *http.Request) http.Handler
	Logf      func(format string, args ...any)
	// Thawer is the server as connections know it that move to another process.
	Thawer myriad.Thawer
	// NoAlive is SetKeepAlivesEnabled(false), and Closing is that the server shuts down.
	NoAlive, Closing *atomic.Bool
}

// Server is what the lanes of a server have in common.
type Server struct {
	Settings
	Engine  *myriad.Engine
	Began   time.Time
	Tasks   *dispatch.Dispatcher // runs handlers
	Load    load
	Retry   *retryafter.Spread // when clients may come back that are answered 503
	clock   clock
	Conns   atomic.Int64 // open connections
	Serving atomic.Int64 // Serves that have not returned
	Mu      sync.Mutex
	Waiters []driver.Parker // of Shutdown
}

// report tells ConnState of a connection.
func (s *Server) report(nc net.Conn, state http.ConnState) {
	if f := s.ConnState; f != nil {
		f(nc, state)
	}
}

// A Lane is a server's state on one loop, whatever the version of HTTP, and owned by that
// loop.
type Lane struct {
	Server   *Server
	Loop     *myriad.Loop
	Tasks    *dispatch.Local // runs handlers
	Routes   Routes
	Begun    []*Exchange // what is to be dispatched when this read is over
	Awake    []Served    // the lane's connections, without those that hibernate
	scratch  []byte      // where texts are put together
	Asked    *Link       // whose request was the last; nil: it has gone
	Address  string      // of its client, if that has been asked for again; else empty
	Drained  bool        // Shutdown was called, or Close
	Aborted  bool        // Close was called: what is opened yet is reset
	Stopping bool        // the engine shuts down
	Moved    bool        // another process goes on with the connections that can move
	// arrived is called for a connection that has come to HTTP, and counts as such.
	Arrived func(c *myriad.Conn)
}

// Texts copies what a request keeps of its head, and the address of its client, in one piece. The
// address is copied only once for requests of one client in a row, as with pipelining.
func (ln *Lane) Texts(k *Link, raw []byte) (head, address string) {
	if ln.Asked != k {
		ln.Asked, ln.Address = k, ""
		ln.scratch = k.C.AppendRemoteAddr(append(ln.scratch[:0], raw...))
		both := string(ln.scratch)
		return both[:len(raw)], both[len(raw):]
	}
	return string(raw), ln.AddressOf(k)
}

// AddressOf is the address of h's client.
func (ln *Lane) AddressOf(k *Link) string {
	if ln.Asked != k {
		ln.Asked, ln.Address = k, ""
	}
	if ln.Address == "" {
		ln.scratch = k.C.AppendRemoteAddr(ln.scratch[:0])
		ln.Address = string(ln.scratch)
	}
	return ln.Address
}

// A Link is what requests, contexts and lanes know of a connection, whatever version of HTTP it
// speaks. Its fields are the loop's, except those that never change.
type Link struct {
	C       *myriad.Conn
	Lane    *Lane
	From    *Origin
	place   int32 // in lane.awake
	State   uint8 // what ConnState was told last, an http.ConnState
	Shared  bool  // an exchange that is not used again knows the link
	Secure  bool  // the conn's layer is TLS, or from.base has an accepted of TLS
	Greeted bool  // ConnState was called for the conn before its handshake
}

// A Served connection is one on a lane's list: that of HTTP/1 or of HTTP/2. On the loop.
type Served interface {
	Known() *Link
	// Shut ends the connection in order: at once if it only waits, else after its answers.
	Shut()
	// CloseIdle closes the connection if it waits for a further request.
	CloseIdle()
	// Finish ends the connection in order if it cannot move to another process: HTTP/2, and that of
	// TLS. It leaves Streams and Pipes alone, which end by themselves or by Shut.
	Finish()
}

func (k *Link) Known() *Link { return k }

func (k *Link) SetState(state http.ConnState) {
	if k.State == uint8(state) && state != http.StateNew {
		return
	}
	k.State = uint8(state)
	if f := k.Lane.Server.ConnState; f != nil {
		f(k.seen(), state)
	}
}

// ConnectionStater is what tells Serve that a connection is one of TLS.
type ConnectionStater interface{ ConnectionState() tls.ConnectionState }

// An Accepted is what a listener has given to Serve, as far as that is needed later on.
type Accepted struct {
	Seen   net.Conn         // what ConnState and ConnContext are given; nil: the engine's
	Secure ConnectionStater // nil: no TLS. What was negotiated is known when the first bytes have come.
}

// AcceptedKey is where the base context of a connection has its *accepted, if there is something in
// it.
type AcceptedKey struct{}

// seen is what ConnState is given.
func (k *Link) seen() net.Conn {
	if a, ok := k.From.Base.Value(AcceptedKey{}).(*Accepted); ok && a.Seen != nil {
		return a.Seen
	}
	return k.C
}

// TLSState is what a request's TLS field points to, of a connection that is Secure.
func (k *Link) TLSState() *tls.ConnectionState {
	if state := tlsloop.SharedState(k.C); state != nil {
		return state
	}
	state := k.From.Base.Value(AcceptedKey{}).(*Accepted).Secure.ConnectionState()
	return &state
}

// Leaving reports whether the connection ends with what it is doing, Streams and Pipes too.
func (k *Link) Leaving() bool { return k.Lane.Stopping || k.Lane.Drained }

// Finishes reports whether the connection of HTTP/1 ends behind the answers to what it has asked.
func (k *Link) Finishes() bool { return k.Leaving() || k.Lane.Moved && k.Secure }

// Date is what the Date field of an answer says that the loop itself gives.
func (k *Link) Date() string { return k.Lane.Server.clock.at(k.Lane.Loop.Now()).text }

// Now is the loop's time.
func (k *Link) Now() Moment { return k.Lane.Server.moment(k.Lane.Loop.Now()) }

// Until is how long the timer is to wait for by; 0 if there is no such moment.
func (k *Link) Until(by Moment) time.Duration {
	if by == Never {
		return 0
	}
	return max(time.Duration(by-k.Now()), time.Nanosecond)
}

// An Origin is what requests of many connections have in common: those of a listener, most often.
type Origin struct {
	Base   context.Context
	Waiter myriad.Waker // for those that hibernate; nil: they must not, because others know their net.Conn
}

func (ln *Lane) Add(h Served) {
	ln.Server.Conns.Add(1)
	ln.Stay(h)
}

func (ln *Lane) Remove(k *Link) {
	ln.Depart(k)
	ln.Server.ConnGone()
}

// Stay puts h on the list of those that are awake.
func (ln *Lane) Stay(h Served) {
	h.Known().place = int32(len(ln.Awake))
	ln.Awake = append(ln.Awake, h)
}

// Depart takes h off the list.
func (ln *Lane) Depart(k *Link) {
	last := len(ln.Awake) - 1
	ln.Awake[k.place] = ln.Awake[last]
	ln.Awake[k.place].Known().place = k.place
	ln.Awake[last] = nil
	ln.Awake = ln.Awake[:last]
	if ln.Asked == k {
		ln.Asked, ln.Address = nil, ""
	}
}

// Crowded reports whether more are awake than may be.
func (ln *Lane) Crowded() bool { return len(ln.Awake) > ln.Server.MostAwake }

// An Overload is what happens to requests while as many handlers run as may: see web.Overload.
type Overload uint8

const (
	overloadQueue Overload = iota
	overloadRefuse
	overloadPause
)

// A load is how many handlers run on the pool or wait for it. It is counted where something depends
// on it.
type load struct {
	policy Overload
	most   int64 // Workers
	n      atomic.Int64

	mu      sync.Mutex
	paused  bool                // guarded by mu
	pausers map[Pauser]struct{} // guarded by mu
}

func (o *load) Init(policy Overload, most int) {
	o.policy, o.most, o.pausers = policy, int64(most), map[Pauser]struct{}{}
}

// begin counts a request that goes to the pool, or reports false if it is to be refused. On a loop.
func (o *load) begin() bool {
	switch o.policy {
	case overloadQueue:
		return true
	case overloadRefuse:
		if o.n.Add(1) > o.most {
			o.n.Add(-1)
			return false
		}
	case overloadPause:
		if o.n.Add(1) == o.most+1 {
			o.look()
		}
	}
	return true
}

// end counts one that is over, or does not count any more. Any goroutine.
func (o *load) end() {
	if o.policy != overloadQueue && o.n.Add(-1) == o.most && o.policy == overloadPause {
		o.look()
	}
}

// GoOn counts a handler again that did not count for a while.
func (o *load) GoOn() {
	if o.policy != overloadQueue && o.n.Add(1) == o.most+1 && o.policy == overloadPause {
		o.look()
	}
}

// look has listeners do what the count asks for now: it may have changed again since the caller has
// seen it.
func (o *load) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	over := o.n.Load() > o.most
	if over == o.paused {
		return
	}
	o.paused = over
	for p := range o.pausers {
		if over {
			p.Pause()
		} else {
			p.Resume()
		}
	}
}

func (o *load) Add(p Pauser) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pausers[p] = struct{}{}; o.paused {
		p.Pause()
	}
}

func (o *load) Remove(p Pauser) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pausers, p)
}

// Handlers is how many handlers run on the pool or wait for it, 0 where that is not counted.
func (o *load) Handlers() int64 { return o.n.Load() }

// Paused reports whether listeners are.
func (o *load) Paused() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.paused
}

// A Pauser is a listener that can stop accepting for a while.
type Pauser interface {
	Pause()
	Resume()
}

// A Moment is a point in time in nanoseconds since the server began to serve: a third of a
// time.Time, because every exchange has some.
type Moment int64

// never is the zero moment: no bound.
const Never Moment = 0

// moment converts what is given as a time; the zero time is never.
func (s *Server) moment(t time.Time) Moment {
	if t.IsZero() {
		return Never
	}
	return max(1, Moment(t.Sub(s.Began)))
}

// Now returns the time for callers that are not on a loop.
func (s *Server) Now() Moment { return s.moment(s.Engine.System().Now()) }

func (m Moment) After(d time.Duration) Moment {
	if m += Moment(d); m < 0 {
		return 1<<63 - 1
	}
	return m
}

func (m Moment) Passed(now Moment) bool { return m != Never && now >= m }

// OrEarlier is the earlier of two bounds.
func (m Moment) OrEarlier(other Moment) Moment {
	if m == Never || other != Never && other < m {
		return other
	}
	return m
}

// clock formats the Date field once a second.
type clock struct{ last atomic.Pointer[stamp] }

type stamp struct {
	second int64
	text   string
}

func (k *clock) at(now time.Time) *stamp {
	second := now.Unix()
	if s := k.last.Load(); s != nil && s.second == second {
		return s
	}
	s := &stamp{second, now.UTC().Format(http.TimeFormat)}
	k.last.Store(s)
	return s
}

func FirstOf(ds ...time.Duration) time.Duration {
	for _, d := range ds {
		if d != 0 {
			return max(d, 0)
		}
	}
	return 0
}

func OrDefault(n, fallback int) int {
	if n == 0 {
		return fallback
	}
	return n
}

// WaitQuiet returns when the last connection has gone, the last handler without one, the last that
// has kept a loop's goroutine, and the last Serve.
func (s *Server) WaitQuiet(ctx context.Context) error {
	p := s.Engine.System().NewParker()
	s.Mu.Lock()
	s.Waiters = append(s.Waiters, p)
	s.Mu.Unlock()
	defer s.forget(p)
	stop := context.AfterFunc(ctx, p.Unpark)
	defer stop()
	for s.Conns.Load() > 0 || s.Tasks.Away() != 0 || s.Serving.Load() > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.Park()
	}
	return nil
}

// ConnGone wakes each Shutdown that waits for the last connection.
func (s *Server) ConnGone() {
	if s.Conns.Add(-1) == 0 {
		s.WakeWaiters()
	}
}

// ServeOver wakes them for the last Serve.
func (s *Server) ServeOver() {
	if s.Serving.Add(-1) == 0 {
		s.WakeWaiters()
	}
}

func (s *Server) forget(waiter driver.Parker) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Waiters = slices.DeleteFunc(s.Waiters, func(p driver.Parker) bool { return p == waiter })
}

func (s *Server) WakeWaiters() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, p := range s.Waiters {
		p.Unpark()
	}
}

// LogHandshake logs the last of so many handshakes that have failed, in the words of net/http.
func (s *Server) LogHandshake(remote net.Addr, reason string, times uint64) {
	if times > 1 {
		s.Logf("http: TLS handshake error from %v: %v (and %d more)", remote, reason, times-1)
		return
	}
	s.Logf("http: TLS handshake error from %v: %v", remote, reason)
}
