package redis

import (
	"context"
	"fmt"
	"testing"

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
	s, err := push.New(push.Config{Doors: []push.Door{d}})
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
