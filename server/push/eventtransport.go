package push

import (
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// An eventStream is the part of web.Stream that a subscriber by SSE needs.
type eventStream interface {
	Write(p []byte) (int, error)
	Flush() error
	Queued() int
	Close() error
	OnClose(f func())
}

// eventTransport writes events to a response that has outlived its handler.
type eventTransport struct{ stream eventStream }

func (t eventTransport) send(b *buf.Block) error {
	_, err := t.stream.Write(b.Bytes())
	b.Release()
	if err != nil {
		return err
	}
	return t.stream.Flush()
}

func (t eventTransport) queued() int { return t.stream.Queued() }

// close ends the stream. An EventSource cannot be told why; it comes back, and is answered with a status that says.
func (t eventTransport) close(centrifuge.Disconnect) { t.stream.Close() }
