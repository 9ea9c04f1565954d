package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/server/push"
)

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }

// newDoor returns the door of a server.
func newDoor(t *testing.T) *Door {
	t.Helper()
	d := New()
	s, err := push.New(push.Config{Doors: []hub.Door{d}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	return d
}

func TestPatternsAreBounded(t *testing.T) {
	d := newDoor(t)
	var all patterns
	for i := range maxPatterns {
		if !all.join(d, new(client), nil, []string{fmt.Sprint(i)}, func() {}) {
			t.Fatalf("pattern %d was refused", i)
		}
	}
	if all.join(d, new(client), nil, []string{"one more"}, func() {}) {
		t.Error("there are more patterns than may be")
	}
}

// A command that still runs when its client has left subscribes to nothing.
func TestPatternsOfEndedClient(t *testing.T) {
	d := newDoor(t)
	if !d.joinPatterns(&client{ended: true}, nil, &resp.Command{Args: [][]byte{nil, []byte("a*")}}) {
		t.Error("a pattern is refused")
	}
	if got := d.patterns.count(); got != 0 {
		t.Errorf("%d patterns left", got)
	}
}

// A server without the door has no listener for it.
func TestListenerNeedsTheDoor(t *testing.T) {
	s, err := push.New(push.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown(context.Background())
	defer func() {
		if recover() == nil {
			t.Error("Listener did not panic")
		}
	}()
	Listener(s, nil)
}

// A hook that is asked about a client of Redis knows its transport and protocol.
func TestHooksKnowTheTransport(t *testing.T) {
	asked := make(chan hub.Caller, 2)
	pusher, err := push.New(push.Config{
		Doors: []hub.Door{New()}, Namespaces: []policy.Namespace{{SubscribeHook: true}},
		Hooks: hub.Hooks{
			Subscribe: func(_ context.Context, c hub.Caller, _ hub.SubscribeRequest) (hub.SubscribeAnswer, error) {
				asked <- c
				return hub.SubscribeAnswer{}, answer.ErrPermissionDenied
			},
		}})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := Listener(pusher, engine)
	listener, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	answers := bufio.NewReader(c)
	for _, command := range []string{"SUBSCRIBE", "SSUBSCRIBE"} {
		if _, err := io.WriteString(c, command+" news\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := answers.ReadString('\n')
		if err != nil || answer[0] != '-' {
			t.Errorf("%s: got %q, %v; want an error", command, answer, err)
		}
		if got := <-asked; got.Transport != "redis" || got.Protocol != "resp2" || got.Client == "" {
			t.Errorf("%s: the hook was asked about %+v", command, got)
		}
	}
	c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := errors.Join(s.Shutdown(ctx), pusher.Shutdown(ctx), engine.Shutdown(ctx)); err != nil {
		t.Error(err)
	}
}
