package web

import (
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h2"
)

// This file is what the loop does for a Pipe. A nil Pipe is that of any other request.

// lives reports whether the handler is to be called.
func (p *Pipe) lives() bool { return p != nil && p.opened && p.is(pipeOpen) }

// tunnelled reports whether the stream is a Pipe's.
func (p *Pipe) tunnelled() bool { return p != nil && p.opened }

// receive takes data of the client: the request's body, until Tunnel has been called.
func (p *Pipe) receive(b []byte, last bool) {
	p.mu.Lock()
	if p.phase == pipeOffered {
		defer p.mu.Unlock()
		p.x.feed(b, last)
		return
	}
	open := p.phase == pipeOpen
	p.mu.Unlock()
	p.ended = p.ended || last
	switch {
	case !open:
		p.consumed += len(b)
	case !p.opened || p.paused || p.held.Len() > 0:
		p.held.Append(b)
	default:
		p.consumed += len(b)
		p.handler.Received(p, b[:len(b):len(b)])
	}
	p.tellEnd()
}

// tellEnd calls Ended behind all that was received.
func (p *Pipe) tellEnd() {
	if p.ended && !p.toldEnd && !p.paused && p.held.Len() == 0 && p.lives() {
		p.toldEnd = true
		p.handler.Ended(p)
	}
}

// serve does what was asked for.
func (p *Pipe) serve() {
	if p == nil {
		return
	}
	p.mu.Lock()
	phase, asked := p.phase, p.asked
	if phase != pipeOffered {
		p.asked = 0
	}
	p.mu.Unlock()
	switch phase {
	case pipeOpen:
		if !p.opened {
			p.open()
		}
		p.deliver()
		p.answer(asked)
	case pipeClosing:
		p.beginLinger()
	}
}

// open begins the handler's life, at which the stream's as an exchange ends.
func (p *Pipe) open() {
	x := p.x
	x.s.Tunnel()
	x.h.detach(x)
	x.writeBy, p.opened = never, true
	x.arm()
	p.handler.Opened(p)
	if x.h.leaving() && p.lives() {
		p.handler.Stopping(p)
	}
}

// deliver hands over what was held.
func (p *Pipe) deliver() {
	for p.held.Len() > 0 && !p.paused && p.lives() {
		b := buf.Get(min(p.held.Len(), readyPiece))
		room := b.Extend()
		n := p.held.CopyTo(room[:min(len(room), readyPiece)])
		p.held.Discard(n)
		p.consumed += n
		p.handler.Received(p, room[:n:n])
		b.Release()
	}
	p.tellEnd()
}

// readyPiece is how much of what was held is handed over at a time.
const readyPiece = 16 << 10

func (p *Pipe) answer(asked pipeAsked) {
	var later pipeAsked // the output leaves when this callback has ended
	if asked&pipeOffer != 0 {
		later = pipeDrained
	}
	if asked&pipeNotify != 0 && p.Queued() > 0 {
		asked, later = asked&^pipeNotify, later|pipeNotified
	}
	if later != 0 {
		p.Loop().Later(func() { p.ask(later) })
	}
	if asked&pipeDrained != 0 && p.lives() {
		p.handler.Drained(p)
	}
	if asked&(pipeNotify|pipeNotified) != 0 && p.lives() {
		p.handler.Notified(p)
	}
}

// drained says that there is room.
func (p *Pipe) drained() {
	switch {
	case p.lives():
		p.handler.Drained(p)
	case p != nil && p.is(pipeOpen):
		p.ask(pipeDrained)
	}
}

// expired is the end of the timer's time.
func (p *Pipe) expired() {
	switch {
	case p.linger > 0:
		p.lingers()
	case p.lives():
		p.handler.Expired(p)
	}
}

// beginLinger bounds the time of a closing Pipe, and drops what it will not hand over.
func (p *Pipe) beginLinger() {
	if p.linger > 0 {
		return
	}
	p.x.s.Tunnel()
	p.consumed += p.held.Len()
	p.held.Release()
	p.linger = p.Queued() + 1
	p.x.setBeat(pipeLinger)
}

// lingers gives a client that reads its time once more.
func (p *Pipe) lingers() {
	queued := p.Queued() + 1
	if p.linger-queued >= min(pipeProgress, p.linger-1) && p.linger > 1 {
		p.linger = queued
		p.x.setBeat(pipeLinger)
		return
	}
	p.x.s.Cancel(h2.Cancel)
}

// stopping is the shutdown of the server or its engine.
func (p *Pipe) stopping() {
	if p.lives() {
		p.handler.Stopping(p)
	}
}

// credit is how much has been taken since the last call. Until Tunnel has been called, what arrives
// is the body's.
func (p *Pipe) credit() int {
	if p == nil || p.is(pipeOffered) {
		return 0
	}
	n := max(0, p.consumed)
	p.consumed -= n
	return n
}

// end is the end of the stream. It reports whether it was a Pipe's.
func (p *Pipe) end(err error) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	was := p.phase
	p.phase = pipeOver
	switch was {
	case pipeOffered:
		if p.cause = err; err == nil {
			p.cause = errHandlerOver
		}
	case pipeClosing:
		err = nil
	case pipeAborted:
		err = p.cause
	}
	p.mu.Unlock()
	p.held.Release()
	if was == pipeOffered {
		return false
	}
	if !p.opened {
		p.opened = true
		p.handler.Opened(p)
	}
	p.handler.Closed(p, err)
	return true
}
