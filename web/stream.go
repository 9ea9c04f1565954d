package web

import (
	"context"
	"errors"
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

// A Stream is a response that has outlived its handler. It holds no goroutine and a few dozen
// bytes. Its methods may be called from any goroutine, never block, and each Write stays in one
// piece.
type Stream struct {
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
	chunk(k *Chunk) error
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
// Every Write is sent without waiting for more.
func (s *Stream) Write(p []byte) (int, error) {
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
func (s *Stream) WriteChunk(k *Chunk) error {
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

// Flush does nothing: nothing is ever held back. It makes a Stream an http.Flusher.
func (s *Stream) Flush() {}

// Queued is how many bytes wait for the client to read.
func (s *Stream) Queued() int { return s.sink.queued() }

// RemoteAddr is the client's address, as Request.RemoteAddr has it.
func (s *Stream) RemoteAddr() net.Addr { return s.sink.remoteAddr() }

// SetWriteLimit changes how many bytes may wait for the client, above which Write fails with
// myriad.ErrFull. The limit is the connection's: it stays for the answers behind this one.
func (s *Stream) SetWriteLimit(n int) { s.sink.setLimit(n) }

// Context returns a context that ends with the stream, before OnClose's function is called: its
// cause is that function's error, or context.Canceled after Close. It carries the values of
// Server.BaseContext and ConnContext, and those of KeepValues.
func (s *Stream) Context() context.Context {
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
// Detached does not know. It keeps the request in memory. Call it in the handler, before Context:
// after that it does nothing.
func (s *Stream) KeepValues(r *http.Request) {
	values := ValuesOf(r)
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
// the server's Shutdown, and io.EOF after the client has ended its side in order. Otherwise it is
// what broke the connection. If the stream has ended already, f is called at once. f must not
// block.
func (s *Stream) OnClose(f func(err error)) {
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
func (s *Stream) OnDrained(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onDrained = f
}

// Close ends the body in order. What was written is still sent, and the connection goes on to its
// next request. A second Close returns myriad.ErrClosed.
func (s *Stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return myriad.ErrClosed
	}
	s.over = true
	return s.end()
}

// end ends the body, now or when there is room. s.mu is held.
func (s *Stream) end() (err error) {
	if !s.noBody {
		err = s.sink.end()
	}
	if s.owed = errors.Is(err, myriad.ErrFull); s.owed {
		return nil
	}
	s.sink.notify()
	return err
}

// Abort drops what is queued and resets the connection, for a client that does not read. It does
// nothing once the stream has ended (OnClose): the connection may be at its next request.
func (s *Stream) Abort(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.told {
		s.sink.abort(err)
	}
}

// look is the loop's after notify. It reports whether Close was called, and whether the end of the
// body waits for room. If the keep-alive has changed, it sets the timer for that.
func (s *Stream) look(setTimer func(time.Duration)) (over, owed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.rearm(setTimer)
	}
	return s.over, s.owed
}

// lost is the end. On the loop.
func (s *Stream) lost(err error) {
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

func (s *Stream) drained() {
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
func (s *Stream) rearm(setTimer func(time.Duration)) {
	if s.beat != s.armed {
		s.armed = s.beat
		setTimer(time.Duration(s.beat) * time.Millisecond)
	}
}

// beats keeps a silent stream alive. It reports false if the timer was not set for that. On the
// loop.
func (s *Stream) beats(setTimer func(time.Duration)) bool {
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

// A Chunk is a piece of body encoded once for any number of Streams. It is reference-counted:
// NewChunk gives the first reference.
type Chunk struct {
	block     *buf.Block
	from, end int // where the data stands in it
}

// NewChunk encodes a copy of p, which must not be empty.
func NewChunk(p []byte) *Chunk {
	b := buf.Get(len(p) + chunkRoom)
	n := len(h1.AppendChunk(b.Extend()[:0], p))
	b.Commit(n)
	return &Chunk{b, n - 2 - len(p), n - 2}
}

// data is what the chunk carries.
func (k *Chunk) data() []byte { return k.block.Bytes()[k.from:k.end] }

// Release gives the reference of NewChunk back; Streams that have been given the chunk hold their
// own.
func (k *Chunk) Release() { k.block.Release() }
