package web

import (
	"errors"
	"sync"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h1"
)

// This file is what a connection does with requests that come before the answer to an earlier one
// has ended (RFC 9112 section 9.3.2). Those that have no body line up behind conn.x, linked by
// h1stream.behind. With a PipelineDepth of 1 they are a chain: one goroutine of the pool runs them
// one after the other, as they were handed to it. With more, each runs by itself, and what it
// answers is held until those before it have ended.
//
// Some requests cannot be begun so: those that have a body, that are in some way wrong, or that
// stand behind one whose sequel is not sequelRequest. Such a request stays where it is, as bytes,
// until the line has ended.

const (
	maxDepth = 1024 // of Server.PipelineDepth
	// maxChain is how many requests a goroutine of the pool is given at once.
	maxChain = 32
	// maxHeld is how many bytes of an answer wait for those before it; then its handler does.
	maxHeld = 32 << 10
)

// A hold keeps the answer of an exchange that is not the first of its line.
type hold struct {
	mu    sync.Mutex
	first bool // it is now: nothing is held any more
	lost  bool // it never will be: its answer is discarded, and it ends no connection
	data  buf.Chain
	fail  func() // how the connection is to end once the answer has gone
}

// pipeline begins requests at the start of p behind the current one, and returns how many bytes
// they took.
func (h *conn) pipeline(p []byte) (used int) {
	tail, n := h.x, 1
	if tail == nil {
		return 0
	}
	for tail.behind != nil {
		tail, n = tail.behind, n+1
	}
	depth := h.lane.s.PipelineDepth
	if depth <= 1 {
		if !h.lane.tasks.IsLast(h.x) {
			return 0 // its chain has been handed over
		}
		depth = maxChain
	}
	for ; used < len(p) && n < depth && tail.sequel == sequelRequest && !h.leaving(); n++ {
		x, size := h.beginBehind(p[used:])
		if x == nil {
			break
		}
		used += size
		h.lineUp(tail, x)
		tail = x
	}
	return used
}

// beginBehind makes an exchange of the request at the start of p, unless it has to wait.
func (h *conn) beginBehind(p []byte) (x *h1stream, size int) {
	head := &h.lane.head
	size, err := h1.ParseRequest(p, h.lane.st.limits, head)
	if err != nil || size == 0 || head.Chunked || head.ContentLength > 0 {
		return nil, 0
	}
	x, status, _ := newStream(h, p[:size], head)
	if status != 0 {
		return nil, 0
	}
	return x, size
}

// dispatch runs the handler of x.
func (h *conn) dispatch(x *h1stream, complete bool) {
	if h.lane.dispatch(x, complete); x.inline() {
		x.chain = nil // an inline task runs alone: those behind are dispatched when it has returned
	}
}

// lineUp puts x behind tail.
func (h *conn) lineUp(tail, x *h1stream) {
	tail.behind = x
	if h.lane.s.PipelineDepth <= 1 {
		tail.chain, x.follows = x, true
		h.lane.tasks.Follow(x, h.lane.recordOf(&x.exchange))
		return
	}
	x.hold = new(hold)
	h.setTimes(x)
	h.dispatch(x, true)
}

// promote makes x the first of the line. plain: so was the answer before, and its goroutine
// continues with x.
func (h *conn) promote(x *h1stream, plain bool) {
	h.x = x
	if x.follows {
		if s := h.lane.s; s.WriteTimeout > 0 {
			x.writeBy = h.now().after(s.WriteTimeout)
		}
		if !plain { // its goroutine has not gone on
			h.setTimes(x)
			h.dispatch(x, true)
		}
	} else if x.hold != nil {
		h.release(x)
	}
	h.armDeadlines(x)
	x.out.wake() // its handler may have filled the queue when another was still the first
	h.takeAhead()
}

// release sends what is held of x, and lets it write for itself. While the connection's queue has
// no room it does nothing, and Drained calls it again.
func (h *conn) release(x *h1stream) {
	if x.hold.release(h.c) {
		x.out.wake() // without the hold's lock: a reader that sends 100 Continue takes both the other way round
	}
}

// release sends what is held, and reports whether the answer has just become the first.
func (k *hold) release(c *myriad.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.first {
		return false
	}
	_, err := c.Write(k.data.AppendTo(nil))
	switch {
	case errors.Is(err, myriad.ErrFull):
		return false
	case errors.Is(err, myriad.ErrTooLarge): // of an engine with a small Config.MaxWrite: nothing may follow
		c.Abort(err)
	}
	k.first = true
	k.data.Release()
	if k.fail != nil {
		k.fail()
	}
	return true
}

// take keeps p for later, unless the time has come to write it.
func (k *hold) take(p []byte) (held bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.lost:
		return false, myriad.ErrClosed
	case k.first:
		return false, nil
	case k.data.Len() > 0 && k.data.Len()+len(p) > maxHeld:
		return false, myriad.ErrFull
	}
	k.data.Append(p)
	return true, nil
}

// isFirst reports whether nothing is held any more.
func (k *hold) isFirst() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.first
}

// failLater has the connection end as f does when it is the turn of the answer, if it is not yet.
func (k *hold) failLater(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.first {
		k.fail = f
	}
	return k.lost || !k.first
}

// drop forgets what is held, and what would be: the connection may have another owner by now.
func (k *hold) drop() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = true
	k.data.Release()
}

// unbegun is the bytes of the requests behind x, for the new owner of the connection.
func (x *h1stream) unbegun() (heads []byte) {
	for y := x.behind; y != nil; y = y.behind {
		heads = append(append(heads, y.raw...), y.rest...)
	}
	return heads
}

// loseLine ends all exchanges behind x.
func (x *h1stream) loseLine(err error, end *lastState) {
	if x == nil {
		return
	}
	for y := x.behind; y != nil; y = y.behind {
		y.connectionLost(err, end)
	}
}
