package client

import (
	"errors"
	"io"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/flow"
)

const (
	// firstWrite is how much of a body in memory leaves in one write with the head.
	firstWrite = 64 << 10
	// probeTimeout is how long a request that usually has no body waits to find out whether it has
	// one, as in net/http.
	probeTimeout = 200 * time.Millisecond
	// keptHead is the size up to which a buffer of a head is used again.
	keptHead = 4 << 10
	// uploadSlice is how much of a body is read and written at a time.
	uploadSlice = 32 << 10
)

// An upload writes the request of one attempt. A body in memory is written by the caller's
// goroutine and by the loop. Any other body is read by a goroutine of its own, because its Read may
// block and the response may come first.
type upload struct {
	x  *Call
	pc *conn   // of HTTP/1
	st *stream // of HTTP/2
	*payload

	began   atomic.Bool // the connection has taken a byte
	wrote   atomic.Bool // and the last one
	stopped atomic.Bool
	whole   bool                  // it is written at once
	final   bool                  // pending has the end
	readErr atomic.Pointer[error] // of the body

	mu      sync.Mutex // for a body in memory: the caller's goroutine and the loop
	buffer  *[]byte    // of the pool, which pending begins with
	pending []byte     // encoded, not taken yet
}

// begin writes the head, and what it can of the body. The caller has the connection. From the
// moment in which it shows the loop its call, the loop may take it away.
func (u *upload) begin() {
	pc, x := u.pc, u.x
	pc.up, pc.size, pc.expecting = u, 0, u.expects
	u.mu.Lock()
	if !u.probe {
		u.buffer = x.t.heads.Get().(*[]byte)
		u.pending = x.appendHead((*u.buffer)[:0], u)
	}
	switch {
	case u.body == nil:
		u.final, pc.size = true, len(u.pending)
	case u.memory && !u.expects:
		if u.fill(firstWrite); u.final {
			pc.size = len(u.pending)
		}
	}
	if u.whole = pc.size > 0; u.probe {
		pc.wait(probeTimeout)
	} else if u.expects {
		pc.wait(x.t.ExpectContinueTimeout)
	}
	pc.x.Store(x)
	u.mu.Unlock()
	if x.isSettled() { // cancelled before it could be found here
		pc.drop(x, errCanceled)
		return
	}
	u.start()
}

// start is the part of begin that writes.
func (u *upload) start() {
	x := u.x
	switch {
	case u.body == nil || u.memory && !u.expects:
		u.pump()
	case u.expects:
		u.pumpHead()
		if x.trace != nil && x.trace.Wait100Continue != nil {
			x.trace.Wait100Continue()
		}
	default:
		x.t.sys.Go(u.stream)
	}
}

// write queues bytes, on HTTP/2 with the head before them and the end behind them.
func (u *upload) write(p []byte) error {
	if u.st == nil {
		_, err := u.pc.c.Write(p)
		return err
	}
	trailer := u.final && len(u.x.req.Trailer) > 0 && u.body != nil
	if err := u.st.Put(u.st.head, p, u.final && !trailer); err != nil {
		if errors.Is(err, flow.ErrFull) {
			return myriad.ErrFull
		}
		return err
	}
	u.st.head = nil
	if trailer {
		return u.st.End(appendTrailer(nil, u.x.req.Trailer))
	}
	return nil
}

// pumpHead writes the head alone.
func (u *upload) pumpHead() {
	u.mu.Lock()
	head := u.pending
	u.buffer, u.pending = nil, nil
	u.mu.Unlock()
	u.traceHeaders()
	u.began.Store(true)
	if err := u.write(head); err != nil { // the queue of a connection between two requests takes a head
		u.began.Store(false)
		u.refused(err)
	}
}

// goAhead sends the body behind the head. On the loop.
func (u *upload) goAhead() {
	if u.memory {
		u.pump()
		return
	}
	u.x.t.sys.Go(u.stream)
}

// decline ends the upload without its body.
func (u *upload) decline() { u.close() }

// room is called on the loop when the connection's queue has room.
func (u *upload) room() {
	if u.memory || u.body == nil {
		u.pump()
	} else if u.parker != nil {
		u.parker.Unpark()
	}
}

// pump writes what does not block, until the connection's queue is full.
func (u *upload) pump() {
	u.mu.Lock()
	for !u.wrote.Load() && !u.stopped.Load() {
		if len(u.pending) == 0 && !u.final {
			u.fill(uploadSlice)
		}
		if u.readErr.Load() != nil {
			u.mu.Unlock()
			u.failed()
			return
		}
		if !u.began.Load() {
			u.traceHeaders()
		}
		if u.final {
			u.writes()
		}
		before := u.began.Swap(true) // the server's reaction may be quicker than this goroutine
		if err := u.write(u.pending); err != nil {
			u.wrote.Store(false)
			u.began.Store(before)
			u.mu.Unlock()
			if !errors.Is(err, myriad.ErrFull) {
				u.refused(err)
			}
			return
		}
		u.pending = u.pending[:0]
		if u.final {
			u.recycle()
			u.mu.Unlock()
			u.done()
			return
		}
	}
	u.mu.Unlock()
}

