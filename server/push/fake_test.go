package push

import (
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"

	"github.com/myriad-go/myriad/server/push/hub"
)

// A fakeTransport is the transport of a client of which a test is the peer.
type fakeTransport struct {
	pushtest.Peer
	s *hub.Session
}

func (f *fakeTransport) Send(m *hub.Message) error {
	err := f.Receive(m.Payload)
	if err == pushtest.ErrFull {
		return hub.ErrQueueFull
	}
	return err
}

// frame is a message from the peer.
func (f *fakeTransport) frame(p []byte) { runMessage(f.s, p) }

// hangUp ends the connection from the peer's side.
func (f *fakeTransport) hangUp() {
	if f.HangUp() {
		f.s.Ended()
	}
}

const testSecret = tokentest.Secret

var (
	sign   = tokentest.Sign
	tokens = tokentest.Tokens
)
