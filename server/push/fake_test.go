package push_test

import (
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/server/push/doors/centrifuge"
	"github.com/myriad-go/myriad/server/push/doors/mercure"
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
func (f *fakeTransport) frame(p []byte) { centrifuge.RunMessage(f.s, p) }

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

// testDoors returns all doors there are, with that Mercure hub.
func testDoors(m mercure.Config) []push.Door { return doors.All(doors.Config{Mercure: m}) }

// Forms of Centrifuge in a WebSocket, and of /events.
var (
	jsonForm, protobufForm = formOf("websocket", "json"), formOf("websocket", "protobuf")
	uniForm, eventForm     = formOf("uni_websocket", "json"), formOf("events", "json")
)

// formOf returns the first form of that kind.
func formOf(transport, protocol string) hub.Form {
	for _, f := range hub.FormsOf(testDoors(mercure.Config{})) {
		if t, p := f.Kind(); t == transport && p == protocol {
			return f
		}
	}
	panic("no form of " + transport + " in " + protocol)
}
