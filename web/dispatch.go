package web

import (
	"strconv"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/web/internal/exchange"
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

// Overload chooses what happens to requests while Server.Workers handlers run. Handlers that wait
// for their own client, to send more of a body or to read more of an answer, do not count, or a few
// thousand slow clients would keep all others out; nor do those that have hijacked their
// connection, and Streams, which have no handler. Handlers that a loop has left behind
// (DispatchInline, DispatchAuto) count for themselves, up to the same number.
type Overload uint8

const (
	// OverloadQueue has requests wait, first come first served, up to Server.Queue of them. Further
	// ones are answered with 503, and their connections close. Retry-After gives each a time of its
	// own, from 1 to 60 s, as many in a second as handlers have ended in one lately. An
	// EventSource, which would give up after 503, gets 200 and a stream that has this time and
	// ends.
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

var _, _ exchange.Pauser = (*myriad.Listener)(nil), (*gate)(nil)
