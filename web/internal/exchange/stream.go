package exchange

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

// A Stream is a response that has outlived its handler: see web.Stream. It holds no goroutine and a
// few dozen bytes.
type Stream struct {
	sink   Sink
	noBody bool
	cut    bool    // the answer has failed: nothing may follow it on an HTTP/1 connection
	beat   uint32  // guarded by mu: an EventStream's keep-alive in milliseconds; 0: none
	behind Carrier // whose answer it is, if requests have lined up behind it; the loop's

	mu        sync.Mutex // held while something is queued: nothing follows the last chunk but the next answer
	owed      bool       // the last chunk waits for room
	over      bool       // Close was called, or the connection has gone
	told      bool       // OnClose's function was called
	wrote     bool       // since the last keep-alive
	armed     uint32     // the beat for which the conn's timer is set; 0: it is not
	ending    error      // an onClose until told, then why it has ended; nil: neither
	moves     *moves     // what it can move to another process with; nil: it stays
	onDrained func()
	life      *lifetime.Lifetime // nil: no context was asked for, and there are no values for one
}

// An onClose is the function that OnClose was given, in the place of the error that ends the
// Stream: one word less for each.
type onClose func(err error)

func (onClose) Error() string { return "web: the Stream has not ended" }

// A Sink is how a version of HTTP sends what a Stream writes. Its methods may be called on any
// goroutine and never block.
type Sink interface {
	// Write and Chunk send a piece of the body, all or nothing: myriad.ErrFull.
	Write(p []byte) error
	Chunk(k *Chunk) error
	// End ends the body: myriad.ErrFull.
	End() error
	// Queued is how many bytes wait for the client, SetLimit from how many on Write fails.
	Queued() int
	SetLimit(n int)
	// Abort drops what is queued, so that the client notices.
	Abort(err error)
	// Notify has the loop look at the Stream.
	Notify()
	RemoteAddr() net.Addr
}

// Write queues p, all or nothing: myriad.ErrFull takes no byte while the client reads too slowly.
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
	if err := s.sink.Write(p); err != nil {
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
	return s.sink.Chunk(k)
}

// Queued is how many bytes wait for the client to read.
func (s *Stream) Queued() int { return s.sink.Queued() }

// RemoteAddr is the client's address, as Request.RemoteAddr has it.
func (s *Stream) RemoteAddr() net.Addr { return s.sink.RemoteAddr() }

// SetWriteLimit changes how many bytes may wait for the client, above which Write fails with
// myriad.ErrFull.
func (s *Stream) SetWriteLimit(n int) { s.sink.SetLimit(n) }

// Context returns a context that ends with the stream, before OnClose's function is called: its
// cause is that function's error, or context.Canceled after Close.
func (s *Stream) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life == nil {
		s.life = new(lifetime.Lifetime)
		if s.told {
			s.life.End(s.ending)
		}
	}
	return s.life.Context()
}

// KeepValues has Context carry the values of r's context, as middleware has set them, of which
// Detached does not know.
func (s *Stream) KeepValues(r *http.Request) {
	values := ValuesOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if values == nil || s.life.Asked() {
		return
	}
	s.life = lifetime.Of(values)
	if s.told {
		s.life.End(s.ending)
	}
}

// OnClose arranges one call of f on the loop, when the stream has ended: see web.Stream.
func (s *Stream) OnClose(f func(err error)) {
	s.mu.Lock()
	if !s.told {
		if s.ending = nil; f != nil {
			s.ending = onClose(f)
		}
		s.mu.Unlock()
		return
	}
	err := s.ending
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

// Close ends the body in order.
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
		err = s.sink.End()
	}
	if s.owed = errors.Is(err, myriad.ErrFull); s.owed {
		return nil
	}
	s.sink.Notify()
	return err
}

// Abort drops what is queued and resets the connection, for a client that does not read.
func (s *Stream) Abort(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.told {
		s.sink.Abort(err)
	}
}

// Failed reports whether the answer has: nothing may follow it on an HTTP/1 connection. On the
// loop.
func (s *Stream) Failed() bool { return s.cut }

// LineUp notes whose answer s is, for requests that have lined up behind it. On the loop.
func (s *Stream) LineUp(x Carrier) { s.behind = x }

