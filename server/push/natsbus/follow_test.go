package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A follower that does not hear much of what the log publishes reads it from there: it delivers
// everything once and in order.
func TestFollowerFillsHoles(t *testing.T) {
	t.Parallel()
	s := alone(t)
	one := opened(t, Config{Server: s, Node: "one"})
	two := opened(t, Config{Server: s, Node: "two", Prefix: one.prefix})
	r := new(collector)
	if err := two.Subscribe(within(t), news, r); err != nil {
		t.Fatal(err)
	}
	f, err := two.logs.live(within(t), news)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.sub.SetPendingLimits(2, -1); err != nil { // what does not fit, the client library drops
		t.Fatal(err)
	}
	const rounds, each = 20, 20
	for range rounds {
		func() {
			f.work.Lock() // it does not get on: most of the round is dropped
			defer f.work.Unlock()
			for i := range each {
				publish(t, one, strconv.Itoa(i))
			}
		}()
	}
	eventually(t, "all are delivered", func() bool {
		n, _ := r.state()
		return n >= rounds*each
	})
	dropped, err := f.sub.Dropped()
	if err != nil || dropped == 0 {
		t.Errorf("%d messages were dropped on the way, %v: nothing is tested", dropped, err)
	}
	h, err := one.History(within(t), news, bus.Query{Limit: -1})
	if err != nil {
		t.Fatal(err)
	}
	if n, lost := r.state(); n != rounds*each || lost > 0 || n != len(h.Publications) {
		t.Errorf("%d of %d delivered, %d kept, lost %d times", n, rounds*each, len(h.Publications), lost)
	}
	for i, p := range h.Publications {
		if p.Position != r.list[i].Position || string(p.Data) != string(r.list[i].Data) {
			t.Fatalf("publication %d was delivered as %v, and is kept as %v", i, r.list[i], p)
		}
	}
}

// A follower that has missed what the log has dropped meanwhile says so.
func TestFollowerSaysWhatIsLost(t *testing.T) {
	t.Parallel()
	s := alone(t)
	one := opened(t, Config{Server: s, Node: "one"})
	two := opened(t, Config{Server: s, Node: "two", Prefix: one.prefix})
	small := bus.Topic{Name: "news", Keep: bus.Retention{Size: 1, Age: time.Hour}}
	r := new(collector)
	if err := two.Subscribe(within(t), small, r); err != nil {
		t.Fatal(err)
	}
	f, err := two.logs.live(within(t), small)
	if err != nil {
		t.Fatal(err)
	}
	f.work.Lock() // it does not get on
	if err := f.sub.SetPendingLimits(1, -1); err != nil {
		t.Fatal(err)
	}
	var last bus.Position
	for i := range 20 {
		if last, err = one.Publish(within(t), small, bus.Publication{Data: []byte(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
	}
	f.work.Unlock()
	eventually(t, "the receivers are told, and have the last one", func() bool {
		n, lost := r.state()
		return lost > 0 && n > 0 && r.list[n-1].Position == last
	})
}

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

// A node that steps down leads nothing, and publications go on without a gap.
func TestStepDown(t *testing.T) {
	t.Parallel()
	nodes := trio(t, cluster(t, 3))
	for _, b := range nodes {
		publish(t, b, "1") // each follows the log now
	}
	leader := func() string {
		i, err := nodes[0].logs.streams.info(within(t), nodes[0].State().Logs[0].Name)
		if err != nil || i.Cluster == nil || i.Config.Replicas < 3 {
			return ""
		}
		return i.Cluster.Leader
	}
	eventually(t, "the log has three replicas", func() bool { return leader() != "" })
	old := leader()
	for _, b := range nodes {
		if b.node == old {
			b.StepDown(within(t))
		}
	}
	publish(t, nodes[0], "2")
	eventually(t, "another node leads", func() bool { now := leader(); return now != "" && now != old })
}

// A leader may have been replaced without knowing it. Then it is not believed that a client's
// position is beyond the end of the log.
func TestLeaderThatHearsNone(t *testing.T) {
	const a, b = time.Second, 4 * time.Second // the log's replicas were heard so long ago
	for _, tt := range []struct {
		name    string
		leader  string
		active  []time.Duration
		offline bool
		sure    bool
		stores  bool
	}{
		{"all were heard", "n1", []time.Duration{a, a}, false, true, true},
		{"most were", "n1", []time.Duration{a, b}, false, true, true},
		{"none was lately", "n1", []time.Duration{b, b}, false, false, true},
		{"none was for long", "n1", []time.Duration{time.Minute, time.Minute}, false, false, false},
		{"they have gone", "n1", []time.Duration{a, a}, true, false, false},
		{"there is no leader", "", []time.Duration{a, a}, false, false, false},
	} {
		var i streamInfo
		text := fmt.Sprintf(`{"cluster":{"leader":%q,"replicas":
			[{"active":%d,"offline":%v},{"active":%d,"offline":%v}]}}`,
			tt.leader, tt.active[0], tt.offline, tt.active[1], tt.offline)
		if err := json.Unmarshal([]byte(text), &i); err != nil {
			t.Fatal(err)
		}
		if i.heardMost(leadsAlone) != tt.sure || i.hasQuorum() != tt.stores {
			t.Errorf("%s: sure %v, has a quorum %v", tt.name, i.heardMost(leadsAlone), i.hasQuorum())
		}
	}
	if one := (&streamInfo{}); !one.heardMost(leadsAlone) {
		t.Error("the only node does not believe itself")
	}
}
