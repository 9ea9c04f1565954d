package http1

import (
	"errors"
	"slices"
	"sync"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file is what a connection keeps that it cannot use yet: bytes, and requests that come before
// the answer to an earlier one has ended (RFC 9112 section 9.3.2).
//
// Requests that have no body line up behind Conn.X, linked by Stream.behind. With a PipelineDepth
// of 1 they are a chain: one goroutine of the pool runs them one after the other, as they were
// handed to it. With more, each runs by itself, and what it answers is held until those before it
// have ended.
//
// Some requests cannot be begun so: those that have a body, that are in some way wrong, or that
// stand behind one whose sequel is not sequelRequest. Such a request stays where it is, as bytes,
// until the line has ended.

// An ahead holds bytes that cannot be used yet: an incomplete head or trailer, or what follows the
// current request.
type ahead struct {
	Block *buf.Block
	Used  int     // bytes at its start that have been processed
	scan  h1.Scan // of those behind
	tried bool    // those have been taken for a head or trailer in vain: now only what is new of them is looked at
	whole bool    // scan has seen a whole head, which waits for its turn
	turn  turn    // among the large heads
}

func (a *ahead) bytes() []byte { return a.Block.Bytes()[a.Used:] }

// kept is what waits, if anything does.
func (h *Conn) kept() []byte {
	if h.Ahead == nil {
		return nil
	}
	return h.Ahead.bytes()
}

// leastRoom is the smallest block that is taken, and the least that is added to one at a time.
const leastRoom = 512

// keep copies p behind what is kept already, and stops reading at the limit.
func (h *Conn) keep(p []byte) {
	a := h.Ahead
	if a == nil {
		a = &ahead{Block: buf.Get(max(len(p), leastRoom))}
		h.Ahead = a
	}
	if a.Block.Free() < len(p) {
		larger := buf.Get(h.RoomFor(len(a.bytes()) + len(p)))
		larger.Append(a.bytes())
		h.releaseBlock(a.Block)
		a.Block, a.Used = larger, 0
	}
	a.Block.Append(p)
	if h.aheadIsFull() {
		h.pause(pauseAhead)
	}
}

// aheadIsFull reports whether enough is kept behind the current request for the loop to stop
// reading.
func (h *Conn) aheadIsFull() bool {
	return h.Ahead != nil && h.answering() && len(h.Ahead.bytes()) >= MaxAhead
}

// RoomFor is what is taken for n bytes: twice as much, but not more than may be kept.
func (h *Conn) RoomFor(n int) int {
	most := MaxAhead
	if !h.answering() {
		most = h.Own.Protocol.Limits.HeadBytes
	}
	return max(n, min(2*n, most))
}

// extend appends p to what is kept, at most as much as may belong to a head. More would be copied
// in vain, into a block larger than any in the pool.
func (h *Conn) extend(p []byte) {
	for len(p) > 0 && h.Ahead != nil && h.phase != phaseClosing {
		n := len(p)
		if !h.answering() {
			n = min(n, max(leastRoom, h.Own.Protocol.Limits.HeadBytes-len(h.Ahead.bytes())))
		}
		h.keep(p[:n])
		h.takeAhead()
		h.takeTurn()
		p = p[n:]
	}
	if len(p) > 0 && h.phase != phaseClosing {
		h.Received(h.C, p)
	}
}

// takeAhead processes the kept bytes anew.
func (h *Conn) takeAhead() {
	a := h.Ahead
	if a == nil || h.answering() && h.Lane.Server.PipelineDepth <= 1 || a.tried && h.stillIncomplete(a) {
		return
	}
	h.Ahead = nil
	n := h.process(a.bytes())
	if n > 0 {
		h.endTurn(a)
	}
	if n == len(a.bytes()) {
		h.releaseBlock(a.Block)
		return
	}
	if h.Ahead = a; n > 0 {
		a.Used += n
		a.scan, a.whole = h1.Scan{}, false
	}
	a.tried = !h.answering()
}

// stillIncomplete looks only at what is new of a head or trailer that comes in pieces.
func (h *Conn) stillIncomplete(a *ahead) bool {
	if a.whole {
		return false
	}
	look := a.scan.Request
	if h.X != nil && !h.answering() {
		look = a.scan.Trailer
	}
	ready, err := look(a.bytes(), h.Own.Protocol.Limits)
	if err != nil && err != h1.ErrPreface && h.X == nil && !h.answering() {
		h.refuseHead(a.bytes(), err) // it would not be another if a megabyte were parsed to find it again
		return true
	}
	a.whole = ready || err != nil
	return !a.whole
}

// largeHead is how large a block may be that the lane's Head goes on pointing into.
const largeHead = 16 << 10

// releaseBlock gives a block back in which a head has been looked for.
func (h *Conn) releaseBlock(b *buf.Block) {
	if b.Cap() > largeHead {
		h.Own.Head = h1.Head{} // or one large head would hold a megabyte until another has as many fields
	}
	b.Release()
}

func (h *Conn) dropAhead() {
	if a := h.Ahead; a != nil {
		h.Ahead = nil
		h.endTurn(a)
		h.releaseBlock(a.Block)
	}
}

const (
	// freeHead is how many bytes of an incomplete head, and one read buffer, are kept of every
	// connection.
	FreeHead = 32 << 10
	// mostLarge is how many of a lane's connections may have more of one at a time. The others are
	// not read from meanwhile.
	MostLarge = 32
)

// A turn is how an incomplete head stands among the large ones of its lane.
type turn uint8

const (
	turnNone    turn = iota // it is not large
	turnHas                 // it grows
	turnAwaited             // its connection is paused until it may
)

// largeHeads are those of a lane, which come one after the other. MaxHeaderBytes is for each
// connection: thousands of heads of a megabyte that grow side by side would take gigabytes, and
// every turn of the loop as long as it takes to copy from all of them. What is said here of heads
// goes for trailers.
type largeHeads struct {
	Growing int
	Waiting []*Conn // the first comes next
}

// takeTurn has a head that has become large grow, or wait until others are complete. The time that
// it has runs on.
func (h *Conn) takeTurn() {
	a, large := h.Ahead, &h.Own.Large
	switch {
	case a == nil || a.turn == turnHas || h.answering() || len(a.bytes()) < FreeHead:
		return
	case a.turn == turnNone && large.Growing < MostLarge:
		large.Growing++
		a.turn = turnHas
		return
	case a.turn == turnNone:
		large.Waiting = append(large.Waiting, h)
		a.turn = turnAwaited
	}
	h.pause(pauseTurn)
}

// endTurn has the next one grow, if a did. One that still waited goes, or is a trailer that has
// come to its end: then goOn reads on.
func (h *Conn) endTurn(a *ahead) {
	large := &h.Own.Large
	switch a.turn {
	case turnHas:
		large.Growing--
		large.next()
	case turnAwaited:
		at := slices.Index(large.Waiting, h)
		large.Waiting = slices.Delete(large.Waiting, at, at+1)
	}
	a.turn = turnNone
}

// next lets the first waiting connection read its large head.
func (l *largeHeads) next() {
	if len(l.Waiting) == 0 {
		return
	}
	h := l.Waiting[0]
	l.Waiting = slices.Delete(l.Waiting, 0, 1)
	l.Growing++
	h.Ahead.turn = turnHas
	h.resume(pauseTurn)
}

const (
	MaxDepth = 1024 // of Server.PipelineDepth
	// maxChain is how many requests a goroutine of the pool is given at once.
	MaxChain = 32
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
func (h *Conn) pipeline(p []byte) (used int) {
	tail, n := h.X, 1
	if tail == nil {
		return 0
	}
	for tail.behind != nil {
		tail, n = tail.behind, n+1
	}
	depth := h.Lane.Server.PipelineDepth
	if depth <= 1 {
		if !h.Lane.Tasks.IsLast(h.X) {
			return 0 // its chain has been handed over
		}
		depth = MaxChain
	}
	for ; used < len(p) && n < depth && tail.sequel == sequelRequest && !h.Finishes(); n++ {
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
func (h *Conn) beginBehind(p []byte) (x *Stream, size int) {
	head := &h.Own.Head
	size, err := h1.ParseRequest(p, h.Own.Protocol.Limits, head)
	if err != nil || size == 0 || head.Chunked || head.ContentLength > 0 {
		return nil, 0
	}
	x, status, _ := newStream(h, p[:size], head)
	if status != 0 {
		return nil, 0
	}
	return x, size
}

// lineUp puts x behind tail.
func (h *Conn) lineUp(tail, x *Stream) {
	tail.behind = x
	if h.Lane.Server.PipelineDepth <= 1 {
		tail.Chain, x.follows = x, true
		h.Lane.Tasks.Follow(x, x.Record())
		return
	}
	x.hold = new(hold)
	h.setTimes(x)
	h.dispatch(x, true)
}

// promote makes x the first of the line.
func (h *Conn) promote(x *Stream) {
	h.X = x
	if x.follows {
		if s := h.Lane.Server; s.WriteTimeout > 0 {
			x.WriteBy = h.Now().After(s.WriteTimeout)
		}
		if x.Progress() == exchange.Waiting { // the goroutine of the one before has not gone on with it
			h.setTimes(x)
			h.dispatch(x, true)
		}
	} else if x.hold != nil {
		h.release(x)
	}
	h.armDeadlines(x)
	x.Out.Wake() // its handler may have filled the queue when another was still the first
	h.takeAhead()
}

// release sends what is held of x, and lets it write for itself. While the connection's queue has
// no room it does nothing, and Drained calls it again.
func (h *Conn) release(x *Stream) {
	if x.hold.release(h.C) {
		x.Out.Wake() // without the hold's lock: a reader that sends 100 Continue takes both the other way round
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