// Behind is what LineUp was given, nil if no requests have lined up behind s. On the loop.
func (s *Stream) Behind() Carrier { return s.behind }

// Look is the loop's after notify. It reports whether Close was called, and whether the end of the
// body waits for room. If the keep-alive has changed, it sets the timer for that.
func (s *Stream) Look(setTimer func(time.Duration)) (over, owed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.rearm(setTimer)
	}
	return s.over, s.owed
}

// Lost is the end. On the loop.
func (s *Stream) Lost(err error) {
	s.mu.Lock()
	if s.over && !s.owed && err == io.EOF {
		err = nil // Close came first
	}
	s.over = true
	if s.told {
		s.mu.Unlock()
		return
	}
	f, _ := s.ending.(onClose)
	s.told, s.ending, s.moves = true, err, nil
	s.life.End(err) // under mu: a context that is asked for meanwhile is this one, or has ended
	s.mu.Unlock()
	if f != nil {
		f(err)
	}
}

func (s *Stream) Drained() {
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

// Beats keeps a silent stream alive. It reports false if the timer was not set for that. On the
// loop.
func (s *Stream) Beats(setTimer func(time.Duration)) bool {
	s.mu.Lock()
	armed, silent := s.armed, !s.wrote
	s.armed = 0
	s.mu.Unlock()
	if armed == 0 {
		return false
	}
	if silent && s.sink.Queued() == 0 {
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
const ChunkRoom = 16 + 4

// A Chunk is a piece of body encoded once for any number of Streams. It is reference-counted:
// newChunk gives the first reference.
type Chunk struct {
	block     *buf.Block
	from, end int // where the data stands in it
}

// NewChunk encodes a copy of p, which must not be empty.
func NewChunk(p []byte) *Chunk {
	b := buf.Get(len(p) + ChunkRoom)
	n := len(h1.AppendChunk(b.Extend()[:0], p))
	b.Commit(n)
	return &Chunk{b, n - 2 - len(p), n - 2}
}

// Data is what the chunk carries.
func (k *Chunk) Data() []byte { return k.block.Bytes()[k.from:k.end] }

// Block is the chunk as HTTP/1 frames it, with a reference of its own.
func (k *Chunk) Block() *buf.Block { return k.block.Retain() }

// Release gives the reference of NewChunk back.
func (k *Chunk) Release() { k.block.Release() }

// SetKeepAlive sends an empty comment of an event stream when it has been silent for d: see
// web.EventStream.
func (s *Stream) SetKeepAlive(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beat = uint32(min(max(d.Milliseconds(), 0), 1<<32-1))
	if !s.over {
		s.sink.Notify() // the loop sets the timer
	}
}

// Detach lets a response outlive its handler: see web.Detached.
func Detach(w http.ResponseWriter) (*Stream, error) {
	r, err := ResponseOf(w)
	if err != nil {
		return nil, err
	}
	switch {
	case r.X.Progress().Taken():
		return nil, http.ErrHijacked
	case r.X.Progress().Over():
		return nil, errors.New("web: Detached twice, or after the handler has returned")
	}
	r.Outlive(w)
	if r.Extent.Known() {
		return nil, errors.New("web: Detached with a Content-Length: its end is not known")
	}
	if err := r.X.Carrier.Outlive(); err != nil {
		return nil, fmt.Errorf("web: Detached: %w", err)
	}
	if err := r.Flush(); err != nil {
		return nil, err
	}
	s := &Stream{sink: r.X.Carrier.Sink(), noBody: r.NoBody || !BodyAllowed(r.Status)}
	if values := ValuesOf(&r.X.Given.Request); values != nil {
		s.life = lifetime.Of(values)
	}
	r.becomes(s)
	_ = r.inTime()                      // it loses what is late
	if err := r.LostErr(); err != nil { // it went before s could be told: nothing may follow the head
		s.cut = true
		s.Lost(err)
		return nil, fmt.Errorf("web: Detached: %w", err)
	}
	return s, nil
}

// becomes has s continue the answer.
func (w *Response) becomes(s *Stream) {
	w.Mu.Lock()
	w.more().stream = s
	w.Mu.Unlock()
	w.X.Enter(Detached)
}
