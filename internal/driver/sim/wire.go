package sim

import (
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

const (
	wholeBuffer = 64 << 10
	growAfter   = 32 // movements after which a buffer doubles
	resetWithin = 20 * time.Second
	lateFIN     = 2 * time.Second
)

// An end is one side of a connection: the socket in the kernel that this world has not. What its
// holder sends waits in out until it moves to the other side's in. All methods need the lock.
type end struct {
	w             *World
	id            uint64
	other         *end
	local, remote driver.Addr
	unix          bool

	out, in        []byte
	sendCap, inCap int
	moves          int
	finQueued      bool // the holder sends no more; FIN goes after out
	finSent        bool // FIN is under way or has arrived
	finArrived     bool // the other side's FIN, behind in
	closed         bool // the holder is gone: what arrives is answered by a reset
	reset          error
	moving         bool
	holder         holder
	shares         int  // sockets and drivers that have it, beside one
	kept           int  // sockets and net.Conns that have it
	faulted        bool // the world broke this connection, not one of its sides
	planned        *event
}

// A holder is told when something about its end has changed: bytes, room, FIN or reset.
type holder interface{ endChanged() }

// newLink makes the two ends of a connection.
func (w *World) newLink(a, b driver.Addr, unix bool) (*end, *end) {
	w.links++
	id := uint64(w.links) << 1
	x := &end{w: w, id: id, local: a, remote: b, unix: unix, sendCap: w.bufferSize(), inCap: w.bufferSize()}
	y := &end{w: w, id: id | 1, local: b, remote: a, unix: unix, sendCap: w.bufferSize(), inCap: w.bufferSize()}
	x.other, y.other = y, x
	if w.chance(w.o.Reset) {
		x.planned = w.after(time.Duration(w.rng.Int64N(int64(resetWithin)>>w.rng.IntN(16))), timer, x.breakLink)
		y.planned = x.planned
	}
	return x, y
}

func (w *World) bufferSize() int {
	switch {
	case w.o.MaxBuffer < 0:
		return wholeBuffer
	case !w.chance(w.o.SmallBuffers):
		return min(w.o.MaxBuffer, 1<<(12+w.rng.IntN(5)))
	case w.chance(0.5):
		return min(w.o.MaxBuffer, 1+w.rng.IntN(8))
	}
	return min(w.o.MaxBuffer, 1+w.rng.IntN(700))
}

// breakLink is the fault Options.Reset: both sides see a reset.
func (e *end) breakLink() {
	if e.dead() && e.other.dead() {
		return
	}
	e.w.note("net", "broken", e.id, 0)
	e.faulted, e.other.faulted = true, true
	e.resetArrives(false)
	e.other.resetArrives(false)
}

func (e *end) dead() bool { return e.reset != nil || e.closed && e.finSent && e.finArrived }

// room is how much the send buffer takes.
func (e *end) room() int { return max(0, e.sendCap-len(e.out)) }

// write takes p into the send buffer; the caller has checked room.
func (e *end) write(p []byte) {
	e.out = append(e.out, p...)
	e.kick()
}

// read takes up to n bytes that have arrived into dst.
func (e *end) read(dst []byte) int {
	n := copy(dst, e.in)
	e.in = e.in[:copy(e.in, e.in[n:])]
	if n > 0 {
		e.other.kick()
	}
	return n
}

// closeWrite sends FIN behind what was written.
func (e *end) closeWrite() {
	if !e.finQueued && e.reset == nil {
		e.finQueued = true
		e.kick()
	}
}

// close is what the close system call does: FIN behind what was written, or a reset if input is
// unread.
func (e *end) close() {
	if e.closed || e.isShared() {
		return
	}
	e.closed, e.holder = true, nil
	if len(e.in) > 0 {
		e.sendReset()
		return
	}
	e.closeWrite()
	e.settleLink()
}

// isShared reports whether another one still has the end; then this one has let go of it.
func (e *end) isShared() bool {
	if e.shares == 0 {
		return false
	}
	e.shares--
	return true
}

// abort resets the connection and gives the end up.
func (e *end) abort() {
	if e.closed || e.isShared() {
		return
	}
	e.closed, e.holder = true, nil
	e.sendReset()
}

// sendReset ends both directions; what was not under way yet is lost, perhaps all of it.
func (e *end) sendReset() {
	if e.reset != nil {
		return
	}
	w := e.w
	if n := min(len(e.out), e.other.space()); n > 0 && !e.other.closed && w.chance(0.5) {
		e.arrive(1 + w.rng.IntN(n))
	}
	e.reset = syscall.ECONNRESET
	e.out, e.in = nil, nil
	w.note("net", "rst", e.id, 0)
	w.after(w.latency(), delivery, func() { e.other.resetArrives(false) })
}

// resetArrives ends this side. What it has not read stays there if the reset is the answer to what
// it sent, and is perhaps lost otherwise: kernels differ.
func (e *end) resetArrives(answer bool) {
	if e.reset != nil {
		return
	}
	e.w.note("net", "rst-arrived", e.id, 0)
	e.reset, e.out = syscall.ECONNRESET, nil
	if !answer && e.w.chance(e.w.o.DropUnread) {
		e.in = nil
	}
	e.settleLink()
	e.tell()
}

func (e *end) tell() {
	if e.holder != nil {
		e.holder.endChanged()
	}
}

func (e *end) space() int { return max(0, e.inCap-len(e.in)) }

// kick plans the next movement towards the other side, if there is one to make.
func (e *end) kick() {
	if e.moving || e.reset != nil || e.finSent {
		return
	}
	bytes := len(e.out) > 0 && (e.other.space() > 0 || e.other.closed)
	if !bytes && !(len(e.out) == 0 && e.finQueued) {
		return
	}
	e.moving = true
	e.w.after(e.w.latency(), delivery, e.move)
}

// move takes bytes, FIN or both to the other side.
func (e *end) move() {
	e.moving = false
	if e.reset != nil {
		return
	}
	if e.other.closed && len(e.out) > 0 {
		e.out = nil
		e.w.note("net", "refused", e.id, 0)
		e.w.after(e.w.latency(), delivery, func() { e.resetArrives(true) })
		return
	}
	if n := min(len(e.out), e.other.space()); n > 0 {
		e.arrive(e.w.portion(n))
	}
	if len(e.out) == 0 && e.finQueued && !e.finSent {
		e.sendFIN()
	}
	e.kick()
	e.tell()
}

// arrive moves n bytes.
func (e *end) arrive(n int) {
	o := e.other
	e.w.noteBytes("net", "move", e.id, e.out[:n])
	o.in = append(o.in, e.out[:n]...)
	e.out = e.out[:copy(e.out, e.out[n:])]
	if e.moves++; e.moves%growAfter == 0 {
		e.sendCap = e.grown(e.sendCap)
		o.inCap = o.grown(o.inCap)
	}
	o.tell()
}

func (e *end) grown(size int) int {
	if e.w.o.MaxBuffer < 0 {
		return size
	}
	return min(2*size, max(e.w.o.MaxBuffer, size))
}

func (e *end) sendFIN() {
	e.finSent = true
	delay := time.Duration(0)
	if e.w.chance(e.w.o.LateFIN) {
		delay = min(e.w.latency()*10, lateFIN)
	}
	if delay == 0 {
		e.finArrives()
	} else {
		e.w.after(delay, delivery, e.finArrives)
	}
}

func (e *end) finArrives() {
	o := e.other
	if o.reset != nil || o.finArrived {
		return
	}
	e.w.note("net", "fin", e.id, 0)
	o.finArrived = true
	e.settleLink()
	o.tell()
}

// settleLink forgets the planned fault of a connection that is over.
func (e *end) settleLink() {
	if e.dead() && e.other.dead() {
		e.w.queue.remove(e.planned)
	}
}
