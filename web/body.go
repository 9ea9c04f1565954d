package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// maxBodyBuffer is how much of a body waits to be read before the loop stops reading the
// connection; a read that was under way may add one read buffer.
const maxBodyBuffer = 64 << 10

// A body is a request's body: fed by the loop, read by the handler, which waits for it where it
// runs. A request without one has a nil body, which is complete; the methods that the loop calls at
// any time know that.
type body struct {
	x *exchange

	// These never change.
	length int64 // -1: it is not known
	// the client expects 100 Continue, as net/http has it: it may not send the body, or may have
	// sent it already
	expects bool
	// what the peer may send before more is granted by credit; 0: the loop stops reading instead
	window int32

	mu       sync.Mutex
	data     buf.Chain
	err      error       // why no more will come; nothing in data is lost by it
	then     error       // err, once a Read has returned that; nil as long as err is
	eof      atomic.Bool // written under mu
	closed   bool        // the handler wants no more
	begun    bool        // the handler has begun to read
	readAll  bool        // and has come to the end
	throttle bool        // the loop has stopped reading
	told     bool        // the loop has been asked to call credit
	owed     int32       // what has been read or dropped since credit was called, if there is a window
	drop     int64       // what may still be discarded, when the handler reads no more
	dropping bool
	readBy   moment // when it must have come
	late     bool   // and has not
	spoilt   bool   // of one in chunks: a Read has failed for that, so that every other does, whatever comes
	limit    int64  // most bytes altogether; 0: no limit
	total    int64
	waiting  driver.Parker // the reader that waits, kept for the next time
	waits    bool          // it does
	others   []driver.Parker
	trailer  http.Header
}

// Read implements io.Reader. It waits for bytes, for the end, or for the connection to fail.
func (b *body) Read(p []byte) (int, error) {
	if b.expects {
		b.invite()
	}
	b.mu.Lock()
	if len(p) == 0 && !b.closed && !(b.eof.Load() && b.data.Len() == 0) {
		b.mu.Unlock()
		return 0, nil
	}
	b.begun = true
	for {
		if n, err := b.take(p); n > 0 || err != nil {
			resume := b.consumed(n)
			b.mu.Unlock()
			if resume {
				b.x.want(wantInput)
			}
			if saysGone(err) {
				b.x.given.ctx.depart()
			}
			return n, err
		}
		if !b.x.HandOff() {
			b.mu.Unlock()
			return 0, myriad.ErrOnLoop
		}
		b.wait()
	}
}

// consumed reports whether the loop should read on, or grant more of the window, now that n bytes
// have been read. After the end it waits for the last byte, which is the connection's window's. mu
// is held.
func (b *body) consumed(n int) (tell bool) {
	if b.window == 0 {
		if tell = b.throttle && b.data.Len() <= maxBodyBuffer/2; tell {
			b.throttle = false
		}
		return tell
	}
	b.owed += int32(n)
	over := b.eof.Load() || b.err != nil
	tell = !b.told && b.owed > 0 && (b.owed >= b.window/2 && !over || over && b.data.Len() == 0)
	b.told = b.told || tell
	return tell
}

// credit returns how many bytes have been read or dropped since the last call. On the loop.
func (b *body) credit() int {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.owed
	b.owed, b.told = 0, false
	return int(n)
}

// invite sends 100 Continue once to a client that expects it, as net/http does: also if a part of
// the body has come, and for a Read of zero bytes.
func (b *body) invite() {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if !closed {
		b.x.out.sendContinue()
	}
}

// take reads what is there, and tells of the end with the last of it, as net/http does. mu is held.
func (b *body) take(p []byte) (int, error) {
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose
	case b.spoilt:
		return 0, b.err
	case b.data.Len() > 0:
		n := b.data.CopyTo(p)
		b.data.Discard(n)
		if b.data.Len() > 0 || !b.eof.Load() {
			return n, nil
		}
		b.sawEnd()
		return n, io.EOF
	case b.eof.Load():
		b.sawEnd()
		return 0, io.EOF
	case b.err == nil && b.late:
		err := b.x.netError("read", os.ErrDeadlineExceeded)
		if b.length < 0 || b.window > 0 {
			// as with net/http, a reader of chunks does not continue after an error
			b.err, b.then, b.spoilt = err, err, true
		}
		return 0, err
	}
	err := b.err
	b.err = b.then
	return 0, err
}

// sawEnd shows the trailer to the handler, which has read everything before it.
func (b *body) sawEnd() {
	b.readAll = true
	if b.trailer == nil {
		return
	}
	req := &b.x.given.request
	if req.Trailer == nil && req.ProtoMajor < 2 {
		req.Trailer = http.Header{}
	}
	for name, values := range b.trailer {
		// As with net/http, HTTP/2 has those that the head has announced.
		if _, announced := req.Trailer[name]; announced || req.ProtoMajor < 2 {
			req.Trailer[name] = values
		}
	}
	b.trailer = nil
}

