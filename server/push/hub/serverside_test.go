package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/golang-jwt/jwt/v5"

	"github.com/myriad-go/myriad/server/push/bus"
)

// eager publishes to each channel that a client joins, before the client has an answer.
type eager struct {
	bus.Bus
	publish func(channel string)
}

func (e eager) Subscribe(ctx context.Context, topic bus.Topic, r bus.Receiver) error {
	err := e.Bus.Subscribe(ctx, topic, r)
	e.publish(topic.Name)
	return err
}

// The answer to connect says what the server has subscribed the client to, and comes before all
// publications.
func TestServerSideSubscriptions(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{Name: "h", HistorySize: 10, Recovery: true}))
	at, _ := n.publish(context.Background(), "h:1", bus.Publication{Data: []byte("1")})
	n.publish(context.Background(), "h:1", bus.Publication{Data: []byte("2")})
	memory := n.bus
	n.bus = eager{memory, func(channel string) {
		// a neighbour of the same client is joined: this reaches it before the answer
		n.publish(context.Background(), "a", bus.Publication{Data: []byte(`"` + channel + `"`)})
	}}
	c := n.dial()
	token := n.signed(jwt.MapClaims{"sub": "ann", "channels": []string{"h:1", "a", "b", "a"}})
	c.frame(fmt.Appendf(nil, `{"id":1,"connect":{"token":%q,"subs":{"h:1":{"recover":true,"offset":1,"epoch":%q}}}}`,
		token, at.Epoch))
	got := c.Take()
	subs := fmt.Sprintf(`"subs":{"a":{},"b":{},"h:1":{"recoverable":true,"epoch":%q,"publications":[{"data":2,`+
		`"offset":2}],"recovered":true,"offset":2,"positioned":true,"was_recovering":true}}`, at.Epoch)
	if len(got) != 3 || !strings.HasPrefix(got[0], `{"id":1,"connect":{`) || !strings.Contains(got[0], subs) {
		t.Fatalf("received %q, want %s", got, subs)
	}
	for i, channel := range []string{"b", "h:1"} {
		if want := `{"push":{"channel":"a","pub":{"data":"` + channel + `"}}}`; got[1+i] != want {
			t.Errorf("received %s, want %s", got[1+i], want)
		}
	}
	n.bus = memory
	n.publish(context.Background(), "b", bus.Publication{Data: []byte("3")})
	c.Want(t, "afterwards", `{"push":{"channel":"b","pub":{"data":3}}}`)
	if len(n.held.list) != 0 {
		t.Errorf("%d sessions still hold messages", len(n.held.list))
	}
}

// A client whose server-side subscription fails is asked to come again.
func TestServerSideSubscriptionFails(t *testing.T) {
	n := newTestNode(t, withTokens)
	memory := n.bus
	n.bus = failingBus{memory}
	c := n.dial()
	c.frame([]byte(`{"id":1,"connect":{"token":"` + n.signed(jwt.MapClaims{"sub": "ann", "channels": []string{"a"}}) +
		`"}}`))
	c.WantClosed(t, "the bus does not subscribe", answer.DisconnectServerError)
	n.bus = memory
}

type failingBus struct{ bus.Bus }

func (failingBus) Subscribe(context.Context, bus.Topic, bus.Receiver) error {
	return errors.New("no route")
}

// A session that has been told nothing yet keeps at most Limits.Queue bytes.
func TestHeldMessagesAreBounded(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Limits.Queue = 1000 })
	c := n.connected("news")
	c.s.Hold()
	long := &Message{Payload: []byte(strings.Repeat("x", 600))}
	if c.s.Offer(long) != OfferTaken || c.s.Offer(long) != OfferFull {
		t.Error("the limit does not hold")
	}
	c.Want(t, "held")
	if got := c.s.ReleaseHeld([]byte("first")); got != OfferTaken {
		t.Errorf("letGo: %v", got)
	}
	c.Want(t, "let go", "first", string(long.Payload))
	c.s.Offer(&Message{Payload: []byte("x")})
	c.Want(t, "afterwards", "x")
	c.s.Hold()
	c.hangUp()
	if c.s.ReleaseHeld(nil) != OfferGone || len(n.held.list) != 0 {
		t.Error("an ended session still holds messages")
	}
}

// The server subscribes a connected client, and tells it.
func TestSubscribeByServer(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{Name: "p", SubscribeToken: true}))
	c := n.as(jwt.MapClaims{"sub": "ann"})
	if told, err := c.s.SubscribeByServer("p:1", SubscribeCommand{}); !told || err != nil {
		t.Fatal(told, err)
	}
	c.Want(t, "subscribed", `{"push":{"channel":"p:1","subscribe":{}}}`)
	if told, err := c.s.SubscribeByServer("p:1", SubscribeCommand{}); told || !errors.Is(err,
		answer.ErrAlreadySubscribed) {
		t.Error("subscribed twice:", told, err)
	}
	n.publish(context.Background(), "p:1", bus.Publication{Data: []byte("1")})
	c.Want(t, "publication", `{"push":{"channel":"p:1","pub":{"data":1}}}`)
	c.s.end("p:1", answer.UnsubscribedByServer)
	c.Want(t, "ended", `{"push":{"channel":"p:1","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}`)
}

// rpc and send reach the server's program.
func TestRPCAndMessage(t *testing.T) {
	var sent []string
	n := newTestNode(t, func(c *Config) {
		c.RPC = func(_ context.Context, c Caller, method string, data []byte) ([]byte, error) {
			switch method {
			case "echo":
				return append([]byte("[ "), append(data, " \n]"...)...), nil
			case "bytes":
				return []byte{0xff}, nil
			case "":
				return nil, answer.ErrMethodNotFound
			case "refuse":
				return nil, answer.Error{Code: 400, Message: "no, " + c.User}
			}
			return nil, errors.New("a secret")
		}
		c.Message = func(_ context.Context, _ Caller, data []byte) { sent = append(sent, string(data)) }
	})
	c := n.connected()
	c.asks(t, "rpc", `{"id":2,"rpc":{"method":"echo","data":{"a": 1}}}`, `{"id":2,"rpc":{"data":[{"a":1}]}}`)
	c.asks(t, "refused", `{"id":2,"rpc":{"method":"refuse"}}`, `{"id":2,"error":{"code":400,"message":"no, "}}`)
	c.asks(t, "no method", `{"id":2,"rpc":{}}`, `{"id":2,"error":{"code":104,"message":"method not found"}}`)
	internal := `{"id":2,"error":{"code":100,"message":"internal server error","temporary":true}}`
	c.asks(t, "failed", `{"id":2,"rpc":{"method":"?"}}`, internal)
	c.asks(t, "not JSON", `{"id":2,"rpc":{"method":"bytes"}}`, internal)
	c.frame([]byte(`{"send":{"data":{"b":2}}}`))
	c.WantOpen(t, "send")
	if len(sent) != 1 || sent[0] != `{"b":2}` {
		t.Errorf("sent %q", sent)
	}
}
