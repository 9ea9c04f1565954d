package web

import (
	"context"
	"net"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// ErrNotMyriad says that a ResponseWriter does not come from this package's Server, even behind its
// Unwrap methods.
var ErrNotMyriad = exchange.ErrNotMyriad

// Upgrade ends HTTP on the connection. It sends head, a complete response head such as that of a
// 101, as it is. Then h gets the connection, and first the bytes that the client has already sent.
// The connection is h's when Upgrade returns, and may be written to from then on; h.Opened follows
// on the loop. It fails once an answer has begun, while the request's body is incomplete, and with
// ErrNotMyriad for a foreign ResponseWriter. Wrappers are looked through by their Unwrap method.
// With a PipelineDepth above 1 it waits until requests before this one have been answered.
//
// Middleware that records the status learns it by a call of WriteHeader on the outermost
// ResponseWriter, which the caller makes after Upgrade: it has no other effect.
func Upgrade(w http.ResponseWriter, head []byte, h myriad.Handler) error {
	return exchange.Upgrade(w, head, h)
}

// Detached lets the response outlive its handler. The head, with the status and fields set so far,
// is sent at once. The handler returns, and the body is written to the Stream until Close, or until
// the client goes away (OnClose). It is how server-sent events and long polls are held. The
// server's WriteTimeout does not apply.
//
// Middleware sees the status by WriteHeader, as with any answer, but not what the Stream writes:
// middleware that compresses is bypassed. Detached fails with ErrNotMyriad for a foreign
// ResponseWriter, and if the answer has a Content-Length.
func Detached(w http.ResponseWriter) (*Stream, error) {
	s, err := exchange.Detach(w)
	return (*Stream)(s), err
}

// ValuesOf returns a context with the values that middleware, Server.ConnContext and
// Server.BaseContext have set. It is for code that outlives the handler: the context does not end
// with the request. It is nil if there are none. It keeps what middleware has derived its context
// from, and with it the request: 1 to 3 kB. A foreign server's request has values always, unless
// its context is context.Background. Only the handler may call it.
func ValuesOf(r *http.Request) context.Context {
	return exchange.ValuesOf(r)
}

// A Stream is a response that has outlived its handler. It holds no goroutine and a few dozen
// bytes. Its methods may be called from any goroutine, never block, and each Write stays in one
// piece.
type Stream exchange.Stream

func (s *Stream) inner() *exchange.Stream { return (*exchange.Stream)(s) }

// Write queues p, all or nothing: myriad.ErrFull takes no byte while the client reads too slowly.
// Every Write is sent without waiting for more.
func (s *Stream) Write(p []byte) (int, error) { return s.inner().Write(p) }

// WriteChunk is Write of the chunk's data without a copy. k is only borrowed.
func (s *Stream) WriteChunk(k *Chunk) error { return s.inner().WriteChunk((*exchange.Chunk)(k)) }

// Flush does nothing: nothing is ever held back. It makes a Stream an http.Flusher.
func (s *Stream) Flush() {}

// Queued is how many bytes wait for the client to read.
func (s *Stream) Queued() int { return s.inner().Queued() }

// RemoteAddr is the client's address, as Request.RemoteAddr has it.
func (s *Stream) RemoteAddr() net.Addr { return s.inner().RemoteAddr() }

// SetWriteLimit changes how many bytes may wait for the client, above which Write fails with
// myriad.ErrFull. The limit is the connection's: it stays for the answers behind this one.
func (s *Stream) SetWriteLimit(n int) { s.inner().SetWriteLimit(n) }

// Context returns a context that ends with the stream, before OnClose's function is called: its
// cause is that function's error, or context.Canceled after Close. It carries the values of
// Server.BaseContext and ConnContext, and those of KeepValues.
func (s *Stream) Context() context.Context { return s.inner().Context() }

// KeepValues has Context carry the values of r's context, as middleware has set them, of which
// Detached does not know. It keeps the request in memory. Call it in the handler, before Context:
// after that it does nothing.
func (s *Stream) KeepValues(r *http.Request) { s.inner().KeepValues(r) }

// OnClose arranges one call of f on the loop, when the stream has ended. err is nil after Close or
// the server's Shutdown, and io.EOF after the client has ended its side in order. Otherwise it is
// what broke the connection. If the stream has ended already, f is called at once. f must not
// block.
func (s *Stream) OnClose(f func(err error)) { s.inner().OnClose(f) }

// OnDrained has f called on the loop, once after each myriad.ErrFull, when the queue is half empty
// again.
func (s *Stream) OnDrained(f func()) { s.inner().OnDrained(f) }

// Close ends the body in order. What was written is still sent, and the connection goes on to its
// next request. A second Close returns myriad.ErrClosed.
func (s *Stream) Close() error { return s.inner().Close() }

// Abort drops what is queued and resets the connection, for a client that does not read. It does
// nothing once the stream has ended (OnClose): the connection may be at its next request.
func (s *Stream) Abort(err error) { s.inner().Abort(err) }

// A Chunk is a piece of body encoded once for any number of Streams. It is reference-counted:
// NewChunk gives the first reference.
type Chunk exchange.Chunk

// NewChunk encodes a copy of p, which must not be empty.
func NewChunk(p []byte) *Chunk { return (*Chunk)(exchange.NewChunk(p)) }

// Release gives the reference of NewChunk back; Streams that have been given the chunk hold their
// own.
func (k *Chunk) Release() { (*exchange.Chunk)(k).Release() }
