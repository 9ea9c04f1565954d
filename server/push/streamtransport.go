package push

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
)

// A streamTransport is the transport of a client that reads one long response. Its channels may
// send before the head of the response has been sent; it queues that until it is open.
type streamTransport struct {
	opening atomic.Pointer[opening] // nil after open
	stream  responseStream          // set before opening becomes nil
	client  *streamClient           // nil for a client that only reads events
}

// A streamClient is what a streamTransport knows of a client that can be told why a response ends.
type streamClient struct {
	lastMessage func(why ending) []byte
	secret      string // names the session in requests that belong to it; "": there are none
}

// An opening holds what a streamTransport receives before it is open.
type opening struct {
	remote string
	mu     sync.Mutex
	sent   []byte  // session.offer bounds it, by queued
	reason *ending // of the first close; nil if close was not called
}

func newStreamTransport(remote string, client *streamClient) *streamTransport {
	t := &streamTransport{client: client}
	t.opening.Store(&opening{remote: remote})
	return t
}

// open sends first, then what is queued. Concurrent sends wait, so that their messages follow.
func (t *streamTransport) open(stream responseStream, first []byte) error {
	o := t.lock()
	defer o.mu.Unlock()
	err := stream.send(&message{payload: append(first, o.sent...)})
	t.stream = stream
	if o.reason != nil {
		t.end(*o.reason)
	}
	t.opening.Store(nil)
	return err
}

// lock returns the opening, locked, or nil if t is open.
func (t *streamTransport) lock() *opening {
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

func (t *streamTransport) send(m *message) error {
	if o := t.lock(); o != nil {
		defer o.mu.Unlock()
		o.sent = append(o.sent, m.payload...)
		return nil
	}
	return t.stream.send(m)
}

func (t *streamTransport) queued() int {
	if o := t.lock(); o != nil {
		defer o.mu.Unlock()
		return len(o.sent)
	}
	return t.stream.queued()
}

func (t *streamTransport) remote() string {
	if o := t.lock(); o != nil {
		o.mu.Unlock()
		return o.remote
	}
	return t.stream.remote()
}

func (t *streamTransport) close(why ending) {
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
func (t *streamTransport) end(why ending) {
	if t.client != nil && why != endSlow {
		_ = t.stream.send(&message{payload: t.client.lastMessage(why)}) // without room, the end has no reason
	}
	t.stream.close(why)
}

// A responseStream carries a streamTransport's messages after the head has been sent. onClose sets
// f, which is called once when the stream has ended. onClose itself may call f; the other methods
// do not.
type responseStream interface {
	transport
	onClose(f func())
}

// A webStream writes to a detached response.
type webStream struct{ *web.Stream }

func (n *node) detach(w http.ResponseWriter) (responseStream, error) {
	stream, err := web.Detached(w)
	if err != nil {
		return nil, err
	}
	stream.SetWriteLimit(n.limits.Queue + queueSlack)
	return webStream{stream}, nil
}

func (t webStream) send(m *message) error {
	if chunk, ok := m.shared.(*web.Chunk); ok {
		return full(t.Stream.WriteChunk(chunk))
	}
	_, err := t.Stream.Write(m.payload)
	return full(err)
}

func (t webStream) queued() int { return t.Stream.Queued() }

func (t webStream) remote() string { return t.Stream.RemoteAddr().String() }

// close ends the stream. The end of a response has no reason.
func (t webStream) close(why ending) {
	if why == endSlow {
		t.Stream.Abort(why)
		return
	}
	t.Stream.Close()
}

func (t webStream) onClose(f func()) { t.Stream.OnClose(func(error) { f() }) }

// full turns the engine's queue-full error into errFull.
func full(err error) error {
	if errors.Is(err, myriad.ErrFull) {
		return errFull
	}
	return err
}
