package push_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

// Publications wait in the queues of clients while the loops cannot send. They are refused before a
// client is ended for it, all that were accepted are delivered, and then others are accepted again.
func TestWhatIsAcceptedIsDelivered(t *testing.T) {
	t.Parallel()
	s := servertest.NewLive(t, push.Config{})
	var clients []*servertest.RawClient
	for range 5 {
		clients = append(clients, s.SubscribeNews())
	}
	release := make(chan struct{})
	resume := sync.OnceFunc(func() { close(release) })
	defer resume()
	for _, l := range s.Engine.Loops() {
		if err := l.Do(func() { <-release }); err != nil {
			t.Fatal(err)
		}
	}
	accepted := 0
	publish := func() error { return s.Publish(t.Context(), "news", []byte(`{"a":"publication"}`)) }
	pushtest.WaitFor(t, "publications to be refused", func() bool {
		err := publish()
		if err == nil {
			accepted++
		} else if !errors.Is(err, push.ErrOverloaded) {
			t.Fatal(err)
		}
		return err != nil
	})
	resume()
	pushtest.WaitFor(t, "publications to be taken again", func() bool { return publish() == nil })
	for i, c := range clients {
		c.SetDeadline(time.Now().Add(20 * time.Second))
		for n := range accepted + 1 {
			if op, p := c.Frame(); op != 1 {
				t.Fatalf("client %d: frame %d of %d is %d %q", i, n, accepted+1, op, p)
			}
		}
	}
	if ended := s.Hub.Ended()["slow"]; ended != 0 {
		t.Errorf("%d clients were ended as slow", ended)
	}
}
