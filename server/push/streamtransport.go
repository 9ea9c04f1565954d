package push

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
)

// A StreamTransport is the transport of a client that reads one long response. Its channels may
// send before the head of the response has been sent; it queues that until it is open.
type StreamTransport struct {
	opening atomic.Pointer[opening] // nil after Open
	stream  ResponseStream          // set before opening becomes nil
	Client  *StreamClient           // nil for a client that only reads events
}

// A StreamClient is what a StreamTransport knows of a client that can be told why a response ends.
type StreamClient struct {
	LastMessage func(why Disconnect) []byte
	Secret      string // names the session in requests that belong to it; "": there are none
}

// An opening holds what a StreamTransport receives before it is open.
type opening struct {
	remote string
	mu     sync.Mutex
	sent   []byte      // Session.Offer bounds it, by queued
	reason *Disconnect // of the first Close; nil if Close was not called
}

// NewStreamTransport returns a transport that queues what is sent until Open gives it a response.
// remote is the peer's address. client is nil for a client that only reads events.
func NewStreamTransport(remote string, client *StreamClient) *StreamTransport {
	t := &StreamTransport{Client: client}
	t.opening.Store(&opening{remote: remote})
	return t
}

// Open sends first, then what is queued. Concurrent sends wait, so that their messages follow.
func (t *StreamTransport) Open(stream ResponseStream, first []byte) error {
	o := t.lock()
	defer o.mu.Unlock()
	err := stream.Send(&Message{Payload: append(first, o.sent...)})
	t.stream = stream
	if o.reason != nil {
		t.end(*o.reason)
	}
	t.opening.Store(nil)
	return err
}

// lock returns the opening, locked, or nil if t is open.
func (t *StreamTransport) lock() *opening {
	o := t.opening.Load()
	if o == nil {
		return nil
	}
	o.mu.Lock()
	if t.opening.Load() == nil { // opened meanwhile
		o.mu.Unlock()
		return nil
	}
	return o
}

func (t *StreamTransport) Send(m *Message) error {
	if o := t.lock(); o != nil {
		defer o.mu.Unlock()
		o.sent = append(o.sent, m.Payload...)
		return nil
	}
	return t.stream.Send(m)
}

func (t *StreamTransport) Queued() int {
	if o := t.lock(); o != nil {
		defer o.mu.Unlock()
		return len(o.sent)
	}
	return t.stream.Queued()
}

func (t *StreamTransport) Remote() string {
	if o := t.lock(); o != nil {
		o.mu.Unlock()
		return o.remote
	}
	return t.stream.Remote()
}

func (t *StreamTransport) Close(why Disconnect) {
	o := t.lock()
	if o == nil {
		t.end(why)
		return
	}
	defer o.mu.Unlock()
	if o.reason == nil {
		o.reason = &why
	}
}

// end sends the last message, if there is room for it, and closes the stream.
func (t *StreamTransport) end(why Disconnect) {
	if t.Client != nil && why != DisconnectSlow {
		_ = t.stream.Send(&Message{Payload: t.Client.LastMessage(why)}) // without room, the end has no reason
	}
	t.stream.Close(why)
}

// A ResponseStream carries a StreamTransport's messages after the head has been sent. OnClose sets
// f, which is called once when the stream has ended. OnClose itself may call f; the other methods
// do not.
type ResponseStream interface {
	Transport
	OnClose(f func())
}

// A webStream writes to a detached response.
type webStream struct{ *web.Stream }

func (n *node) detach(w http.ResponseWriter) (ResponseStream, error) {
	stream, err := web.Detached(w)
	if err != nil {
		return nil, err
	}
	stream.SetWriteLimit(n.limits.Queue + QueueSlack)
	return webStream{stream}, nil
}

func (t webStream) Send(m *Message) error {
	if chunk, ok := m.Shared.(*web.Chunk); ok {
		return FullOf(t.Stream.WriteChunk(chunk))
	}
	_, err := t.Stream.Write(m.Payload)
	return FullOf(err)
}

func (t webStream) Queued() int { return t.Stream.Queued() }

func (t webStream) Remote() string { return t.Stream.RemoteAddr().String() }

// Close ends the stream. The end of a response has no reason.
func (t webStream) Close(why Disconnect) {
	if why == DisconnectSlow {
		t.Stream.Abort(why)
		return
	}
	t.Stream.Close()
}

func (t webStream) OnClose(f func()) { t.Stream.OnClose(func(error) { f() }) }

// FullOf turns the engine's queue-full error into ErrQueueFull.
func FullOf(err error) error {
	if errors.Is(err, myriad.ErrFull) {
		return ErrQueueFull
	}
	return err
}
