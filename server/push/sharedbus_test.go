package push_test

import (
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"

	"context"
	"errors"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/membus"
)

// Two servers share a bus, which neither of them has made: the first that shuts down leaves nothing
// on it, and the other one goes on. A server that has made its bus closes it.
func TestServersThatShareABus(t *testing.T) {
	counting := &pushtest.CountingBus{Bus: membus.New(membus.Config{Clock: pushtest.NewClock()})}
	config := func(node string) push.Config {
		return push.Config{Bus: counting, Node: node, Doors: servertest.Doors(mercure.Config{Subscriptions: true}),
			Namespaces: []push.Namespace{{HistorySize: 3, Recovery: true}}}
	}
	stays, goes := servertest.New(t, config("stays")), servertest.New(t, config("goes"))
	stream := stays.Events("channel=news")
	if w := stays.Do("GET", mercurePath+"?topic=a", ""); w.Code != 200 {
		t.Fatalf("Mercure: %d %s", w.Code, w.Body)
	}
	mine := counting.Subscribed.Load()
	gone := goes.Events("channel=news&channel=more")
	if w := goes.Do("GET", mercurePath+"?topic=a", ""); w.Code != 200 {
		t.Fatalf("Mercure: %d %s", w.Code, w.Body)
	}
	if list, err := stays.Nodes(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("nodes: %+v, %v", list, err)
	}
	if err := goes.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !gone.IsClosed() || stream.IsClosed() {
		t.Errorf("closed are %v and %v; want the first alone", gone.IsClosed(), stream.IsClosed())
	}
	if got := counting.Subscribed.Load(); got != mine {
		t.Errorf("%d receivers are subscribed, want %d", got, mine)
	}
	if list, err := stays.Nodes(t.Context()); err != nil || len(list) != 1 || list[0].Name != "stays" {
		t.Errorf("nodes: %+v, %v", list, err)
	}
	if w := stays.Do("GET", subscriptionsPath, ""); strings.Count(w.Body.String(), `"topic":"a"`) != 1 {
		t.Errorf("subscriptions: %d %s", w.Code, w.Body)
	}
	if err := goes.Publish(t.Context(), "news", []byte("1")); !errors.Is(err, push.ErrDraining) {
		t.Errorf("publishing by the server that has shut down: %v", err)
	}
	if err := stays.Publish(t.Context(), "news", []byte(`"on"`)); err != nil {
		t.Error(err)
	}
	if got := stream.Take(); !strings.HasSuffix(got, "data: \"on\"\n\n") {
		t.Errorf("received %q", got)
	}
	if err := goes.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown again: %v", err)
	}

	own := servertest.New(t, push.Config{})
	if err := own.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Config().Bus.Publish(t.Context(), bus.Topic{Name: "news"},
		push.Publication{}); err != bus.ErrClosed {
		t.Errorf("publishing to the own bus of a server that has shut down: %v", err)
	}
}

// New leaves a bus open that is not its own, also if it fails.
func TestNewThatFailsLeavesTheBus(t *testing.T) {
	shared := membus.New(membus.Config{Clock: pushtest.NewClock()})
	defer shared.Close()
	if _, err := push.New(push.Config{Bus: shared, Rates: push.Rates{UserCommands: push.Rate{Count: -1}}}); err == nil {
		t.Fatal("the rates were accepted")
	}
	if _, err := shared.Publish(context.Background(), bus.Topic{Name: "news"}, push.Publication{}); err != nil {
		t.Error(err)
	}
}
