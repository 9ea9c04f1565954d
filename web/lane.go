package web

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/tlsloop"
	"github.com/myriad-go/myriad/workers"
)

// A lane is a server's state on one loop, and owned by that loop.
type lane struct {
	s       *Server
	st      *state
	loop    *myriad.Loop
	head    h1.Head         // of the request being parsed
	cache   headCache       // of a recent one
	scratch []byte          // where its text is put together
	spare   *h1stream       // of an inline task that has returned: for the next request; nil: none
	asked   *link           // whose request was the last; nil: it has gone
	address string          // of its client, if that has been asked for again; else empty
	tasks   *dispatch.Local // runs handlers
	awake   []served        // the lane's connections, without those that hibernate
	idle    []*conn         // those that hibernate when this turn ends, if they can
	greeted greeting        // connections that have not come to HTTP: PROXY headers, TLS handshakes
	large   largeHeads
	drained bool
	aborted bool // Close was called: what is opened yet is reset
	routes  routes
}

// texts copies what a request keeps of its head, and the address of its client, in one piece. The
// address is copied only once for requests of one client in a row, as with pipelining.
func (ln *lane) texts(k *link, raw []byte) (head, address string) {
	if ln.asked != k {
		ln.asked, ln.address = k, ""
		ln.scratch = k.c.AppendRemoteAddr(append(ln.scratch[:0], raw...))
		both := string(ln.scratch)
		return both[:len(raw)], both[len(raw):]
	}
	return string(raw), ln.addressOf(k)
}

// addressOf is the address of h's client.
func (ln *lane) addressOf(k *link) string {
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
	c        *myriad.Conn
	lane     *lane
	from     *origin
	place    int32 // in lane.awake
	state    uint8 // what ConnState was told last, an http.ConnState
	shared   bool  // an exchange that is not used again knows the link
	secure   bool  // the conn's layer is TLS, or from.base has an accepted of TLS
	greeted  bool  // ConnState was called for the conn before its handshake
	stopping bool  // the engine shuts down
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
func (k *link) leaving() bool { return k.stopping || k.lane.drained }

// date is what the Date field of an answer says that the loop itself gives.
func (k *link) date() string { return k.lane.st.clock.at(k.lane.loop.Now()).text }

// now is the loop's time.
func (k *link) now() moment { return k.lane.st.moment(k.lane.loop.Now()) }

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
	waiter *front // for those that hibernate; nil: they must not, because others know their net.Conn
}

// mostAwake is how many connections of a lane may be awake while they wait.
const mostAwake = 1024

func (ln *lane) add(h served) {
	ln.st.conns.Add(1)
	ln.stay(h)
}

func (ln *lane) remove(k *link) {
	ln.depart(k)
	ln.st.connGone()
}

// stay puts h on the list of those that are awake.
func (ln *lane) stay(h served) {
	h.known().place = int32(len(ln.awake))
	ln.awake = append(ln.awake, h)
}

// depart takes h off the list.
func (ln *lane) depart(k *link) {
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
func (ln *lane) crowded() bool { return len(ln.awake) > ln.s.awakeConns() }

// dispatch runs the exchange of t as an inline task, or with the others of this poll cycle on the
// pool.
func (ln *lane) dispatch(t task, complete bool) {
	x := t.base()
	x.enter(handling)
	if complete && ln.tasks.TryInline(x.conn(), t, ln.recordOf(x)) {
		x.inlined = true
		return
	}
	if !ln.st.load.begin() {
		x.refuse(503, fmt.Sprintf("%d requests are being served", ln.st.load.most))
		return
	}
	ln.tasks.ToPool(t)
}

// recordOf is what is known of the route of x; nil: nothing, or it makes no difference.
func (ln *lane) recordOf(x *exchange) *dispatch.Record {
	if ln.s.Dispatch != DispatchAuto {
		return nil
	}
	if r := ln.routes.of(&x.given.request); r != nil {
		return &r.Record
	}
	return nil
}

// noRoom answers a request for which the pool's queue has no room. On the loop.
func (st *state) noRoom(x *exchange) {
	st.load.end()
	x.refuse(503, fmt.Sprintf("%d requests are waiting", orDefault(x.lane.s.Queue, workers.DefaultQueue)))
}

// A load is how many handlers run on the pool or wait for it. It is counted where something depends
// on it.
type load struct {
	policy Overload
	most   int64 // Workers
	n      atomic.Int64

	mu      sync.Mutex
	paused  bool                // guarded by mu
	pausers map[pauser]struct{} // guarded by mu
}

func (o *load) init(s *Server) {
	o.policy, o.most, o.pausers = s.Overload, int64(orDefault(s.Workers, workers.DefaultWorkers)), map[pauser]struct{}{}
}

// begin counts a request that goes to the pool, or reports false if it is to be refused. On a loop.
func (o *load) begin() bool {
	switch o.policy {
	case OverloadQueue:
		return true
	case OverloadRefuse:
		if o.n.Add(1) > o.most {
			o.n.Add(-1)
			return false
		}
	case OverloadPause:
		if o.n.Add(1) == o.most+1 {
			o.look()
		}
	}
	return true
}

// end counts one that is over, or does not count any more. Any goroutine.
func (o *load) end() {
	if o.policy != OverloadQueue && o.n.Add(-1) == o.most && o.policy == OverloadPause {
		o.look()
	}
}

// goOn counts a handler again that did not count for a while.
func (o *load) goOn() {
	if o.policy != OverloadQueue && o.n.Add(1) == o.most+1 && o.policy == OverloadPause {
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
func (st *state) moment(t time.Time) moment {
	if t.IsZero() {
		return never
	}
	return max(1, moment(t.Sub(st.began)))
}

// now returns the time for callers that are not on a loop.
func (st *state) now() moment { return st.moment(st.engine.System().Now()) }

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
