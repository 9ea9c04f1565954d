package hub

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/myriad-go/myriad/server/push/bus"
)

// While others join and leave, a member sees every publication between its own join and leave, once
// and in order.
func TestMembersSeeEverythingInOrder(t *testing.T) {
	n := newTestNode(t)
	const publications, churners = 300, 8
	steady := n.connected("news")
	var wg sync.WaitGroup
	for i := range churners {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			c := n.dial()
			c.frame([]byte(`{"id":1,"connect":{}}`))
			for range 60 {
				c.frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
				if random.IntN(2) == 0 {
					c.frame([]byte(`{"id":3,"subscribe":{"channel":"other"}}` + "\n" +
						`{"id":4,"unsubscribe":{"channel":"other"}}`))
				}
				c.frame([]byte(`{"id":5,"unsubscribe":{"channel":"news"}}`))
			}
			wantRuns(t, c.Take())
		})
	}
	for i := range publications {
		if _, err := n.publish(context.Background(), "news",
			bus.Publication{Data: []byte(strconv.Itoa(i))}); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	got := steady.Take()
	if len(got) != publications {
		t.Fatalf("received %d of %d", len(got), publications)
	}
	for i, message := range got {
		if want := fmt.Sprintf(`{"push":{"channel":"news","pub":{"data":%d}}}`, i); message != want {
			t.Fatalf("message %d is %s", i, message)
		}
	}
}

// wantRuns checks that publications come only between the replies to subscribe and unsubscribe,
// counting up without a gap.
func wantRuns(t *testing.T, messages []string) {
	inside, last := false, -1
	for _, m := range messages {
		switch {
		case strings.Contains(m, `"id":2,"subscribe":{}`):
			inside, last = true, -1
		case strings.Contains(m, `"id":5,"unsubscribe":{}`):
			inside = false
		case strings.Contains(m, `"push"`):
			var n int
			fmt.Sscanf(m, `{"push":{"channel":"news","pub":{"data":%d}}}`, &n)
			if !inside || last >= 0 && n != last+1 {
				t.Errorf("publication %d after %d, subscribed: %v", n, last, inside)
				return
			}
			last = n
		}
	}
}

// Connections that end during a broadcast leave no session and no channel; newTestNode checks that
// at the end.
func TestSessionsEndDuringBroadcasts(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Limits.Queue = 2000 })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 40 {
				c := n.dial()
				c.Stuck = j%3 == 0
				c.frame([]byte("{\"id\":1,\"connect\":{}}\n{\"id\":2," +
					"\"subscribe\":{\"channel\":\"news\"}}\n{\"id\":2," +
					"\"subscribe\":{\"channel\":\"c" + strconv.Itoa(i) + "\"}}"))
				if j%2 == 0 {
					go c.hangUp()
				} else {
					c.frame([]byte(`{"id":3,"publish":{"channel":"news","data":"` + strings.Repeat("x", 300) + `"}}`))
					c.hangUp()
				}
			}
		})
	}
	for range 20 {
		n.clock.Advance(time.Second)
		n.publish(context.Background(), "news", bus.Publication{Data: []byte("1")})
	}
	wg.Wait()
	for n.figures.connections.Load() > 0 {
		for _, s := range n.wheel.all() {
			s.t.(*fakeTransport).hangUp()
		}
		time.Sleep(time.Millisecond)
	}
}

// A broadcast is encoded once for each form, for any number of subscribers.
func TestBroadcastIsEncodedOnce(t *testing.T) {
	n := newTestNode(t)
	var seen []*Message
	for range 50 {
		f := &keeper{seen: &seen}
		f.s = n.Start(f, jsonForm, nil)
		f.frame([]byte(connectAndSubscribe))
	}
	seen = nil
	n.publish(context.Background(), "news", bus.Publication{Data: []byte("1")})
	if len(seen) != 50 {
		t.Fatalf("%d deliveries", len(seen))
	}
	for _, m := range seen {
		if m != seen[0] {
			t.Fatal("encoded twice")
		}
	}
	for _, s := range n.wheel.all() {
		s.Ended()
	}
}

// keeper records the messages that it is sent.
type keeper struct {
	fakeTransport
	seen *[]*Message
}

func (k *keeper) Send(m *Message) error {
	*k.seen = append(*k.seen, m)
	return nil
}

// The memory of a subscriber besides its connection. TARGETS M6 leaves about a kilobyte for session
// and transport.
func TestSessionSize(t *testing.T) {
	if got := unsafe.Sizeof(Session{}); got > 192 {
		t.Errorf("a session takes %d bytes, want at most 192", got)
	}
	if got := unsafe.Sizeof(member{}); got > 32 {
		t.Errorf("a membership takes %d bytes, want at most 32", got)
	}
}
