package hub

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
)

// Each form has its own id and a ping that its transports can share.
func TestFormsHaveIDs(t *testing.T) {
	n := newTestNode(t)
	for _, d := range testDoors() {
		for _, f := range d.Forms() {
			if got := n.forms[n.forms.idOf(f)].Form; got != f {
				t.Errorf("the id of %#v leads to %#v", f, got)
			}
		}
	}
}

// numbers records the numbers that a subscriber receives.
type numbers struct {
	fakeTransport
	got []string
}

func (f *numbers) Send(m *Message) error {
	_, rest, ok := strings.Cut(string(m.Payload), `"data":`)
	if ok {
		f.got = append(f.got, strings.TrimRight(rest, "}"))
	}
	return nil
}

func (f *numbers) Queued() int { return 0 }

// Clients that join and leave between two slices of a publication's receivers do not make others
// miss it, or get it twice.
func TestJoinAndLeaveDuringPublication(t *testing.T) {
	n := newTestNode(t)
	const stay, publications = 3 * memberSlice, 50
	staying := make([]*numbers, stay)
	for i := range staying {
		staying[i] = new(numbers)
		staying[i].s = n.Start(staying[i], jsonForm, nil)
		staying[i].frame([]byte(connectAndSubscribe))
		n.churn(1)
	}
	stop := make(chan struct{})
	var churning sync.WaitGroup
	for range 2 {
		churning.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					n.churn(20)
				}
			}
		})
	}
	var want []string
	for i := range publications {
		want = append(want, fmt.Sprint(i))
		n.publish(context.Background(), "news", bus.Publication{Data: []byte(fmt.Sprint(i))})
	}
	close(stop)
	churning.Wait()
	for i, f := range staying {
		if fmt.Sprint(f.got) != fmt.Sprint(want) {
			t.Fatalf("subscriber %d of those that stay received %v", i, f.got)
		}
	}
	ch := n.channels.acquire("news")
	for i, m := range ch.members.list {
		if int(m.at) != i {
			t.Errorf("member %d stands at %d", m.at, i)
		}
	}
	n.channels.release(ch)
	for _, s := range n.wheel.all() {
		s.Ended()
	}
}

// churn subscribes clients, which then leave.
func (n *testNode) churn(clients int) {
	list := make([]*numbers, clients)
	for i := range list {
		list[i] = new(numbers)
		list[i].s = n.Start(list[i], jsonForm, nil)
		list[i].frame([]byte(connectAndSubscribe))
	}
	for _, f := range list {
		f.s.Ended()
	}
}

// A member that leaves while a publication is sent leaves a hole, which closes afterwards.
func TestHoles(t *testing.T) {
	n := newTestNode(t)
	var list []*member
	for range 5 {
		list = append(list, n.connected("news").s.member("news"))
	}
	ch := list[0].ch
	ch.mu.Lock()
	ch.members.sending = true
	ch.unlink(list[1])
	ch.unlink(list[4])
	late := &member{s: list[0].s, ch: ch}
	ch.enter(late)
	if len(ch.members.list) != 6 || ch.members.list[1] != nil || ch.members.list[4] != nil {
		t.Errorf("members %v", ch.members.list)
	}
	ch.members.endWalk()
	if len(ch.members.list) != 4 || ch.members.holes != 0 {
		t.Errorf("%d members and %d holes are left", len(ch.members.list), ch.members.holes)
	}
	for i, m := range ch.members.list {
		if m == nil || int(m.at) != i {
			t.Errorf("member %d is %+v", i, m)
		}
	}
	ch.unlink(late)
	ch.mu.Unlock()
}