// writes is called before the last bytes are written: the response to them may come at once. It is
// only for what is written whole, so a refusal can take it back before anything has come.
func (u *upload) writes() {
	u.headerTimeout()
	if u.whole {
		u.wrote.Store(true)
	}
}

func (u *upload) headerTimeout() {
	switch d := u.x.t.ResponseHeaderTimeout; {
	case d <= 0:
	case u.st != nil:
		u.st.wait(d)
	default:
		u.pc.wait(d)
	}
}

// stream is the goroutine of a body that may block.
func (u *upload) stream() {
	buffer := make([]byte, uploadSlice)
	if u.probe {
		n, err := u.src.Read(buffer)
		u.mu.Lock()
		if !u.decided {
			u.decided = true
			if n == 0 && err == io.EOF {
				u.chunked, u.length, u.left = false, 0, 0
			}
			u.makeHead()
		}
		u.mu.Unlock()
		u.encode(buffer[:n], err)
	}
	if u.waits() {
		u.traceHeaders()
	}
	for !u.stopped.Load() {
		if u.readErr.Load() != nil {
			u.failed()
			return
		}
		if (u.waits() || u.st != nil && u.final) && !u.push() {
			return
		}
		if u.final {
			u.headerTimeout()
			u.done()
			return
		}
		n, err := u.src.Read(buffer)
		u.encode(buffer[:n], err)
	}
}

// waits reports whether there is something to write.
func (u *upload) waits() bool { return len(u.pending) > 0 || u.st != nil && u.st.head != nil }

// makeHead encodes the head that a probe has held back.
func (u *upload) makeHead() {
	if u.st != nil {
		u.st.head = u.x.appendPairs(nil, u)
	} else {
		u.pending = u.x.appendHead(nil, u)
	}
}

// probed sends the head when the body's first Read has taken too long: there is a body. On the
// loop.
func (u *upload) probed() {
	u.mu.Lock()
	if u.decided {
		u.mu.Unlock()
		return
	}
	u.decided = true
	u.makeHead()
	head := u.pending
	u.pending = nil
	u.began.Store(true)
	err := u.write(head)
	u.mu.Unlock()
	u.traceHeaders()
	if err != nil { // the queue of a connection between two requests takes a head
		u.began.Store(false)
		u.refused(err)
	}
}

// push writes what is pending, and waits for room.
func (u *upload) push() bool {
	for !u.stopped.Load() {
		before := u.began.Swap(true)
		err := u.write(u.pending)
		if err != nil {
			u.began.Store(before)
		}
		switch {
		case err == nil:
			u.pending = u.pending[:0]
			return true
		case errors.Is(err, myriad.ErrFull):
			u.parker.Park()
		default:
			u.refused(err)
			return false
		}
	}
	return false
}

// recycle gives the buffer back, unless it has grown. mu is held, or the goroutine is the only one
// that writes.
func (u *upload) recycle() {
	if u.buffer != nil && cap(u.pending) <= keptHead {
		*u.buffer = u.pending[:0]
		u.x.t.heads.Put(u.buffer)
	}
	u.buffer, u.pending = nil, nil
}

// done is the end of an upload.
func (u *upload) done() {
	u.close()
	u.traceWrote(nil)
	u.wrote.Store(true)
	if !u.whole && u.pc != nil {
		u.pc.c.Notify() // the response may be complete
	}
}

// failed ends the call because its body cannot be read.
func (u *upload) failed() {
	err := *u.readErr.Load()
	u.close()
	u.traceWrote(err)
	if u.st != nil {
		u.st.fail(err)
		return
	}
	u.pc.c.Abort(err)
}

// refused is for a connection that is closed, or closing.
func (u *upload) refused(err error) {
	u.traceWrote(err)
	if u.pc != nil && u.pc.gone.Load() && u.pc.x.CompareAndSwap(u.x, nil) { // else Closed is still to come
		u.x.attemptFailed(errors.Join(errServerClosed, err))
	}
}

// stopFor ends the upload from outside: its call is over, or tries again.
func (u *upload) stopFor(error) {
	u.stopped.Store(true)
	u.close()
	if u.parker != nil {
		u.parker.Unpark()
	}
}

// close closes the request's body, once.
func (u *upload) close() {
	if u.body != nil {
		u.closing.Do(func() { _ = u.body.Close() })
	}
}

func (u *upload) traceHeaders() {
	if t := u.x.trace; t != nil && t.WroteHeaders != nil {
		t.WroteHeaders()
	}
}

func (u *upload) traceWrote(err error) {
	if t := u.x.trace; t != nil && t.WroteRequest != nil {
		t.WroteRequest(httptrace.WroteRequestInfo{Err: err})
	}
}
