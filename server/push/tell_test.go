package push_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/hub"
)

// A tellingForm is a form with a message for everything.
type tellingForm struct{ lineForm }

func (tellingForm) Notice(_ string, n bus.Notice) []byte {
	if n.Joined {
		return []byte("joined")
	}
	return []byte("left")
}

func (tellingForm) Subscribed(string, hub.Welcome) []byte { return []byte("subscribed") }

func (tellingForm) Unsubscribed(string, answer.Unsubscription) []byte { return []byte("unsubscribed") }

func (tellingForm) Refreshed(uint32) []byte { return []byte("refreshed") }

type tellingDoor struct{ lineDoor }

func (tellingDoor) Forms() []hub.Form { return []hub.Form{tellingForm{}} }

// What the server tells a client of its subscriptions is not lost because its queue is full: the
// client would not know what it has. It is disconnected as slow, and comes back.
func TestNewsForAFullQueue(t *testing.T) {
	ctx := context.Background()
	for what, do := range map[string]func(d *desk, s *hub.Session){
		"joined": func(d *desk, s *hub.Session) {
			other := d.seam.StartConnected(new(deskTransport), tellingForm{}, hub.Grant{}, nil)
			if err := other.Subscribe("a", hub.SubscribeCommand{}, func(hub.Welcome) {}); err != nil {
				t.Fatal(err)
			}
			other.Ended()
		},
		"unsubscribed": func(d *desk, s *hub.Session) { d.bus.lose("a") },
		"subscribed": func(d *desk, s *hub.Session) {
			if n, err := d.Subscribe(ctx, push.Target{Client: s.ID()}, "b", push.SubscribeOptions{}); n != 1 ||
				err != nil {
				t.Errorf("subscribed: %d, %v", n, err)
			}
		},
		"refreshed": func(d *desk, s *hub.Session) {
			n, err := d.Refresh(ctx, push.Target{Client: s.ID()}, push.RefreshOptions{})
			if n != 1 || err != nil {
				t.Errorf("refreshed: %d, %v", n, err)
			}
		},
	} {
		for _, slow := range []push.SlowPolicy{push.SlowDisconnect, push.SlowDropOldest, push.SlowLatestOnly} {
			for _, full := range []bool{false, true} {
				d := newDesk(t, push.Config{Doors: []push.Door{tellingDoor{}}, Limits: push.Limits{Queue: 1000},
					Timing: push.Timing{Ping: time.Hour},
					Namespaces: []push.Namespace{{HistorySize: 10, Recovery: true, JoinLeave: true, PushJoinLeave: true,
						Slow: slow}}})
				c := new(deskTransport)
				s := d.seam.StartConnected(c, tellingForm{}, hub.Grant{}, nil)
				if err := s.Subscribe("a", hub.SubscribeCommand{}, func(hub.Welcome) {}); err != nil {
					t.Fatal(err)
				}
				c.sent = nil
				if full {
					c.queued = 1000
				}
				do(d, s)
				told := strings.Contains(strings.Join(c.sent, " "), what)
				slowly := c.closed != nil && *c.closed == answer.DisconnectSlow
				if told == full || slowly != full {
					t.Errorf("%s under %s, full %v: was told %q, closed with %v", what, slow, full, c.sent, c.closed)
				}
				s.Ended()
			}
		}
	}
}
