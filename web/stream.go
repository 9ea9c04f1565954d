package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/lifetime"
)

// A stream is a response that has outlived its handler: see web.Stream. It holds no goroutine and a
// few dozen bytes.
type stream struct {
	sink   sink
	noBody bool
	cut    bool      // the answer has failed: nothing may follow it on an HTTP/1 connection
	beat   uint32    // guarded by mu: an EventStream's keep-alive in milliseconds; 0: none
	from   *h1stream // whose answer it is, if requests have lined up behind; the loop's

	mu        sync.Mutex // held while something is queued: nothing follows the last chunk but the next answer
	owed      bool       // the last chunk waits for room
	over      bool       // Close was called, or the connection has gone
	told      bool       // OnClose's function was called
	wrote     bool       // since the last keep-alive
	armed     uint32     // the beat for which the conn's timer is set; 0: it is not
	closed    error
	onClose   func(error)
	onDrained func()
	life      *lifetime.Lifetime // nil: no context was asked for, and there are no values for one
}

// A sink is how a version of HTTP sends what a Stream writes. Its methods may be called on any
// goroutine and never block.
type sink interface {
	// write and chunk send a piece of the body, all or nothing: myriad.ErrFull.
	write(p []byte) error
	chunk(k *chunk) error
	// end ends the body: myriad.ErrFull.
	end() error
	// queued is how many bytes wait for the client, setLimit from how many on write fails.
	queued() int
	setLimit(n int)
	// abort drops what is queued, so that the client notices.
	abort(err error)
	// notify has the loop look at the Stream.
	notify()
	remoteAddr() net.Addr
}

// Write queues p, all or nothing: myriad.ErrFull takes no byte while the client reads too slowly.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return 0, myriad.ErrClosed
	case s.noBody || len(p) == 0:
		return len(p), nil
	}
	s.wrote = true
	if err := s.sink.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteChunk is Write of the chunk's data without a copy. k is only borrowed.
func (s *stream) WriteChunk(k *chunk) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return myriad.ErrClosed
	case s.noBody:
		return nil
	}
	s.wrote = true
	return s.sink.chunk(k)
}

// Queued is how many bytes wait for the client to read.
func (s *stream) Queued() int { return s.sink.queued() }

// RemoteAddr is the client's address, as Request.RemoteAddr has it.
func (s *stream) RemoteAddr() net.Addr { return s.sink.remoteAddr() }

// SetWriteLimit changes how many bytes may wait for the client, above which Write fails with
// myriad.ErrFull.
func (s *stream) SetWriteLimit(n int) { s.sink.setLimit(n) }

// Context returns a context that ends with the stream, before OnClose's function is called: its
// cause is that function's error, or context.Canceled after Close.
func (s *stream) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life == nil {
		s.life = new(lifetime.Lifetime)
		if s.told {
			s.life.End(s.closed)
		}
	}
	return s.life.Context()
}

// KeepValues has Context carry the values of r's context, as middleware has set them, of which
// Detached does not know.
func (s *stream) KeepValues(r *http.Request) {
	values := valuesOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if values == nil || s.life.Asked() {
		return
	}
	s.life = lifetime.Of(values)
	if s.told {
		s.life.End(s.closed)
	}
}

// OnClose arranges one call of f on the loop, when the stream has ended. err is nil after Close or
// the server's Shutdown, and io.EOF after the client has ended its side in order.
func (s *stream) OnClose(f func(err error)) {
	s.mu.Lock()
	if !s.told {
		s.onClose = f
		s.mu.Unlock()
		return
	}
	err := s.closed
	s.mu.Unlock()
	f(err)
}

// OnDrained has f called on the loop, once after each myriad.ErrFull, when the queue is half empty
// again.
func (s *stream) OnDrained(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onDrained = f
}

// Close ends the body in order.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return myriad.ErrClosed
	}
	s.over = true
	return s.end()
}

// end ends the body, now or when there is room. s.mu is held.
func (s *stream) end() (err error) {
	if !s.noBody {
		err = s.sink.end()
	}
	if s.owed = errors.Is(err, myriad.ErrFull); s.owed {
		return nil
	}
	s.sink.notify()
	return err
}

// Abort drops what is queued and resets the connection, for a client that does not read.
func (s *stream) Abort(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.told {
		s.sink.abort(err)
	}
}

// look is the loop's after notify. It reports whether Close was called, and whether the end of the
// body waits for room. If the keep-alive has changed, it sets the timer for that.
func (s *stream) look(setTimer func(time.Duration)) (over, owed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.rearm(setTimer)
	}
	return s.over, s.owed
}

