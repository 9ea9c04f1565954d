package http2

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/flow"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

const (
	// maxPipeWrite is the largest single Write of a Pipe; beyond: myriad.ErrTooLarge.
	MaxPipeWrite = 16 << 20
	// pipeLinger is how long a closing Pipe may take to get rid of pipeProgress bytes, and then how
	// long its client may take to end its side; beyond: RST_STREAM.
	pipeLinger   = 5 * time.Second
	pipeProgress = 4 << 10
)

// errNoTunnel is web.ErrNoTunnel.
var ErrNoTunnel = errors.New("web: Tunnel of a request that is not an extended CONNECT of HTTP/2")

// A pipeHandler is what a pipe speaks: see web.PipeHandler.
type pipeHandler interface {
	Opened(p *Pipe)
	Received(p *Pipe, b []byte)
	Ended(p *Pipe)
	Drained(p *Pipe)
	Notified(p *Pipe)
	Expired(p *Pipe)
	Stopping(p *Pipe)
	Closed(p *Pipe, err error)
}

// A Pipe is a stream that speaks another protocol: see web.Pipe.
type Pipe struct {
	x *Stream

	mu      sync.Mutex
	handler pipeHandler // guarded by mu until Opened; nil: Tunnel was not called
	phase   pipePhase   // guarded by mu
	asked   pipeAsked   // guarded by mu: what the loop has to do
	cause   error       // guarded by mu: Abort's argument, or why the stream ended before Tunnel

	// The loop's.
	held     buf.Chain // has arrived while the handler takes nothing
	consumed int       // and not in credit; negative: in the body's already
	opened   bool
	paused   bool
	ended    bool // the client's side
	toldEnd  bool // the handler knows
	linger   int  // what was queued when the timer was set last, and 1; 0: the Pipe is not closing
}

type pipePhase uint8

const (
	pipeOffered pipePhase = iota // the handler of the request may call Tunnel
	pipeOpen
	pipeClosing // Close was called
	pipeAborted // Abort was called
	pipeOver
)

type pipeAsked uint8

const (
	pipeNotify   pipeAsked = 1 << iota // call Notified when the output has been offered to the client
	pipeOffer                          // call Drained then
	pipeNotified                       // call Notified
	pipeDrained                        // call Drained
)

// Tunnel accepts an extended CONNECT: see web.Tunnel.
func Tunnel(w http.ResponseWriter, h pipeHandler) error {
	r, err := exchange.ResponseOf(w)
	if err != nil {
		return err
	}
	x, ok := r.X.Carrier.(*Stream)
	switch {
	case !ok || x.pipe == nil:
		return ErrNoTunnel
	case x.Progress().Taken():
		return http.ErrHijacked
	case x.Progress().Over():
		return exchange.ErrHandlerOver
	case r.Head == exchange.HeadSent:
		return errors.New("web: Tunnel after the answer has begun")
	}
	r.Outlive(w)
	if r.Status < 200 || r.Status > 299 || r.Extent.Known() { // RFC 9110 section 9.3.6
		return fmt.Errorf("web: Tunnel with status %d, Content-Length %v: only a 2xx without one accepts a CONNECT",
			r.Status, r.Extent.Known())
	}
	if err := r.SendHead(nil, false); err != nil {
		return fmt.Errorf("web: Tunnel: %w", err)
	}
	return x.pipe.take(h)
}

// take gives the stream to h, with what has come of the body.
func (p *Pipe) take(h pipeHandler) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase != pipeOffered {
		return fmt.Errorf("web: Tunnel: %w", p.cause)
	}
	x := p.x
	x.Enter(exchange.Upgraded)
	p.ended = x.Body.Complete()
	came := x.Body.Unread()
	p.held.Append(came)
	p.consumed = -len(came) // which the body has counted
	p.handler, p.phase = h, pipeOpen
	x.Notify()
	return nil
}

// Write queues p, all or nothing.
func (p *Pipe) Write(b []byte) (int, error) {
	if len(b) > MaxPipeWrite {
		return 0, fmt.Errorf("%w (%d bytes; the limit is %d)", myriad.ErrTooLarge, len(b), MaxPipeWrite)
	}
	if err := p.x.s.Put(nil, b, false); err != nil {
		return 0, pipeError(err)
	}
	return len(b), nil
}

