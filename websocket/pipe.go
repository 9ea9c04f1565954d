package websocket

import (
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/web"
)

// A pipe is what a Conn sends by and is called from: a *myriad.Conn, or the *web.Pipe of a stream
// of HTTP/2.
type pipe interface {
	Write(p []byte) (int, error)
	WriteBlocks(blocks ...*buf.Block) error
	Close() error
	Abort(err error)
	Queued() int
	Unflushed() int
	Flush() bool
	SetWriteLimit(n int)
	SetTimer(d time.Duration)
	Pause()
	Resume()
	Notify()
	RunInline(t myriad.InlineTask)
	Loop() *myriad.Loop
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}

var (
	_ pipe = (*myriad.Conn)(nil)
	_ pipe = (*web.Pipe)(nil)
)

// tunnel accepts an extended CONNECT (RFC 8441 §5): the answer has no Sec-WebSocket-Accept, because
// the request has no key.
func (c *Conn) tunnel(w http.ResponseWriter, subprotocol string, terms deflateTerms) error {
	fields := w.Header()
	for name := range fields {
		if ofHandshake(name) {
			delete(fields, name)
		}
	}
	if subprotocol != "" {
		fields.Set("Sec-WebSocket-Protocol", subprotocol)
	}
	if terms.agreed {
		fields.Set("Sec-WebSocket-Extensions", string(terms.params().append(nil)))
	}
	err := web.Tunnel(w, (*piped)(c))
	if errors.Is(err, web.ErrNotMyriad) {
		http.Error(w, "the server cannot give this stream away", http.StatusInternalServerError)
	}
	return err
}

// piped is the Conn as a web.PipeHandler, as handler is for the engine. All of it runs on the loop.
type piped Conn

func (h *piped) Opened(p *web.Pipe)             { (*Conn)(h).begins(p) }
func (h *piped) Received(_ *web.Pipe, p []byte) { (*Conn)(h).receives(p) }
func (h *piped) Ended(*web.Pipe)                { (*Conn)(h).ended() }
func (h *piped) Drained(*web.Pipe)              { (*Conn)(h).drains() }
func (h *piped) Notified(*web.Pipe)             { (*Conn)(h).notified() }
func (h *piped) Expired(*web.Pipe)              { (*Conn)(h).expired() }
func (h *piped) Stopping(*web.Pipe)             { (*Conn)(h).stopping() }
func (h *piped) Closed(_ *web.Pipe, err error)  { (*Conn)(h).ends(err) }
