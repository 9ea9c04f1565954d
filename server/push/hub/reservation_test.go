package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/golang-jwt/jwt/v5"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/membus"
)

// A slowHook answers the hook for subscriptions when the test lets it.
type slowHook struct{ asked, answers chan error }

func newSlowHook(t *testing.T, more ...policy.Namespace) (*slowHook, *testNode) {
	h := &slowHook{make(chan error), make(chan error)}
	return h, newTestNode(t, withTokens, withHooks(t, Hooks{
		Subscribe: func(context.Context, Caller, SubscribeRequest) (SubscribeAnswer, error) {
			h.asked <- nil
			return SubscribeAnswer{}, <-h.answers
		}}, append(more, policy.Namespace{Name: "ask", SubscribeHook: true})...))
}

// during subscribes c to a channel, calls f while the hook is asked, lets the hook answer, and
// returns what c receives.
func (h *slowHook) during(c *fakeTransport, answer error, f func()) []string {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.frame([]byte(`{"id":2,"subscribe":{"channel":"ask:a"}}`))
	}()
	<-h.asked
	f()
	h.answers <- answer
	<-done
	return c.Take()
}

const (
	subscribedReply  = `{"id":2,"subscribe":{}}`
	unsubscribedPush = `{"push":{"channel":"ask:a","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}`
)

// What the server does to a subscription while a hook is asked about it is not lost: the
// subscription is made, and then ends.
func TestServerEndsASubscriptionThatIsMade(t *testing.T) {
	h, n := newSlowHook(t)
	c := n.as(jwt.MapClaims{"sub": "ann"})
	end := func() {
		if !c.s.EndSubscription("ask:a") {
			t.Error("no subscription ended")
		}
	}
	if got := h.during(c, nil, end); !slices.Equal(got, []string{subscribedReply, unsubscribedPush}) {
		t.Errorf("received %q", got)
	}
	refused := answer.Error{Code: 1000, Message: "no"}
	want := []string{`{"id":2,"error":{"code":1000,"message":"no"}}`}
	if got := h.during(c, refused, end); !slices.Equal(got, want) {
		t.Errorf("a subscription that was refused: received %q", got)
	}
	if got := h.during(c, nil, func() {}); !slices.Equal(got, []string{subscribedReply}) {
		t.Errorf("then received %q", got)
	}
	if left := len(c.s.members); left != 1 {
		t.Errorf("%d subscriptions", left)
	}
}

// A client and the API subscribe at the same time. There is one subscription, which gets each
// publication once.
func TestSubscriptionsAtTheSameTime(t *testing.T) {
	h, n := newSlowHook(t)
	c := n.as(jwt.MapClaims{"sub": "ann"})
	got := h.during(c, nil, func() {
		if told, err := c.s.SubscribeByServer("ask:a", SubscribeCommand{}); told || err != answer.ErrAlreadySubscribed {
			t.Errorf("the API subscribes, too: %v, %v", told, err)
		}
	})
	if !slices.Equal(got, []string{subscribedReply}) {
		t.Errorf("received %q", got)
	}
	for range 20 {
		d := n.as(jwt.MapClaims{"sub": "bob"})
		var all sync.WaitGroup
		all.Go(func() { d.frame([]byte(`{"id":2,"subscribe":{"channel":"a"}}`)) })
		for range 3 {
			all.Go(func() { d.s.SubscribeByServer("a", SubscribeCommand{}) })
		}
		all.Wait()
		d.Take()
		if _, err := n.publish(context.Background(), "a", bus.Publication{Data: json.RawMessage("1")}); err != nil {
			t.Fatal(err)
		}
		if got := d.Take(); len(got) != 1 {
			t.Errorf("one publication is received as %q", got)
		}
		d.hangUp()
	}
}

// A client loses the right to a channel while its subscription is made.
func TestRightIsLostDuringASubscription(t *testing.T) {
	bus := &waitingBus{Bus: membus.New(membus.Config{}), asked: make(chan struct{}), goOn: make(chan struct{})}
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{Name: "own", SubscribeToken: true}),
		func(c *Config) { c.Bus = bus })
	caps := func(list string) jwt.MapClaims {
		return jwt.MapClaims{"sub": "ann", "caps": json.RawMessage(list)}
	}
	c := n.as(caps(`[{"channels":["own:a"],"allow":["sub"]}]`))
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.frame([]byte(`{"id":2,"subscribe":{"channel":"own:a"}}`))
	}()
	<-bus.asked
	if _, err := c.s.Refresh(n.signed(caps(`[{"channels":["own:b"],"allow":["sub"]}]`))); err != nil {
		t.Fatal(err)
	}
	close(bus.goOn)
	<-done
	if got := c.Take(); len(got) != 2 || !strings.Contains(got[1], `"unsubscribe":{"code":2000`) {
		t.Errorf("received %q", got)
	}
	if left := n.channels.subscriptions(); left != 0 {
		t.Errorf("%d subscriptions left", left)
	}
}

// A waitingBus is a bus whose Subscribe waits.
type waitingBus struct {
	bus.Bus
	asked, goOn chan struct{}
}

func (b *waitingBus) Subscribe(ctx context.Context, to bus.Topic, r bus.Receiver) error {
	close(b.asked)
	<-b.goOn
	return b.Bus.Subscribe(ctx, to, r)
}

// Many clients wait for a hook about one channel, and then leave at once. Nothing is left of them.
func TestManyReservations(t *testing.T) {
	n := newTestNode(t, withHooks(t, Hooks{
		Subscribe: func(context.Context, Caller, SubscribeRequest) (SubscribeAnswer, error) {
			return SubscribeAnswer{}, nil
		}}, policy.Namespace{Name: "ask", SubscribeHook: true}))
	var all sync.WaitGroup
	for i := range 50 {
		c := n.connected()
		all.Go(func() {
			for j := range 10 {
				c.frame(fmt.Appendf(nil, `{"id":2,"subscribe":{"channel":"ask:%d"}}`, (i+j)%3))
				c.frame(fmt.Appendf(nil, `{"id":3,"unsubscribe":{"channel":"ask:%d"}}`, (i+j)%3))
			}
		})
		all.Go(func() {
			for j := range 10 {
				c.s.EndSubscription(fmt.Sprintf("ask:%d", j%3))
			}
			c.hangUp()
		})
	}
	all.Wait()
	if left := n.channels.held(); left != 0 {
		t.Errorf("%d channels left", left)
	}
}
