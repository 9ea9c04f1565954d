package web

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/workers"
)

// Dispatch chooses who runs a handler. The zero value is DispatchAuto.
type Dispatch uint8

const (
	// DispatchAuto runs each handler where it is cheapest: on the pool until its route has been quick many times in a row (100 µs),
	// then on the loop as DispatchInline does, and on the pool again when it has overstayed. A route is method and path; segments of
	// a path that look like ids make no difference. Handlers may block.
	DispatchAuto Dispatch = iota
	// DispatchPool hands each request to a bounded pool of warm goroutines. A handler that computes for
	// long takes no time of a loop.
	DispatchPool
	// DispatchInline runs the handler on the loop. It is for handlers that never block: the other
	// connections of the loop wait until it returns, or for a millisecond or two, after which a new
	// goroutine runs the loop. A request whose body has not arrived yet, or whose client is behind with
	// reading earlier answers, runs on the pool. A call of the server that would wait hands the loop to a
	// new goroutine first; where the driver is bound to a thread it fails with myriad.ErrOnLoop.
	DispatchInline
)

// inlineQueue is how many bytes may wait for a client whose next request is to run on the loop.
const inlineQueue = 64 << 10

// String is the constant's name without its prefix.
func (d Dispatch) String() string {
	switch d {
	case DispatchPool:
		return "pool"
	case DispatchInline:
		return "inline"
	case DispatchAuto:
		return "auto"
	}
	return "Dispatch(" + strconv.Itoa(int(d)) + ")"
}

// executor is what runs handlers: a *workers.Pool, or the simulator.
type executor interface {
	TryGoAll(fs []func()) int
	Close(ctx context.Context) error
}

func newExecutor(s *Server, e *myriad.Engine) executor {
	if x := e.System().Executor(); x != nil {
		return x
	}
	return workers.New(workers.Config{
		Workers: s.Workers, Queue: s.Queue,
		OnPanic: func(v any, stack []byte) { s.logf("web: panic outside a handler: %v\n%s", v, stack) },
	})
}

// dispatch runs the exchange as an inline task, or with the others of this poll cycle on the pool: one wake for all of them.
func (ln *lane) dispatch(x *exchange, complete bool) {
	x.due = true
	if x.invited = ln.invites(x, complete); x.invited {
		x.chain = nil // an inline task runs alone: those behind are dispatched when it has returned
		x.transport.invite(x)
		return
	}
	if !ln.st.load.begin() {
		x.refuse(503, fmt.Sprintf("%d requests are being served", ln.st.load.most))
		return
	}
	if len(ln.batch) == 0 {
		ln.loop.Later(ln.submit)
	}
	ln.batch = append(ln.batch, x.runChain)
	ln.waiting = append(ln.waiting, x)
}

// restAfter is for how long everything runs on the pool after a handler has overstayed: what made it slow often makes others slow.
const restAfter = 10 * time.Millisecond

// invites decides whether the handler runs on the loop.
func (ln *lane) invites(x *exchange, complete bool) bool {
	if ln.s.Dispatch == DispatchPool || !complete {
		return false
	}
	if ln.s.Dispatch == DispatchAuto && !ln.isQuick(x) {
		return false
	}
	return x.transport.conn().Queued() <= inlineQueue && ln.st.lent.n.Load() < ln.st.lent.most
}

// isQuick reports whether the handler is known to be quick, and sees to it that more is learned about it.
func (ln *lane) isQuick(x *exchange) (inline bool) {
	x.route = ln.routes.of(&x.given.request)
	if x.route == nil || ln.rests() {
		return false
	}
	inline, x.timed = x.route.Call()
	return inline
}

// learn has x timed, which is to run on the pool behind another one of its connection, if that can teach anything.
func (ln *lane) learn(x *exchange) {
	if ln.s.Dispatch != DispatchAuto || ln.rests() {
		return
	}
	if x.route = ln.routes.of(&x.given.request); x.route != nil {
		x.timed = !x.route.Inline()
	}
}

func (ln *lane) rests() bool {
	if ln.resting.IsZero() {
		return false
	}
	if ln.loop.Now().Before(ln.resting) {
		return true
	}
	ln.resting = time.Time{}
	return false
}

// lost is told of a handler that goes on without the loop.
func (ln *lane) lost(x *exchange, overstayed bool) {
	ln.st.lent.begin()
	if x.route == nil {
		return
	}
	x.route.Strike()
	if overstayed {
		ln.resting = ln.loop.Now().Add(restAfter)
	}
}

// lent counts the handlers that run on goroutines which were a loop's. One may end before its beginning is counted.
type lent struct {
	n    atomic.Int64
	most int64  // above it nobody is invited
	none func() // called when there is none any more
}

func (l *lent) begin() { l.add(1) }
func (l *lent) end()   { l.add(-1) }

func (l *lent) add(n int64) {
	if l.n.Add(n) == 0 {
		l.none()
	}
}

// submit gives this turn's requests to the pool. Those for which its queue has no room are answered with 503.
func (ln *lane) submit() {
	n := ln.st.pool.TryGoAll(ln.batch)
	for _, x := range ln.waiting[n:] {
		ln.st.load.end()
		x.refuse(503, fmt.Sprintf("%d requests are waiting", orDefault(ln.s.Queue, workers.DefaultQueue)))
	}
	clear(ln.batch)
	clear(ln.waiting)
	ln.batch, ln.waiting = ln.batch[:0], ln.waiting[:0]
}
