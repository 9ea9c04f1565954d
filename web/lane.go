package web

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/tlsloop"
	"github.com/myriad-go/myriad/workers"
)

// settings are those fields of a Server that exchanges and their connections need, whatever the
// version of HTTP.
type settings struct {
	ReadTimeout, ReadHeaderTimeout, WriteTimeout, IdleTimeout time.Duration

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
	// NoAlive is SetKeepAlivesEnabled(false), and Closing is that the server shuts down.
	NoAlive, Closing *atomic.Bool
}

// shared is what the lanes of a server have in common.
type shared struct {
	settings
	engine  *myriad.Engine
	began   time.Time
	tasks   *dispatch.Dispatcher // runs handlers
	load    load
	clock   clock
	conns   atomic.Int64 // open connections
	serving atomic.Int64 // Serves that have not returned
	mu      sync.Mutex
	waiters []driver.Parker // of Shutdown
}

// report tells ConnState of a connection.
func (s *shared) report(nc net.Conn, state http.ConnState) {
	if f := s.ConnState; f != nil {
		f(nc, state)
	}
}

// A commonLane is a server's state on one loop, whatever the version of HTTP, and owned by that
// loop.
type commonLane struct {
	s        *shared
	loop     *myriad.Loop
	tasks    *dispatch.Local // runs handlers
	routes   routes
	begun    []task   // what is to be dispatched when this read is over
	awake    []served // the lane's connections, without those that hibernate
	scratch  []byte   // where texts are put together
	asked    *link    // whose request was the last; nil: it has gone
	address  string   // of its client, if that has been asked for again; else empty
	drained  bool     // Shutdown was called, or Close
	aborted  bool     // Close was called: what is opened yet is reset
	stopping bool     // the engine shuts down
	// arrived is called for a connection that has come to HTTP, and counts as such.
	arrived func(c *myriad.Conn)
}

// texts copies what a request keeps of its head, and the address of its client, in one piece. The
// address is copied only once for requests of one client in a row, as with pipelining.
func (ln *commonLane) texts(k *link, raw []byte) (head, address string) {
	if ln.asked != k {
		ln.asked, ln.address = k, ""
		ln.scratch = k.c.AppendRemoteAddr(append(ln.scratch[:0], raw...))
		both := string(ln.scratch)
		return both[:len(raw)], both[len(raw):]
	}
	return string(raw), ln.addressOf(k)
}

// addressOf is the address of h's client.
func (ln *commonLane) addressOf(k *link) string {
	if ln.asked != k {
		ln.asked, ln.address = k, ""
	}
	if ln.address == "" {
		ln.scratch = k.c.AppendRemoteAddr(ln.scratch[:0])
		ln.address = string(ln.scratch)
	}
	return ln.address
}

// A link is what requests, contexts and lanes know of a connection, whatever version of HTTP it
// speaks. Its fields are the loop's, except those that never change.
type link struct {
	c       *myriad.Conn
	lane    *commonLane
	from    *origin
	place   int32 // in lane.awake
	state   uint8 // what ConnState was told last, an http.ConnState
	shared  bool  // an exchange that is not used again knows the link
	secure  bool  // the conn's layer is TLS, or from.base has an accepted of TLS
	greeted bool  // ConnState was called for the conn before its handshake
}

// A served connection is one on a lane's list: that of HTTP/1 or of HTTP/2. On the loop.
type served interface {
	known() *link
	// shut ends the connection in order: at once if it only waits, else after its answers.
	shut()
	// closeIdle closes the connection if it waits for a further request.
	closeIdle()
}

func (k *link) known() *link { return k }

func (k *link) setState(state http.ConnState) {
	if k.state == uint8(state) && state != http.StateNew {
		return
	}
	k.state = uint8(state)
	if f := k.lane.s.ConnState; f != nil {
		f(k.seen(), state)
	}
}

// connectionStater is what tells Serve that a connection is one of TLS.
type connectionStater interface{ ConnectionState() tls.ConnectionState }

// An accepted is what a listener has given to Serve, as far as that is needed later on.
type accepted struct {
	seen   net.Conn         // what ConnState and ConnContext are given; nil: the engine's
	secure connectionStater // nil: no TLS. What was negotiated is known when the first bytes have come.
}

// acceptedKey is where the base context of a connection has its *accepted, if there is something in
// it.
type acceptedKey struct{}

// seen is what ConnState is given.
func (k *link) seen() net.Conn {
	if a, ok := k.from.base.Value(acceptedKey{}).(*accepted); ok && a.seen != nil {
		return a.seen
	}
	return k.c
}

// tlsState is what a request's TLS field points to, nil without TLS.
func (k *link) tlsState() *tls.ConnectionState {
	if !k.secure {
		return nil
	}
	if state := tlsloop.SharedState(k.c); state != nil {
		return state
	}
	state := k.from.base.Value(acceptedKey{}).(*accepted).secure.ConnectionState()
	return &state
}

// leaving reports whether the connection ends with what it is doing.
func (k *link) leaving() bool { return k.lane.stopping || k.lane.drained }

// date is what the Date field of an answer says that the loop itself gives.
func (k *link) date() string { return k.lane.s.clock.at(k.lane.loop.Now()).text }

// now is the loop's time.
func (k *link) now() moment { return k.lane.s.moment(k.lane.loop.Now()) }

// until is how long the timer is to wait for by; 0 if there is no such moment.
func (k *link) until(by moment) time.Duration {
	if by == never {
		return 0
	}
	return max(time.Duration(by-k.now()), time.Nanosecond)
}

// An origin is what requests of many connections have in common: those of a listener, most often.
type origin struct {
	base   context.Context
	waiter myriad.Waker // for those that hibernate; nil: they must not, because others know their net.Conn
}

