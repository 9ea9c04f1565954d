package web

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/workers"
)

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

// A pauser is a listener that can stop accepting for a while.
type pauser interface {
	Pause()
	Resume()
}

func (o *load) init(s *Server) {
	o.policy, o.most, o.pausers = s.Overload, int64(orDefault(s.Workers, workers.DefaultWorkers)), map[pauser]struct{}{}
}

func orDefault(n, fallback int) int {
	if n == 0 {
		return fallback
	}
	return n
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

// leavesPool is for a handler that has hijacked its connection: from now on it counts no more.
func (x *exchange) leavesPool() {
	if x.Excuse(); x.inline() {
		return
	}
	x.lane.st.load.end()
	x.lane.st.tasks.Widen(1)
}

// offPool is the end of a handler that ran on the pool.
func (x *exchange) offPool() {
	if x.Excused() {
		x.lane.st.tasks.Widen(-1)
		return
	}
	x.lane.st.load.end()
}

// awaitClient parks the goroutine of a handler until something has come from its client, or gone to
// it. Meanwhile the handler does not count.
func (x *exchange) awaitClient(p driver.Parker) {
	st := x.lane.st
	if x.inline() || x.Excused() || !st.tasks.Widen(1) {
		p.Park()
		return
	}
	st.load.end()
	p.Park()
	st.tasks.Widen(-1)
	st.load.goOn()
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

// A gate pauses a foreign listener: each Accept passes the gate first.
type gate struct {
	waiter driver.Parker

	mu     sync.Mutex
	closed bool // guarded by mu: no Accept passes
	over   bool // guarded by mu: everybody does, for the listener has been closed
}

func (g *gate) Pause()  { g.set(func() { g.closed = true }) }
func (g *gate) Resume() { g.set(func() { g.closed = false }) }
func (g *gate) end()    { g.set(func() { g.over = true }) }

func (g *gate) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	g.waiter.Unpark()
}

func (g *gate) pass() {
	for g.waits() {
		g.waiter.Park()
	}
}

func (g *gate) waits() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed && !g.over
}

var _, _ pauser = (*myriad.Listener)(nil), (*gate)(nil)
