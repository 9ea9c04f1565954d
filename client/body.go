package client

import (
	"io"
	"net/http"
	"sync"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// maxBodyBuffer is how much of a body waits to be read before the loop stops reading the
// connection. A read that was under way may add one read buffer.
const maxBodyBuffer = 64 << 10

// A link carries an exchange: a connection of HTTP/1, or a stream of HTTP/2. Any goroutine.
type link interface {
	more()                   // the body has room, or credit for the server
	drop(x *Call, err error) // ends the exchange, if it is the call's still
}

// A body is a response's body: fed by the loop, read by any goroutine, or given to a callback.
type body struct {
	link     link
	call     *Call
	response *http.Response

	mu       sync.Mutex
	data     buf.Chain
	err      error // why no more comes; io.EOF: in order
	sink     func(p []byte, err error)
	trailer  http.Header
	throttle bool // the loop has stopped reading
	credits  bool // HTTP/2: what is consumed is credited to the server
	owed     int  // consumed since the last credit
	closed   bool
	readers  []driver.Parker
}

// Read implements io.Reader. It waits for bytes. On a loop it fails with myriad.ErrOnLoop where it
// would have to.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	for asked := false; ; {
		n, err, resume := b.take(p)
		if n > 0 || err != nil || len(p) == 0 {
			b.mu.Unlock()
			if resume {
				b.link.more()
			}
			return n, err
		}
		if !asked {
			asked = true
			b.mu.Unlock()
			if !b.call.t.engine.HandOff() {
				return 0, myriad.ErrOnLoop
			}
			b.mu.Lock()
			continue
		}
		b.wait()
	}
}

// take reads what is there. mu is held.
func (b *body) take(p []byte) (n int, err error, resume bool) {
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose, false
	case b.data.Len() > 0:
		n = b.data.CopyTo(p)
		b.data.Discard(n)
		b.owed += n
		if b.credits {
			resume = b.err == nil && b.owed >= maxBodyBuffer/2 || b.err != nil && b.data.Len() == 0
		}
		if b.data.Len() == 0 && b.err == io.EOF {
			b.showTrailer()
			return n, io.EOF, resume
		}
		return n, nil, resume || b.throttle && b.data.Len() <= maxBodyBuffer/2
	case b.err == io.EOF:
		b.showTrailer()
	}
	return 0, b.err, false
}

// showTrailer is for a reader that has come to the end. mu is held.
func (b *body) showTrailer() {
	if len(b.trailer) > 0 && b.response.Trailer == nil {
		b.response.Trailer = http.Header{}
	}
	for name, values := range b.trailer {
		b.response.Trailer[name] = values
	}
	b.trailer = nil
}

// wait lets the lock go until something has changed.
func (b *body) wait() {
	p := b.call.t.parkers.Get().(driver.Parker)
	b.readers = append(b.readers, p)
	b.mu.Unlock()
	p.Park()
	b.mu.Lock()
	for i, q := range b.readers { // a permit was left
		if q == p {
			b.readers = append(b.readers[:i], b.readers[i+1:]...)
			break
		}
	}
	b.call.t.parkers.Put(p)
}

// wake lets all waiting calls look again. mu is held.
func (b *body) wake() {
	for _, p := range b.readers {
		p.Unpark()
	}
	b.readers = b.readers[:0]
}

// Close ends the body. Before its end that closes the connection, as in net/http.
func (b *body) Close() error {
	b.mu.Lock()
	b.closed = true
	b.data.Release()
	b.wake()
	over := b.err != nil
	b.mu.Unlock()
	if !over {
		b.giveUp(errBodyClosed)
	}
	return nil
}

// giveUp ends the body with err, and its connection. Any goroutine.
func (b *body) giveUp(err error) {
	if !b.fail(err) {
		return
	}
	b.link.drop(b.call, err)
	b.call.abandonUpload(err)
	b.call.over()
}

// add takes bytes from the loop. It returns true if the loop is to stop reading.
func (b *body) add(p []byte) (full bool) {
	b.mu.Lock()
	switch {
	case b.closed || b.err != nil:
		b.owed += len(p)
	case b.sink != nil:
		sink := b.sink
		b.owed += len(p)
		b.mu.Unlock()
		sink(p, nil)
		return false
	default:
		b.data.Append(p)
		b.wake()
		if !b.credits && b.data.Len() >= maxBodyBuffer {
			b.throttle, full = true, true // until resumes: what follows in the same buffer must not reset it
		}
	}
	b.mu.Unlock()
	return full
}

// credit is how many bytes have been consumed since the last call.
func (b *body) credit() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.owed
	b.owed = 0
	return n
}

// resumes reports whether the loop may read on.
func (b *body) resumes() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.throttle || b.data.Len() > maxBodyBuffer/2 {
		return false
	}
	b.throttle = false
	return true
}

func (b *body) setTrailer(trailer http.Header) {
	b.mu.Lock()
	b.trailer = trailer
	b.mu.Unlock()
}

// end is the orderly end.
func (b *body) end() { b.fail(io.EOF) }

// fail is the end: what has come can still be read. It returns false if it has ended before.
func (b *body) fail(err error) bool {
	b.mu.Lock()
	if b.err != nil {
		b.mu.Unlock()
		return false
	}
	b.err = err
	sink := b.sink
	if sink != nil && err == io.EOF {
		b.showTrailer()
	}
	b.wake()
	b.mu.Unlock()
	if sink != nil {
		sink(nil, err)
	}
	return true
}

// discard drops what has come, and what comes.
func (b *body) discard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.data.Release()
}

// OnBody has f called with the body of a response as it comes, in place of Read. p is valid until f
// returns. The last call, once, has a nil p and an error: io.EOF if the body is complete. What has
// come already is passed to f before OnBody returns, the rest on the loop, where f must not block.
// Close ends the body early. OnBody fails with myriad.ErrUnsupported for a body that the Transport
// decompresses, and for a response that is not a Transport's.
func OnBody(r *http.Response, f func(p []byte, err error)) error {
	if r.Body == http.NoBody {
		f(nil, io.EOF)
		return nil
	}
	b, ok := r.Body.(*body)
	if !ok {
		return myriad.ErrUnsupported
	}
	b.mu.Lock()
	for b.data.Len() > 0 {
		var some buf.Chain
		b.owed += b.data.Len()
		b.data.Move(&some)
		b.mu.Unlock()
		for some.Len() > 0 {
			p := some.First()
			f(p, nil)
			some.Discard(len(p))
		}
		b.mu.Lock()
	}
	err, resume := b.err, b.throttle || b.credits
	if err == io.EOF {
		b.showTrailer()
	}
	if !b.closed {
		b.sink = f
	}
	b.mu.Unlock()
	if err != nil {
		f(nil, err)
	} else if resume {
		b.link.more()
	}
	return nil
}
