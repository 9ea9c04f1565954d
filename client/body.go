package client

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// maxBodyBuffer is how much of a body waits to be read before the loop stops reading the
// connection. A read that was under way may add one read buffer.
const maxBodyBuffer = 64 << 10

// A body is a response's body: fed by the loop, read by any goroutine, or given to a callback.
type body struct {
	exchange exchange
	call     *Call
	response *http.Response

	mu      sync.Mutex
	data    buf.Chain
	err     error // why no more comes; io.EOF: in order
	sink    func(p []byte, err error)
	trailer http.Header
	throttling
	closed  bool
	read    bool // the reader has come to the end, or has closed the body
	tells   bool // the exchange is to be told of that
	asked   bool // OnBody was called
	readers []driver.Parker
}

// throttling is how the server is held back while the body is not read.
type throttling struct {
	throttle bool // the loop has stopped reading
	credit   int  // HTTP/2: the server is credited when so much has been consumed; HTTP/1: 0
	owed     int  // consumed since the last credit
}

// Read implements io.Reader. It waits for bytes. On a loop it fails with myriad.ErrOnLoop where it
// would have to.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	for asked := false; ; {
		n, err, resume := b.take(p)
		if n > 0 || err != nil || len(p) == 0 {
			tell := err != nil && b.readToEnd()
			b.mu.Unlock()
			if resume {
				b.exchange.more()
			}
			if tell {
				b.exchange.read()
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
		return 0, errReadClosed, false
	case b.data.Len() > 0:
		n = b.data.CopyTo(p)
		b.data.Discard(n)
		b.owed += n
		if b.credit > 0 {
			resume = b.err == nil && b.owed >= b.credit || b.err != nil && b.data.Len() == 0
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
	if i := slices.Index(b.readers, p); i >= 0 { // a permit was left
		b.readers = slices.Delete(b.readers, i, i+1)
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
	over, tell := b.err != nil, b.readToEnd()
	b.mu.Unlock()
	if tell {
		b.exchange.read()
	}
	if !over && b.fail(errBodyClosed) {
		b.exchange.drop(b.call, errBodyClosed)
		b.call.over(errBodyClosed)
	}
	return nil
}

// readToEnd notes that nothing more will be read. It reports whether the exchange is to be told. mu
// is held.
func (b *body) readToEnd() (tell bool) {
	tell = b.tells && !b.read
	b.read = true
	return tell
}

// awaitRead reports whether the body has been read to its end. If not, the exchange's read is
// called then.
func (b *body) awaitRead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tells = true
	return b.read
}

func (b *body) isRead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read
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
		if b.credit == 0 && b.data.Len() >= maxBodyBuffer {
			b.throttle, full = true, true // until resumes: what follows in the same buffer must not reset it
		}
	}
	b.mu.Unlock()
	return full
}

// consumed is how many bytes have been consumed since the last call.
func (b *body) consumed() int {
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
	sink, tell := b.sink, false
	if sink != nil {
		tell = b.readToEnd()
		if err == io.EOF {
			b.showTrailer()
		}
	}
	b.wake()
	b.mu.Unlock()
	if sink != nil {
		sink(nil, err)
	}
	if tell {
		b.exchange.read()
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
// decompresses, and for a response that is not a Transport's. It may be called once for a response:
// a second call fails, and the first f gets the whole body.
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
	if b.asked {
		b.mu.Unlock()
		return errOnBodyTwice
	}
	b.asked = true
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
	err, resume := b.err, b.throttle || b.credit > 0
	tell := err != nil && b.readToEnd()
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
		b.exchange.more()
	}
	if tell {
		b.exchange.read()
	}
	return nil
}

// decompress lets the reader of a body that the Transport has asked gzip for see what was
// compressed, as net/http does.
func decompress(x *Call, r *http.Response) {
	if !x.gzip || !strings.EqualFold(r.Header.Get("Content-Encoding"), "gzip") {
		return
	}
	r.Body = &gzipBody{body: r.Body, left: x.t.MaxUncompressedBytes, bounded: x.t.MaxUncompressedBytes > 0}
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Length")
	r.ContentLength, r.Uncompressed = -1, true
}

// A gzipBody decompresses as it is read. Close may be called beside a Read, and ends it.
type gzipBody struct {
	body   io.ReadCloser
	closed atomic.Bool

	// The reader's.
	z       *gzip.Reader
	err     error // is returned by every Read that follows
	left    int64
	bounded bool
}

// Read implements io.Reader.
func (g *gzipBody) Read(p []byte) (n int, err error) {
	switch {
	case g.closed.Load():
		return 0, errReadClosed
	case g.err != nil:
		return 0, g.err
	}
	if g.z == nil {
		if g.z, g.err = gzip.NewReader(g.body); g.err != nil {
			return 0, g.err
		}
	}
	if g.bounded && int64(len(p)) > g.left+1 {
		p = p[:g.left+1]
	}
	n, g.err = g.z.Read(p)
	if g.bounded && int64(n) > g.left {
		n, g.err = int(g.left), ErrBodyTooLarge
	}
	g.left -= int64(n)
	return n, g.err
}

// Close implements io.Closer.
func (g *gzipBody) Close() error {
	g.closed.Store(true)
	return g.body.Close()
}
