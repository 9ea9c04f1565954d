package web

import (
	"errors"
	"slices"
	"sync"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h1"
)

// This file is what a connection keeps that it cannot use yet: bytes, and requests that come before
// the answer to an earlier one has ended (RFC 9112 section 9.3.2).
//
// Requests that have no body line up behind conn.x, linked by h1stream.behind. With a PipelineDepth
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
	block *buf.Block
	used  int     // bytes at its start that have been processed
	scan  h1.Scan // of those behind
	tried bool    // those have been taken for a head or trailer in vain: now only what is new of them is looked at
	whole bool    // scan has seen a whole head, which waits for its turn
	turn  turn    // among the large heads
}

func (a *ahead) bytes() []byte { return a.block.Bytes()[a.used:] }

// kept is what waits, if anything does.
func (h *conn) kept() []byte {
	if h.ahead == nil {
		return nil
	}
	return h.ahead.bytes()
}

// leastRoom is the smallest block that is taken, and the least that is added to one at a time.
const leastRoom = 512

// keep copies p behind what is kept already, and stops reading at the limit.
func (h *conn) keep(p []byte) {
	a := h.ahead
	if a == nil {
		a = &ahead{block: buf.Get(max(len(p), leastRoom))}
		h.ahead = a
	}
	if a.block.Free() < len(p) {
		larger := buf.Get(h.roomFor(len(a.bytes()) + len(p)))
		larger.Append(a.bytes())
		h.releaseBlock(a.block)
		a.block, a.used = larger, 0
	}
	a.block.Append(p)
	if h.aheadIsFull() {
		h.pause(pauseAhead)
	}
}

// aheadIsFull reports whether enough is kept behind the current request for the loop to stop
// reading.
func (h *conn) aheadIsFull() bool {
	return h.ahead != nil && h.answering() && len(h.ahead.bytes()) >= maxAhead
}

// roomFor is what is taken for n bytes: twice as much, but not more than may be kept.
func (h *conn) roomFor(n int) int {
	most := maxAhead
	if !h.answering() {
		most = h.lane.st.limits.HeadBytes
	}
	return max(n, min(2*n, most))
}

// extend appends p to what is kept, at most as much as may belong to a head. More would be copied
// in vain, into a block larger than any in the pool.
func (h *conn) extend(p []byte) {
	for len(p) > 0 && h.ahead != nil && h.phase != phaseClosing {
		n := len(p)
		if !h.answering() {
			n = min(n, max(leastRoom, h.lane.st.limits.HeadBytes-len(h.ahead.bytes())))
		}
		h.keep(p[:n])
		h.takeAhead()
		h.takeTurn()
		p = p[n:]
	}
	if len(p) > 0 && h.phase != phaseClosing {
		h.Received(h.c, p)
	}
}

// takeAhead processes the kept bytes anew.
func (h *conn) takeAhead() {
	a := h.ahead
	if a == nil || h.answering() && h.lane.s.PipelineDepth <= 1 || a.tried && h.stillIncomplete(a) {
		return
	}
	h.ahead = nil
	n := h.process(a.bytes())
	if n > 0 {
		h.endTurn(a)
	}
	if n == len(a.bytes()) {
		h.releaseBlock(a.block)
		return
	}
	if h.ahead = a; n > 0 {
		a.used += n
		a.scan, a.whole = h1.Scan{}, false
	}
	a.tried = !h.answering()
}

// stillIncomplete looks only at what is new of a head or trailer that comes in pieces.
func (h *conn) stillIncomplete(a *ahead) bool {
	if a.whole {
		return false
	}
	look := a.scan.Request
	if h.x != nil && !h.answering() {
		look = a.scan.Trailer
	}
	ready, err := look(a.bytes(), h.lane.st.limits)
	if err != nil && err != h1.ErrPreface && h.x == nil && !h.answering() {
		h.refuseHead(a.bytes(), err) // it would not be another if a megabyte were parsed to find it again
		return true
	}
	a.whole = ready || err != nil
	return !a.whole
}

// largeHead is how large a block may be that the lane's Head goes on pointing into.
const largeHead = 16 << 10

// releaseBlock gives a block back in which a head has been looked for.
func (h *conn) releaseBlock(b *buf.Block) {
	if b.Cap() > largeHead {
		h.lane.head = h1.Head{} // or one large head would hold a megabyte until another has as many fields
	}
	b.Release()
}

func (h *conn) dropAhead() {
	if a := h.ahead; a != nil {
		h.ahead = nil
		h.endTurn(a)
		h.releaseBlock(a.block)
	}
}

const (
	// freeHead is how many bytes of an incomplete head, and one read buffer, are kept of every
	// connection.
	freeHead = 32 << 10
	// mostLarge is how many of a lane's connections may have more of one at a time. The others are
	// not read from meanwhile.
	mostLarge = 32
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
	growing int
	waiting []*conn // the first comes next
}

// takeTurn has a head that has become large grow, or wait until others are complete. The time that
// it has runs on.
func (h *conn) takeTurn() {
	a, large := h.ahead, &h.lane.large
	switch {
	case a == nil || a.turn == turnHas || h.answering() || len(a.bytes()) < freeHead:
		return
	case a.turn == turnNone && large.growing < mostLarge:
		large.growing++
		a.turn = turnHas
		return
	case a.turn == turnNone:
		large.waiting = append(large.waiting, h)
		a.turn = turnAwaited
	}
	h.pause(pauseTurn)
}

// endTurn has the next one grow, if a did. One that still waited goes, or is a trailer that has
// come to its end: then goOn reads on.
func (h *conn) endTurn(a *ahead) {
	large := &h.lane.large
	switch a.turn {
	case turnHas:
		large.growing--
		large.next()
	case turnAwaited:
		at := slices.Index(large.waiting, h)
		large.waiting = slices.Delete(large.waiting, at, at+1)
	}
	a.turn = turnNone
}

// next lets the first waiting connection read its large head.
func (l *largeHeads) next() {
	if len(l.waiting) == 0 {
		return
	}
	h := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	l.growing++
	h.ahead.turn = turnHas
	h.resume(pauseTurn)
}

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

// promote makes x the first of the line.
func (h *conn) promote(x *h1stream) {
	h.x = x
	if x.follows {
		if s := h.lane.s; s.WriteTimeout > 0 {
			x.writeBy = h.now().after(s.WriteTimeout)
		}
		if x.progress() == waiting { // the goroutine of the one before has not gone on with it
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
