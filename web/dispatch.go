package web

import (
	"fmt"
	"strconv"

	"github.com/myriad-go/myriad"
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

// Overload chooses what happens to requests while Server.Workers handlers run. Handlers that wait
// for their own client, to send more of a body or to read more of an answer, do not count, or a few
// thousand slow clients would keep all others out; nor do those that have hijacked their
// connection, and Streams, which have no handler. Handlers that a loop has left behind
// (DispatchInline, DispatchAuto) count for themselves, up to the same number.
type Overload uint8

const (
	// OverloadQueue has requests wait, first come first served, up to Server.Queue of them. Further
	// ones are answered with 503 and Retry-After, and their connections close.
	OverloadQueue Overload = iota
	// OverloadRefuse answers with 503 and Retry-After at once; no request waits. It is for clients
	// that have somewhere else to go.
	OverloadRefuse
	// OverloadPause is OverloadQueue, and while requests wait no connections are accepted: new
	// clients wait in the kernel's backlog or are balanced to where there is room, and those that
	// are connected are served. With Server.Queue above the number of connections nothing is
	// refused. A listener of Serve may still accept the one connection that it waits for.
	OverloadPause
)

// String is the constant's name without its prefix.
func (o Overload) String() string {
	switch o {
	case OverloadQueue:
		return "queue"
	case OverloadRefuse:
		return "refuse"
	case OverloadPause:
		return "pause"
	}
	return "Overload(" + strconv.Itoa(int(o)) + ")"
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

var _, _ pauser = (*myriad.Listener)(nil), (*gate)(nil)
