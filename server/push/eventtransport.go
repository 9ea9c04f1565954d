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

// An eventTransport is the transport of a subscriber by SSE, whose channels may have something for
// it before the head of the answer has gone. It keeps that until it is open.
type eventTransport struct {
	opening atomic.Pointer[opening] // nil: it is open
	stream  eventStream             // set before opening becomes nil
}

// An opening is what an eventTransport is given before it is open.
type opening struct {
	mu     sync.Mutex
	sent   []byte                 // session.offer bounds it, by queued
	reason *centrifuge.Disconnect // of the first close; nil: there was none
}

func newEventTransport() *eventTransport {
	t := new(eventTransport)
	t.opening.Store(new(opening))
	return t
}

// open sends first, then what was kept. What comes meanwhile waits, so that it is sent behind.
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

// lock returns what is kept, locked, or nil if t is open.
func (t *eventTransport) lock() *opening {
	o := t.opening.Load()
	if o == nil {
		return nil
	}
	o.mu.Lock()
	if t.opening.Load() == nil { // meanwhile
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

// An eventStream carries an eventTransport's messages once its head has gone. onClose has f called
// once, when it has ended, not from within a call of another method but this one.
type eventStream interface {
	transport
	onClose(f func())
}

// webStream writes events to a response that has outlived its handler.
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

// close ends the stream. An EventSource cannot be told why; it comes back, and is answered with a
// status that says.
func (t webStream) close(d centrifuge.Disconnect) {
	if d == centrifuge.Slow {
		t.Abort(d)
		return
	}
	t.Close()
}

func (t webStream) onClose(f func()) { t.OnClose(func(error) { f() }) }

// full translates the engine's error.
func full(err error) error {
	if errors.Is(err, myriad.ErrFull) {
		return errFull
	}
	return err
}
