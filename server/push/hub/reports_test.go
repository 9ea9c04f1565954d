package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/policy"
)

// This file tries what users of other servers have reported, where no other test does:
// docs/HUNTS.md has the list.

// A client that has received nothing yet recovers from the beginning, and one that has recovered
// can do so again.
func TestRecoveryFromTheBeginning(t *testing.T) {
	n := newTestNode(t, withRules(t, policy.Namespace{HistorySize: 10, HistoryAge: time.Minute, Recovery: true}))
	at, want := bus.Position{}, 0
	for round := range 4 {
		c := n.connected()
		ask := fmt.Sprintf(`{"id":2,"subscribe":{"channel":"a","recover":%v,"offset":%d,"epoch":"%s"}}`,
			round > 0, at.Offset, at.Epoch)
		c.frame([]byte(ask))
		var reply struct {
			Subscribe struct {
				Epoch        string
				Offset       uint64
				Recovered    bool
				Publications []struct{ Offset uint64 }
			}
		}
		got := c.Take()
		if len(got) != 1 || json.Unmarshal([]byte(got[0]), &reply) != nil {
			t.Fatalf("round %d: %q", round, got)
		}
		sub := reply.Subscribe
		if len(sub.Publications) != want || sub.Recovered != (round > 0) || sub.Offset != at.Offset+uint64(want) {
			t.Errorf("round %d after %v: %s", round, at, got[0])
		}
		at = bus.Position{Offset: sub.Offset, Epoch: sub.Epoch}
		c.hangUp()
		want = round + 1
		for range want {
			if _, err := n.publish(context.Background(), "a", bus.Publication{Data: []byte("1")}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A hook for connect lets a user have one connection: it ends the user's others. Two that come at
// the same time end each other at most.
func TestHookEndsOtherConnections(t *testing.T) {
	var n *testNode
	n = newTestNode(t, withHooks(t, Hooks{
		Connect: func(context.Context, Caller, ConnectRequest) (ConnectAnswer, error) {
			for _, s := range n.of("ann") {
				s.Disconnect(answer.Disconnect{Code: 4000, Reason: "elsewhere"})
			}
			return ConnectAnswer{User: "ann"}, nil
		}}))
	var clients []*fakeTransport
	for range 10 {
		var all sync.WaitGroup
		for range 3 {
			c := n.dial()
			clients = append(clients, c)
			all.Go(func() { c.frame([]byte(`{"id":1,"connect":{}}`)) })
		}
		all.Wait()
	}
	last := n.dial()
	last.frame([]byte(`{"id":1,"connect":{}}`))
	last.WantOpen(t, "the last one")
	for i, c := range clients {
		if !c.IsClosed() {
			t.Errorf("connection %d is still open", i)
		}
	}
}
