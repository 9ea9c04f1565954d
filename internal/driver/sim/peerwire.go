package sim

import (
	"bytes"
	"time"
)

const slowRead = 50 * time.Millisecond

// endChanged implements holder: bytes, room, FIN or a reset at the peer's end. It plans what
// follows and makes no calls.
func (p *Peer) endChanged() {
	p.pump()
	p.planRead()
}

// pump gives the socket what it takes, and FIN or close behind the last byte.
func (p *Peer) pump() {
	e := p.e
	if e == nil || e.reset != nil || e.closed {
		return
	}
	if n := min(len(p.out), e.room()); n > 0 {
		e.write(p.out[:n])
		p.out = p.out[n:]
	}
	if len(p.out) > 0 {
		return
	}
	p.out = nil
	if p.fin {
		e.closeWrite()
	}
	if p.gone {
		e.close()
		p.finish(nil)
	}
}

// planRead lets the peer look at its socket a little later: at once mostly, late if it is slow.
func (p *Peer) planRead() {
	if p.planned || p.over || p.e == nil || !p.due() {
		return
	}
	p.planned = true
	delay := time.Duration(0)
	if p.slow {
		delay = time.Duration(p.w.rng.Int64N(int64(slowRead)))
	}
	p.w.after(delay, delivery, p.look)
}

// due reports whether there is anything to tell the script.
func (p *Peer) due() bool {
	e := p.e
	return !p.opened || !p.stopped && len(e.in) > 0 || e.finArrived && len(e.in) == 0 && !p.ended || e.reset != nil ||
		p.bothEnded()
}

func (p *Peer) bothEnded() bool { return p.ended && p.e.finSent }

// look reads the socket and tells the script.
func (p *Peer) look() {
	p.planned = false
	if p.over {
		return
	}
	if !p.opened {
		p.opened = true
		p.tell(p.OnOpen)
	}
	if !p.stopped && !p.over && !p.e.closed {
		p.readSome()
	}
	if p.over {
		return
	}
	if e := p.e; e.finArrived && len(e.in) == 0 && !p.ended {
		p.ended = true
		p.w.note("peer", "ended", p.id(), 0)
		p.tell(p.OnEnded)
	}
	switch {
	case p.over:
	case p.e.reset != nil && (len(p.e.in) == 0 || p.stopped):
		p.finish(p.e.reset)
	case p.bothEnded():
		p.e.close()
		p.finish(nil)
	default:
		p.planRead()
	}
}

func (p *Peer) readSome() {
	n := len(p.e.in)
	if n == 0 {
		return
	}
	if p.slow {
		n = p.w.portion(n)
	}
	b := make([]byte, n)
	p.e.read(b)
	p.w.noteBytes("peer", "received", p.id(), b)
	p.received.Write(b)
	if p.OnReceived != nil {
		p.tell(func() { p.OnReceived(bytes.Clone(b)) })
	}
}

// finish ends the peer's part, once.
func (p *Peer) finish(err error) {
	if p.over {
		return
	}
	p.over, p.err = true, err
	p.w.noteErr("peer", "closed", p.id(), 0, err)
	if p.OnClosed == nil {
		return
	}
	// Close and Reset may be called between steps, and no callback runs from inside a method.
	p.w.after(0, delivery, func() { p.tell(func() { p.OnClosed(err) }) })
}

func (p *Peer) tell(f func()) {
	if f != nil {
		p.w.callback(f)
	}
}

// callback runs a script's function in a step, without the lock.
func (w *World) callback(f func()) {
	w.mu.Unlock()
	defer w.mu.Lock()
	f()
}
