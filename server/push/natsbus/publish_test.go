package natsbus

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// While the log cannot store, a publication is uncertain when its time is over: its leader may have
// passed it on.
func TestPublishWithoutQuorum(t *testing.T) {
	t.Parallel()
	servers := cluster(t, 3)
	nodes := trio(t, servers)
	at := publish(t, nodes[0], "1")
	leader := -1
	eventually(t, "three nodes store the log", func() bool {
		i, err := nodes[0].logs.streams.info(within(t), nodes[0].State().Logs[0].Name)
		if err != nil || i.Cluster == nil || len(i.Cluster.Replicas) != 2 {
			return false
		}
		leader = slices.IndexFunc(nodes, func(b *Bus) bool { return b.node == i.Cluster.Leader })
		return leader >= 0 && i.Cluster.Replicas[0].Current && i.Cluster.Replicas[1].Current
	})
	left := nodes[leader]
	if err := left.Subscribe(within(t), news, new(collector)); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		if i != leader {
			nodes[i].Close()
			servers[i].Shutdown()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := left.Publish(ctx, news, bus.Publication{Data: []byte("2")})
	if !errors.Is(err, bus.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Publish without a quorum: %v", err)
	}
	// what it has can still be read
	if h, err := left.History(within(t), news, bus.Query{Limit: -1}); err != nil || len(h.Publications) != 1 ||
		h.Publications[0].Position != at {
		t.Errorf("History without a quorum: %+v, %v", h, err)
	}
	eventually(t, "the state tells of it", func() bool { return left.State().Problem != "" })
}
