package push

import (
	"errors"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/web"
)

// An eventStream is the transport of a subscriber by SSE. onClose has f called once, when it has ended, not from within a call
// of another method but this one.
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

// close ends the stream. An EventSource cannot be told why; it comes back, and is answered with a status that says.
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