// WriteBlocks is Write without a copy.
func (p *Pipe) WriteBlocks(blocks ...*buf.Block) error {
	if n := total(blocks); n > MaxPipeWrite {
		for _, b := range blocks {
			b.Release()
		}
		return fmt.Errorf("%w (%d bytes; the limit is %d)", myriad.ErrTooLarge, n, MaxPipeWrite)
	}
	return pipeError(p.x.s.PutBlocks(false, blocks...))
}

func total(blocks []*buf.Block) (n int) {
	for _, b := range blocks {
		n += b.Len()
	}
	return n
}

func pipeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, flow.ErrFull):
		return myriad.ErrFull
	}
	return myriad.ErrClosed
}

// Close sends what is queued, ends our side by END_STREAM, and discards what the client still
// sends.
func (p *Pipe) Close() error {
	if p.enter(pipeClosing, nil) {
		_ = p.x.s.End(nil) // of a stream that has ended: Closed comes
		p.x.s.Notify()
	}
	return nil
}

// Abort drops what is queued and resets the stream with CANCEL.
func (p *Pipe) Abort(err error) {
	if p.enter(pipeAborted, err) {
		p.x.s.Cancel(h2.Cancel)
	}
}

// enter goes on to a later phase, and reports whether the Pipe was not in it.
func (p *Pipe) enter(to pipePhase, cause error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase >= to {
		return false
	}
	p.phase, p.cause = to, cause
	return true
}

// Queued is how many bytes wait for the client to read.
func (p *Pipe) Queued() int { return p.x.s.Queued() }

// Buffered is how many of the bytes that Queued counts may leave as soon as the loop looks at them.
func (p *Pipe) Buffered() int {
	if p.x.s.Offered() {
		return 0
	}
	return p.Queued()
}

// Flush reports whether what Queued counts waits for the client.
func (p *Pipe) Flush() bool {
	if p.x.s.Offered() {
		return true
	}
	p.ask(pipeOffer)
	return false
}

// SetWriteLimit changes how many bytes may be queued, above which Write fails with myriad.ErrFull;
// at first 64 KiB.
func (p *Pipe) SetWriteLimit(n int) { p.x.s.SetLimit(n) }

// Notify has the handler called with Notified.
func (p *Pipe) Notify() { p.ask(pipeNotify) }

// ask has the loop come.
func (p *Pipe) ask(what pipeAsked) {
	p.mu.Lock()
	first := p.asked&what == 0 && p.phase != pipeOver
	p.asked |= what
	p.mu.Unlock()
	if first {
		p.x.s.Notify()
	}
}

// SetTimer arms the one timer
func (p *Pipe) SetTimer(d time.Duration) {
	if p.is(pipeOpen) {
		p.x.setBeat(d)
	}
}

// Pause has the handler get nothing more until Resume.
func (p *Pipe) Pause() { p.paused = true }

// Resume undoes Pause.
func (p *Pipe) Resume() {
	p.paused = false
	p.x.s.Notify()
}

// RunInline has t run on the loop, as a task of the connection.
func (p *Pipe) RunInline(t myriad.InlineTask) { p.x.h.C.RunInline(t) }

// Loop is the connection's.
func (p *Pipe) Loop() *myriad.Loop { return p.x.h.C.Loop() }

// LocalAddr is the connection's.
func (p *Pipe) LocalAddr() net.Addr { return p.x.h.C.LocalAddr() }

// RemoteAddr is the connection's.
func (p *Pipe) RemoteAddr() net.Addr { return p.x.h.C.RemoteAddr() }

func (p *Pipe) is(phase pipePhase) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phase == phase
}

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
	x.WriteBy, p.opened = exchange.Never, true
	x.arm()
	p.handler.Opened(p)
	if x.h.Leaving() && p.lives() {
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
	case p.is(pipeOpen):
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
	if p.is(pipeOffered) {
		return 0
	}
	n := max(0, p.consumed)
	p.consumed -= n
	return n
}

// end is the end of the stream. It reports whether it was a Pipe's.
func (p *Pipe) end(err error) bool {
	p.mu.Lock()
	was := p.phase
	p.phase = pipeOver
	switch was {
	case pipeOffered:
		if p.cause = err; err == nil {
			p.cause = exchange.ErrHandlerOver
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
