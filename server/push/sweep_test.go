package push_test

import (
	"context"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/hub"
)

// A sweepTransport looks at the server while it is pinged, which is in the middle of a sweep.
type sweepTransport struct {
	deskTransport
	pinged func()
}

func (c *sweepTransport) Send(m *hub.Message) error {
	if string(m.Payload) == "\n" {
		c.pinged()
	}
	return c.deskTransport.Send(m)
}

// Shutdown, Disconnect and Connections act on all clients, also on those that are due in the sweep
// that runs.
func TestAllClientsAreFoundDuringASweep(t *testing.T) {
	const clients = 300
	d := newDesk(t, push.Config{Timing: push.Timing{Ping: time.Second}})
	var sessions []*hub.Session
	looks, fewest, most := 0, clients, 0
	for range clients {
		c := &sweepTransport{pinged: func() {
			list, err := d.Connections(context.Background(), "")
			if err != nil {
				t.Fatal(err)
			}
			looks, fewest, most = looks+1, min(fewest, len(list)), max(most, len(list))
		}}
		sessions = append(sessions, d.seam.StartConnected(c, lineForm{}, hub.Grant{}, nil))
	}
	d.clock.Advance(2 * time.Second)
	if looks < clients || fewest != clients || most != clients {
		t.Errorf("during %d pings between %d and %d of %d clients were found", looks, fewest, most, clients)
	}
	// Those that end in a sweep are not found any more.
	for i, s := range sessions {
		if i%2 == 0 {
			s.Ended()
		}
	}
	fewest, most = clients, 0
	d.clock.Advance(2 * time.Second)
	if fewest != clients/2 || most != clients/2 {
		t.Errorf("between %d and %d of %d clients were found", fewest, most, clients/2)
	}
	for i, s := range sessions {
		if i%2 == 1 {
			s.Ended()
		}
	}
}
