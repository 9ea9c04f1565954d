package sim

import (
	"bytes"
	"net"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Peer is the test's side of a connection. It reads by itself as bytes arrive, unless StopReading
// was called; Write never waits. Its methods are for the goroutine that drives, between steps or in
// a callback, and for goroutines of the world. The callbacks are set before the next step, run in
// the middle of one, and must not wait.
type Peer struct {
	OnOpen     func()          // the connection is made
	OnReceived func(b []byte)  // b is the peer's to keep
	OnEnded    func()          // the other side's FIN, after the last byte
	OnClosed   func(err error) // once: a reset, a failed dial, or nil after Close or when both sides have ended
	Tag        any             // the test's own
	w          *World
	e          *end // nil while dialling
	dial       *dial
	open       bool
	opened     bool // OnOpen was called
	out        []byte
	received   bytes.Buffer
	stopped    bool
	slow       bool
	planned    bool // a read is planned
	fin, gone  bool // CloseWrite, Close was called
	ended      bool
	over       bool
	err        error
	faulted    bool
}

// Dial connects a peer to addr, which is a Listener's. What it writes before the connection is made
// is sent then.
func (w *World) Dial(addr net.Addr) *Peer {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &Peer{w: w}
	p.slow = w.chance(w.o.SlowPeer)
	p.dial = w.connect(addr, p.dialled)
	return p
}

func (p *Peer) dialled(e *end, err error) {
	p.faulted = p.dial.fault
	p.dial = nil
	if err != nil {
		p.finish(err)
		return
	}
	p.e, p.open = e, true
	e.holder = p
	p.endChanged()
}

// Write sends b, in time. It does nothing after CloseWrite, Close or Reset.
func (p *Peer) Write(b []byte) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.fin || p.gone || p.over {
		return
	}
	p.w.noteBytes("peer", "write", p.id(), b)
	p.out = append(p.out, b...)
	p.pump()
}

// CloseWrite sends FIN after what was written.
func (p *Peer) CloseWrite() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.note("peer", "closewrite", p.id(), 0)
	p.fin = true
	p.pump()
}

// Close closes both directions once everything written is sent. Bytes that come later, or are
// unread, cause a reset, as on a real socket.
func (p *Peer) Close() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.note("peer", "close", p.id(), 0)
	p.gone = true
	if p.dial != nil {
		p.dial.cancel()
		p.finish(nil)
		return
	}
	p.pump()
}

// Reset drops what is not sent, and resets the connection.
func (p *Peer) Reset() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.note("peer", "reset", p.id(), 0)
	if p.dial != nil {
		p.dial.cancel()
	}
	if p.e != nil {
		p.e.abort()
	}
	p.out, p.gone = nil, true
	p.finish(nil)
}

// StopReading leaves what arrives in the socket buffer, until Resume.
func (p *Peer) StopReading() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.stopped = true
}

// Resume reads again.
func (p *Peer) Resume() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.stopped = false
	p.planRead()
}

// Received is a copy of what has been received and not taken.
func (p *Peer) Received() []byte {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return bytes.Clone(p.received.Bytes())
}

// Count is how many bytes Received would return.
func (p *Peer) Count() int { return locked(p.w, p.received.Len) }

// TakeReceived returns what has been received since the last call.
func (p *Peer) TakeReceived() []byte {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	b := bytes.Clone(p.received.Bytes())
	p.received.Reset()
	return b
}

// Open reports whether the connection has been made.
func (p *Peer) Open() bool { return locked(p.w, func() bool { return p.open }) }

// Ended reports whether the other side's FIN has come, after the last byte.
func (p *Peer) Ended() bool { return locked(p.w, func() bool { return p.ended }) }

// Closed reports whether the connection is over: reset, refused, closed, or ended by both sides.
func (p *Peer) Closed() bool { return locked(p.w, func() bool { return p.over }) }

// Err is why the connection broke, or nil.
func (p *Peer) Err() error { return locked(p.w, func() error { return p.err }) }

// Unsent is how many bytes of Write still wait for room in the socket.
func (p *Peer) Unsent() int { return locked(p.w, func() int { return len(p.out) }) }

// Faulted reports whether the world itself broke the connection, or the dial, by a fault.
func (p *Peer) Faulted() bool {
	return locked(p.w, func() bool { return p.faulted || p.e != nil && p.e.faulted })
}

// Local and Remote are the addresses, zero while dialling.
func (p *Peer) Local() driver.Addr {
	return locked(p.w, func() (a driver.Addr) {
		if p.e != nil {
			a = p.e.local
		}
		return a
	})
}

// Remote is the other side's address.
func (p *Peer) Remote() driver.Addr {
	return locked(p.w, func() (a driver.Addr) {
		if p.e != nil {
			a = p.e.remote
		}
		return a
	})
}

func locked[T any](w *World, f func() T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return f()
}

func (p *Peer) id() uint64 {
	if p.e == nil {
		return 0
	}
	return p.e.id
}