// wait lets the lock go until something has changed.
func (b *body) wait() {
	p := b.parker()
	b.mu.Unlock()
	if p == b.waiting {
		b.x.awaitClient(p)
	} else {
		p.Park() // one of them is enough not to count
	}
	b.mu.Lock()
	if p == b.waiting {
		b.waits = false
	}
}

// parker is what one more goroutine waits by: a body may be read on one goroutine and left on
// another. mu is held.
func (b *body) parker() driver.Parker {
	if b.waiting == nil {
		b.waiting = b.x.lane.st.engine.System().NewParker()
	}
	if !b.waits {
		b.waits = true
		return b.waiting
	}
	p := b.x.lane.st.engine.System().NewParker()
	b.others = append(b.others, p)
	return p
}

// Close says that the handler wants no more. The loop reads the rest away after the answer.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.wake()
	return nil
}

// wake lets all waiting calls look again. mu is held.
func (b *body) wake() {
	if b.waiting != nil {
		b.waiting.Unpark()
	}
	for _, p := range b.others {
		p.Unpark()
	}
	b.others = nil
}

// add takes decoded bytes from the loop, which may be the last.
func (b *body) add(p []byte, last bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total += int64(len(p))
	switch {
	case b.limit > 0 && b.total > b.limit:
		if b.window > 0 {
			b.owed += int32(len(p))
		}
		return &http.MaxBytesError{Limit: b.limit}
	case b.window > 0 && (b.dropping || b.err != nil):
		b.owed += int32(len(p))
	case b.dropping:
		b.drop -= int64(len(p))
		if b.drop < 0 {
			return errTooMuchLeft
		}
	default:
		b.data.Append(p)
	}
	if last {
		b.eof.Store(true)
	}
	b.wake()
	return nil
}

// end is the orderly end of a chunked body.
func (b *body) end(trailer http.Header) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.eof.Store(true)
	b.trailer = trailer
	b.wake()
}

// release throws away what is there when the handler is done, and what still comes, up to
// maxDiscard.
func (b *body) release() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releaseLocked()
}

func (b *body) releaseLocked() {
	b.closed = true
	b.wake()
	if b.window > 0 {
		b.owed += int32(b.data.Len())
	}
	b.data.Release()
	if !b.dropping {
		b.dropping = true
		b.drop = maxDiscard
	}
}

// unread takes what has come of the body and was not read, for the new owner of the connection.
// From then on nothing can be read here.
func (b *body) unread() []byte {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.data.AppendTo(nil)
	b.data.Release()
	if !b.readAll {
		b.eof.Store(false)
		b.err, b.then = http.ErrHijacked, http.ErrHijacked
		b.wake()
	}
	return p
}

// awaitEnd discards the rest of the body, up to maxDiscard and for stopTimeout at most. So a client
// that sends its whole request first is not interrupted, and the head of the answer can say whether
// the connection stays. On the handler's goroutine.
func (b *body) awaitEnd() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.eof.Load() || b.expects || b.err != nil || b.isLong() || !b.x.HandOff() {
		return
	}
	b.releaseLocked()
	asked := false
	for !b.eof.Load() && b.err == nil && !b.late {
		if !asked {
			asked = true
			b.throttle = false
			b.readBy = b.readBy.orEarlier(b.x.lane.st.now().after(stopTimeout))
			b.x.want(wantInput | wantDeadline)
		}
		b.wait()
	}
}

// blocksReuse reports whether the connection cannot be kept: the client may never send the body, or
// too much of it is still to come when the handler reads no more. Of a body of unknown length, that
// is all that has not come. over: the handler has returned. duplex: it has said that it reads on
// after the head of its answer. As with net/http, a body whose client expects 100 Continue must
// have been read to its end.
func (b *body) blocksReuse(over, duplex bool) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.expects:
		return !b.readAll
	case b.spoilt:
		return true
	case b.eof.Load():
		return false
	case b.err != nil || b.late:
		return true
	case !over && (b.begun || duplex):
		return b.closed && b.isLong()
	case b.length < 0 && !duplex:
		return true
	}
	return b.isLong()
}

// isLong reports whether more than maxDiscard of the body is known to be still to come. mu is held.
func (b *body) isLong() bool { return b.length-b.total > maxDiscard }

// got reports whether its handler has got all it wants of it.
func (b *body) got() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.readAll || b.closed
}

// halfRead reports whether the handler has begun to read the body and not come to its end.
func (b *body) halfRead() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun && !b.readAll
}

// complete reports whether all of the body has come from the connection.
func (b *body) complete() bool { return b == nil || b.eof.Load() }

// full reports whether the loop should stop reading, and remembers that it did.
func (b *body) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.throttle = b.data.Len() >= maxBodyBuffer
	return b.throttle
}

var errTooMuchLeft = errors.New("too much of the body was left unread")
