package push

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/web"
)

// An eventTransport is the transport of an SSE subscriber. Its channels may send before the head of
// the response has been sent; it queues that until it is open.
type eventTransport struct {
	opening atomic.Pointer[opening] // nil after open
	stream  eventStream             // set before opening becomes nil
}

// An opening holds what an eventTransport receives before it is open.
type opening struct {
	mu     sync.Mutex
	sent   []byte                 // session.offer bounds it, by queued
	reason *centrifuge.Disconnect // of the first close; nil if close was not called
}

func newEventTransport() *eventTransport {
	t := new(eventTransport)
	t.opening.Store(new(opening))
	return t
}

// open sends first, then what is queued. Concurrent sends wait, so that their messages follow.
func (t *eventTransport) open(stream eventStream, first []byte) error {
	o := t.lock()
	defer o.mu.Unlock()
	err := stream.send(&message{payload: append(first, o.sent...)})
	if o.reason != nil {
		stream.close(*o.reason)
	}
	t.stream = stream
	t.opening.Store(nil)
	return err
}

// lock returns the opening, locked, or nil if t is open.
func (t *eventTransport) lock() *opening {
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

func (t *eventTransport) send(m *message) error {
	if o := t.lock(); o != nil {
		defer o.mu.Unlock()
		o.sent = append(o.sent, m.payload...)
		return nil
	}
	return t.stream.send(m)
}

func (t *eventTransport) queued() int {
	if o := t.lock(); o != nil {
		defer o.mu.Unlock()
		return len(o.sent)
	}
	return t.stream.queued()
}

func (t *eventTransport) remote() string {
	if o := t.lock(); o != nil {
		o.mu.Unlock()
		return ""
	}
	return t.stream.remote()
}

func (t *eventTransport) close(d centrifuge.Disconnect) {
	o := t.lock()
	if o == nil {
		t.stream.close(d)
		return
	}
	defer o.mu.Unlock()
	if o.reason == nil {
		o.reason = &d
	}
}

// An eventStream carries an eventTransport's messages after the head has been sent. onClose sets f,
// which is called once when the stream has ended. onClose itself may call f; the other methods do
// not.
type eventStream interface {
	transport
	onClose(f func())
}

// webStream writes events to a detached response.
type webStream struct{ *web.Stream }

func (n *node) detach(w http.ResponseWriter) (eventStream, error) {
	stream, err := web.Detached(w)
	if err != nil {
		return nil, err
	}
	stream.SetWriteLimit(n.limits.Queue + queueSlack)
	return webStream{stream}, nil
}

func (t webStream) send(m *message) error {
	if m.chunk != nil {
		return full(t.WriteChunk(m.chunk))
	}
	_, err := t.Write(m.payload)
	return full(err)
}

func (t webStream) queued() int { return t.Queued() }

func (t webStream) remote() string { return t.RemoteAddr().String() }

// close ends the stream. An EventSource cannot receive a reason; when it reconnects, the status of
// the answer has it.
func (t webStream) close(d centrifuge.Disconnect) {
	if d == centrifuge.Slow {
		t.Abort(d)
		return
	}
	t.Close()
}

func (t webStream) onClose(f func()) { t.OnClose(func(error) { f() }) }

// full turns the engine's queue-full error into errFull.
func full(err error) error {
	if errors.Is(err, myriad.ErrFull) {
		return errFull
	}
	return err
}