// lost is the end. On the loop.
func (s *stream) lost(err error) {
	s.mu.Lock()
	if s.over && !s.owed && err == io.EOF {
		err = nil // Close came first
	}
	s.over = true
	if s.told {
		s.mu.Unlock()
		return
	}
	f := s.onClose
	s.told, s.closed, s.onClose = true, err, nil
	s.life.End(err) // under mu: a context that is asked for meanwhile is this one, or has ended
	s.mu.Unlock()
	if f != nil {
		f(err)
	}
}

func (s *stream) drained() {
	s.mu.Lock()
	f := s.onDrained
	if s.owed {
		f = nil
		_ = s.end() // of a connection that has gone: lost comes
	}
	s.mu.Unlock()
	if f != nil {
		f()
	}
}

// keepAlive is an empty comment.
var keepAlive = []byte(":\n\n")

// rearm sets the timer if the stream's keep-alive has changed. On the loop; s.mu is held.
func (s *stream) rearm(setTimer func(time.Duration)) {
	if s.beat != s.armed {
		s.armed = s.beat
		setTimer(time.Duration(s.beat) * time.Millisecond)
	}
}

// beats keeps a silent stream alive. It reports false if the timer was not set for that. On the
// loop.
func (s *stream) beats(setTimer func(time.Duration)) bool {
	s.mu.Lock()
	armed, silent := s.armed, !s.wrote
	s.armed = 0
	s.mu.Unlock()
	if armed == 0 {
		return false
	}
	if silent && s.sink.queued() == 0 {
		_, _ = s.Write(keepAlive) // a stream that is over takes none: its end is on its way
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote = false
	if !s.over {
		s.rearm(setTimer)
	}
	return true
}

// chunkRoom is more than a chunk's size line and CRLFs take.
const chunkRoom = 16 + 4

// A chunk is a piece of body encoded once for any number of Streams. It is reference-counted:
// newChunk gives the first reference.
type chunk struct {
	block     *buf.Block
	from, end int // where the data stands in it
}

// newChunk encodes a copy of p, which must not be empty.
func newChunk(p []byte) *chunk {
	b := buf.Get(len(p) + chunkRoom)
	n := len(h1.AppendChunk(b.Extend()[:0], p))
	b.Commit(n)
	return &chunk{b, n - 2 - len(p), n - 2}
}

// data is what the chunk carries.
func (k *chunk) data() []byte { return k.block.Bytes()[k.from:k.end] }

// Release gives the reference of newChunk back; Streams that have been given the chunk hold their
// own.
func (k *chunk) Release() { k.block.Release() }

// SetKeepAlive sends an empty comment of an event stream when it has been silent for d: see
// web.EventStream.
func (s *stream) SetKeepAlive(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beat = uint32(min(max(d.Milliseconds(), 0), 1<<32-1))
	if !s.over {
		s.sink.notify() // the loop sets the timer
	}
}

// detach lets a response outlive its handler: see web.Detached.
func detach(w http.ResponseWriter) (*stream, error) {
	r, err := responseOf(w)
	if err != nil {
		return nil, err
	}
	switch {
	case r.x.progress().taken():
		return nil, http.ErrHijacked
	case r.x.progress().over():
		return nil, errors.New("web: Detached twice, or after the handler has returned")
	}
	r.outlive(w)
	if r.extent.known() {
		return nil, errors.New("web: Detached with a Content-Length: its end is not known")
	}
	if err := r.x.carrier.outlive(); err != nil {
		return nil, fmt.Errorf("web: Detached: %w", err)
	}
	if err := r.flush(); err != nil {
		return nil, err
	}
	s := &stream{sink: r.x.carrier.sink(), noBody: r.noBody || !bodyAllowed(r.status)}
	if values := valuesOf(&r.x.given.request); values != nil {
		s.life = lifetime.Of(values)
	}
	r.becomes(s)
	_ = r.inTime()                      // it loses what is late
	if err := r.lostErr(); err != nil { // it went before s could be told: nothing may follow the head
		s.cut = true
		s.lost(err)
		return nil, fmt.Errorf("web: Detached: %w", err)
	}
	return s, nil
}

// becomes has s continue the answer.
func (w *response) becomes(s *stream) {
	w.mu.Lock()
	w.more().stream = s
	w.mu.Unlock()
	w.x.enter(detached)
}
