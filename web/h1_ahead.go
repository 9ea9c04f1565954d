package web

import (
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h1"
)

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
