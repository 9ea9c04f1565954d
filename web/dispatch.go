package web

import (
	"fmt"

	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/workers"
)

// Dispatch chooses where a handler runs. The zero value is DispatchAuto. It is one type in web,
// websocket and resp.
type Dispatch = dispatch.Mode

const (
	// DispatchAuto runs each handler where it is cheapest: on the pool until its route has been
	// quick (100 µs) many times in a row, then on the loop as DispatchInline does. After it has
	// overstayed, it runs on the pool again. A route is method and path; segments of a path that
	// look like ids make no difference. Handlers may block. On a loop that is bound to its thread
	// (myriad.Loop.ThreadBound) every handler runs on the pool.
	DispatchAuto = dispatch.Auto
	// DispatchPool hands each request to a bounded pool of warm goroutines. A handler that computes
	// for long takes no time of a loop.
	DispatchPool = dispatch.Pool
	// DispatchInline runs the handler on the loop. It is for handlers that never block. The other
	// connections of the loop wait until the handler returns; after a millisecond or two a new
	// goroutine runs the loop. A request whose body has not arrived yet, or whose client is behind
	// with reading earlier answers, runs on the pool. A call of the server that would wait hands
	// the loop to a new goroutine first; where the driver is bound to a thread it fails with
	// myriad.ErrOnLoop.
	DispatchInline = dispatch.Inline
)

// inlineQueue is how many bytes may wait for a client whose next request is to run on the loop.
const inlineQueue = 64 << 10

// newDispatcher makes what runs the server's handlers. OverloadRefuse and OverloadPause count them
// in st.load.
func (s *Server) newDispatcher(st *state) *dispatch.Dispatcher {
	return dispatch.New(dispatch.Config{
		Mode: s.Dispatch,
		Workers: workers.Config{
			Workers: s.Workers, Queue: s.Queue,
			OnPanic: func(v any, stack []byte) { s.logf("web: panic outside a handler: %v\n%s", v, stack) },
		},
		MaxQueued: inlineQueue,
		MaxAway:   int(st.load.most),
		AllBack:   st.wakeWaiters,
		NoRoom:    func(t dispatch.Task) { st.noRoom(t.(task).base()) },
	})
}

// A task is a carrier as what is dispatched.
type task interface {
	dispatch.Task
	base() *exchange
}

func (x *exchange) base() *exchange { return x }

// dispatch runs the exchange of t as an inline task, or with the others of this poll cycle on the
// pool.
func (ln *lane) dispatch(t task, complete bool) {
	x := t.base()
	if complete && ln.tasks.TryInline(x.conn(), t, ln.recordOf(x)) {
		x.runs = runsInline
		return
	}
	x.runs = runsOnPool
	if !ln.st.load.begin() {
		x.refuse(503, fmt.Sprintf("%d requests are being served", ln.st.load.most))
		return
	}
	ln.tasks.ToPool(t)
}

// noRoom answers a request for which the pool's queue has no room. On the loop.
func (st *state) noRoom(x *exchange) {
	st.load.end()
	x.refuse(503, fmt.Sprintf("%d requests are waiting", orDefault(x.lane.s.Queue, workers.DefaultQueue)))
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

// Do implements dispatch.Task: it calls the handler and completes the answer. A handler does not
// begin when its client has disconnected or, with HTTP/2, reset the stream: else a client could
// make the server work for nothing, as fast as it can ask.
func (x *exchange) Do() (returned bool) {
	if x.inline() && x.gone.Load() || !x.inline() && !x.given.ctx.begin() {
		x.given.ctx.end()
		x.over()
		return false
	}
	return x.run()
}

// Next implements dispatch.Task: it returns the next exchange of a chain, if x has ended in such a
// way that it may follow. Behind an inline task whose loop was handed off, the loop goes on with
// the connection.
func (x *exchange) Next() dispatch.Task {
	if x.inline() {
		if x.ending().complete() {
			x.wants.Or(uint32(wantFinish))
		}
		x.carrier.ask()
		x.carrier.spent()
		return nil
	}
	return x.carrier.next()
}

// Kept implements dispatch.Task: the loop goes on with the connection at once.
func (x *exchange) Kept() {
	x.runs = kept
	x.carrier.returned()
	x.carrier.release()
}