func (ln *commonLane) add(h served) {
	ln.s.conns.Add(1)
	ln.stay(h)
}

func (ln *commonLane) remove(k *link) {
	ln.depart(k)
	ln.s.connGone()
}

// stay puts h on the list of those that are awake.
func (ln *commonLane) stay(h served) {
	h.known().place = int32(len(ln.awake))
	ln.awake = append(ln.awake, h)
}

// depart takes h off the list.
func (ln *commonLane) depart(k *link) {
	last := len(ln.awake) - 1
	ln.awake[k.place] = ln.awake[last]
	ln.awake[k.place].known().place = k.place
	ln.awake[last] = nil
	ln.awake = ln.awake[:last]
	if ln.asked == k {
		ln.asked, ln.address = nil, ""
	}
}

// crowded reports whether more are awake than may be.
func (ln *commonLane) crowded() bool { return len(ln.awake) > ln.s.MostAwake }

// dispatch runs the exchange of t as an inline task, or with the others of this poll cycle on the
// pool.
func (ln *commonLane) dispatch(t task, complete bool) {
	x := t.base()
	x.enter(handling)
	if complete && ln.tasks.TryInline(x.conn(), t, ln.recordOf(x)) {
		x.inlined = true
		return
	}
	if !ln.s.load.begin() {
		x.refuse(503, fmt.Sprintf("%d requests are being served", ln.s.load.most))
		return
	}
	ln.tasks.ToPool(t)
}

// recordOf is what is known of the route of x; nil: nothing, or it makes no difference.
func (ln *commonLane) recordOf(x *exchange) *dispatch.Record {
	if ln.s.Dispatch != dispatch.Auto {
		return nil
	}
	if r := ln.routes.of(&x.given.request); r != nil {
		return &r.Record
	}
	return nil
}

// noRoom answers a request for which the pool's queue has no room. On the loop.
func (s *shared) noRoom(x *exchange) {
	s.load.end()
	x.refuse(503, fmt.Sprintf("%d requests are waiting", orDefault(s.Queue, workers.DefaultQueue)))
}

// An overload is what happens to requests while as many handlers run as may: see web.Overload.
type overload uint8

const (
	overloadQueue overload = iota
	overloadRefuse
	overloadPause
)

// A load is how many handlers run on the pool or wait for it. It is counted where something depends
// on it.
type load struct {
	policy overload
	most   int64 // Workers
	n      atomic.Int64

	mu      sync.Mutex
	paused  bool                // guarded by mu
	pausers map[pauser]struct{} // guarded by mu
}

func (o *load) init(policy overload, most int) {
	o.policy, o.most, o.pausers = policy, int64(most), map[pauser]struct{}{}
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

// goOn counts a handler again that did not count for a while.
func (o *load) goOn() {
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

func (o *load) add(p pauser) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pausers[p] = struct{}{}; o.paused {
		p.Pause()
	}
}

func (o *load) remove(p pauser) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pausers, p)
}

// A pauser is a listener that can stop accepting for a while.
type pauser interface {
	Pause()
	Resume()
}

// A moment is a point in time in nanoseconds since the server began to serve: a third of a
// time.Time, because every exchange has some.
type moment int64

// never is the zero moment: no bound.
const never moment = 0

// moment converts what is given as a time; the zero time is never.
func (s *shared) moment(t time.Time) moment {
	if t.IsZero() {
		return never
	}
	return max(1, moment(t.Sub(s.began)))
}

// now returns the time for callers that are not on a loop.
func (s *shared) now() moment { return s.moment(s.engine.System().Now()) }

func (m moment) after(d time.Duration) moment {
	if m += moment(d); m < 0 {
		return 1<<63 - 1
	}
	return m
}

func (m moment) passed(now moment) bool { return m != never && now >= m }

// orEarlier is the earlier of two bounds.
func (m moment) orEarlier(other moment) moment {
	if m == never || other != never && other < m {
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

func firstOf(ds ...time.Duration) time.Duration {
	for _, d := range ds {
		if d != 0 {
			return max(d, 0)
		}
	}
	return 0
}

func orDefault(n, fallback int) int {
	if n == 0 {
		return fallback
	}
	return n
}

// waitQuiet returns when the last connection has gone, the last handler without one, the last that
// has kept a loop's goroutine, and the last Serve.
func (s *shared) waitQuiet(ctx context.Context) error {
	p := s.engine.System().NewParker()
	s.mu.Lock()
	s.waiters = append(s.waiters, p)
	s.mu.Unlock()
	defer s.forget(p)
	stop := context.AfterFunc(ctx, p.Unpark)
	defer stop()
	for s.conns.Load() > 0 || s.tasks.Away() != 0 || s.serving.Load() > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.Park()
	}
	return nil
}

// connGone wakes each Shutdown that waits for the last connection.
func (s *shared) connGone() {
	if s.conns.Add(-1) == 0 {
		s.wakeWaiters()
	}
}

// serveOver wakes them for the last Serve.
func (s *shared) serveOver() {
	if s.serving.Add(-1) == 0 {
		s.wakeWaiters()
	}
}

func (s *shared) forget(waiter driver.Parker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters = slices.DeleteFunc(s.waiters, func(p driver.Parker) bool { return p == waiter })
}

func (s *shared) wakeWaiters() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.waiters {
		p.Unpark()
	}
}

// logHandshake logs the last of so many handshakes that have failed, in the words of net/http.
func (s *shared) logHandshake(remote net.Addr, reason string, times uint64) {
	if times > 1 {
		s.Logf("http: TLS handshake error from %v: %v (and %d more)", remote, reason, times-1)
		return
	}
	s.Logf("http: TLS handshake error from %v: %v", remote, reason)
}
