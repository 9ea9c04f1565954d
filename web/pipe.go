package web

import (
	"net"
	"net/http"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/web/internal/http2"
)

// ErrNoTunnel says that a request is not the extended CONNECT of HTTP/2 (RFC 8441).
var ErrNoTunnel = http2.ErrNoTunnel

// Tunnel accepts the extended CONNECT of an HTTP/2 client (RFC 8441): the request's stream becomes
// a Pipe that h speaks on. Server.Tunnels has to be set. The caller has looked at the client's
// protocol, which is r.Header[":protocol"] as in net/http. The head, with the status and fields set
// so far, is sent at once. Its status must be a 2xx, and is 200 if none was set. h.Opened follows
// on the loop, also if the client has gone meanwhile. The server's timeouts do not apply.
//
// It fails with ErrNoTunnel for any other request, and with ErrNotMyriad for a foreign
// ResponseWriter; wrappers are looked through by their Unwrap method. If the client has reset the
// stream before Tunnel returns, Tunnel may fail, with the reason; h is not called then.
func Tunnel(w http.ResponseWriter, h PipeHandler) error { return http2.Tunnel(w, pipeAdapter{h}) }

// A PipeHandler is what a Pipe speaks: to it what a myriad.Handler is to a myriad.Conn, with all
// optional methods. Calls run on the connection's loop, one at a time, never from inside a method
// of Pipe, and must not block.
type PipeHandler interface {
	// Opened is the first call.
	Opened(p *Pipe)
	// Received hands over what has arrived. b is valid until return; cap(b) == len(b).
	Received(p *Pipe, b []byte)
	// Ended says that the client has ended its side; writing still works.
	Ended(p *Pipe)
	// Drained is called once after each myriad.ErrFull, when half of the write limit is free again,
	// and after a Flush that has reported false.
	Drained(p *Pipe)
	// Notified is called after Pipe.Notify, once for any number of calls before it, when what was
	// written before has been offered to the client.
	Notified(p *Pipe)
	// Expired is called when the Pipe's one timer fires.
	Expired(p *Pipe)
	// Stopping is called when the server or its engine shuts down. The handler ends its protocol
	// and closes the Pipe, now or when its work is done: the shutdown waits for that.
	Stopping(p *Pipe)
	// Closed is the last call. err is nil if both sides ended in order, or Close was called. Else
	// it is Abort's argument, or what broke the stream or its connection.
	Closed(p *Pipe, err error)
}

// A pipeAdapter is a PipeHandler as HTTP/2 calls it.
type pipeAdapter struct{ h PipeHandler }

func (a pipeAdapter) Opened(p *http2.Pipe)             { a.h.Opened((*Pipe)(p)) }
func (a pipeAdapter) Received(p *http2.Pipe, b []byte) { a.h.Received((*Pipe)(p), b) }
func (a pipeAdapter) Ended(p *http2.Pipe)              { a.h.Ended((*Pipe)(p)) }
func (a pipeAdapter) Drained(p *http2.Pipe)            { a.h.Drained((*Pipe)(p)) }
func (a pipeAdapter) Notified(p *http2.Pipe)           { a.h.Notified((*Pipe)(p)) }
func (a pipeAdapter) Expired(p *http2.Pipe)            { a.h.Expired((*Pipe)(p)) }
func (a pipeAdapter) Stopping(p *http2.Pipe)           { a.h.Stopping((*Pipe)(p)) }
func (a pipeAdapter) Closed(p *http2.Pipe, err error)  { a.h.Closed((*Pipe)(p), err) }

// A Pipe is a stream of an HTTP/2 connection that speaks another protocol (Tunnel). It holds no
// goroutine. Its methods are those of a myriad.Conn and mean the same. SetTimer, Pause, Resume and
// RunInline are for the loop only. The others may be called from any goroutine, and never block.
type Pipe http2.Pipe

func (p *Pipe) inner() *http2.Pipe { return (*http2.Pipe)(p) }

// Write queues p, all or nothing.
func (p *Pipe) Write(b []byte) (int, error) { return p.inner().Write(b) }

// WriteBlocks is Write without a copy. It consumes one reference each, also on error.
func (p *Pipe) WriteBlocks(blocks ...*buf.Block) error { return p.inner().WriteBlocks(blocks...) }

// Close sends what is queued, ends our side by END_STREAM, and discards what the client still
// sends. A client that does not read, or does not end its side, is reset after some seconds. Always
// nil.
func (p *Pipe) Close() error { return p.inner().Close() }

// Abort drops what is queued and resets the stream with CANCEL.
func (p *Pipe) Abort(err error) { p.inner().Abort(err) }

// Queued is how many bytes wait for the client to read.
func (p *Pipe) Queued() int { return p.inner().Queued() }

// Buffered is how many of the bytes that Queued counts may leave as soon as the loop looks at
// them.
func (p *Pipe) Buffered() int { return p.inner().Buffered() }

// Flush reports whether what Queued counts waits for the client. If not, it waits for the loop, and
// the handler is called with Drained after that, whether there is room or not.
func (p *Pipe) Flush() bool { return p.inner().Flush() }

// SetWriteLimit changes how many bytes may be queued, above which Write fails with myriad.ErrFull;
// at first 64 KiB. An empty queue takes a Write of any size.
func (p *Pipe) SetWriteLimit(n int) { p.inner().SetWriteLimit(n) }

// Notify has the handler called with Notified.
func (p *Pipe) Notify() { p.inner().Notify() }

// SetTimer arms the one timer; 0: off. A new one replaces it.
func (p *Pipe) SetTimer(d time.Duration) { p.inner().SetTimer(d) }

// Pause has the handler get nothing more until Resume. The client is stopped by flow control: what
// may still come is at most the stream's window.
func (p *Pipe) Pause() { p.inner().Pause() }

// Resume undoes Pause. What has come meanwhile follows behind this callback.
func (p *Pipe) Resume() { p.inner().Resume() }

// RunInline has t run on the loop, as a task of the connection.
func (p *Pipe) RunInline(t myriad.InlineTask) { p.inner().RunInline(t) }

// Loop is the connection's.
func (p *Pipe) Loop() *myriad.Loop { return p.inner().Loop() }

// LocalAddr is the connection's.
func (p *Pipe) LocalAddr() net.Addr { return p.inner().LocalAddr() }

// RemoteAddr is the connection's.
func (p *Pipe) RemoteAddr() net.Addr { return p.inner().RemoteAddr() }
