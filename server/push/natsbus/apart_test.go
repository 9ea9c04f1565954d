package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// inPart returns a channel of that log.
func inPart(part, parts int) bus.Topic {
	for i := 0; ; i++ {
		t := bus.Topic{Name: "channel" + strconv.Itoa(i), Keep: news.Keep}
		if idOf(t, parts).part == part {
			return t
		}
	}
}

// While a log is late at a node, the node delivers from its other logs.
func TestLateLogHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := opened(t, Config{Server: alone(t), Parts: 2})
	late, other := inPart(0, 2), inPart(1, 2)
	r, behind := new(collector), new(collector)
	for topic, r := range map[bus.Topic]*collector{other: r, late: behind} {
		if err := b.Subscribe(within(t), topic, r); err != nil {
			t.Fatal(err)
		}
	}
	f, err := b.logs.live(within(t), late)
	if err != nil {
		t.Fatal(err)
	}
	f.work.Lock() // it does not get on
	goOn := sync.OnceFunc(f.work.Unlock)
	defer goOn()
	published := make(chan error, 1)
	go func() {
		_, err := b.Publish(within(t), late, bus.Publication{Data: []byte("late")})
		published <- err
	}()
	const n = 100
	for i := range n {
		if _, err := b.Publish(within(t), other, bus.Publication{Data: []byte(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := r.state(); got != n {
		t.Errorf("%d of %d were delivered", got, n)
	}
	if got, _ := behind.state(); got > 0 || len(published) > 0 {
		t.Errorf("the late log has delivered %d: nothing is tested", got)
	}
	goOn()
	if err := <-published; err != nil {
		t.Error(err)
	}
}

// While a log has no leader and publications wait for it, all nodes take and deliver those of other
// logs.
func TestLogWithoutLeaderHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	servers := cluster(t, 5)
	nodes, stuck, going, down := apart(t, servers)
	for _, i := range down {
		nodes[i].Close()
		servers[i].Shutdown()
	}
	var left []*Bus
	for i, b := range nodes {
		if !slices.Contains(down, i) {
			left = append(left, b)
		}
	}
	collectors := make([]*collector, len(left))
	for i, b := range left {
		collectors[i] = new(collector)
		if err := b.Subscribe(within(t), going, collectors[i]); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for i := range 100 {
		waiting.Go(func() {
			_, err := left[i%len(left)].Publish(ctx, stuck, bus.Publication{Data: []byte("stuck")})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a log without a leader has answered %v", err)
			}
		})
	}
	const n = 30
	for i := range n {
		_, err := left[i%len(left)].Publish(within(t), going, bus.Publication{Data: []byte(strconv.Itoa(i))})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range collectors {
		eventually(t, left[i].node+" has delivered all", func() bool { got, _ := r.state(); return got == n })
		h, err := left[i].History(within(t), going, bus.Query{Limit: -1})
		if err != nil || len(h.Publications) != n {
			t.Errorf("%s keeps %d, %v", left[i].node, len(h.Publications), err)
		}
	}
	cancel()
	waiting.Wait()
}

// apart opens buses with logs of three replicas. It returns channels of two logs, and two nodes
// without which the first log has no leader and the second one has.
func apart(t *testing.T, servers []*Server) (nodes []*Bus, stuck, going bus.Topic, down []int) {
	t.Helper()
	const parts = 4
	for deadline := time.Now().Add(hangs); time.Now().Before(deadline); {
		prefix := fmt.Sprintf("apart%d", prefixes.Add(1))
		nodes = nil
		for _, s := range servers {
			nodes = append(nodes, opened(t, Config{Server: s, Prefix: prefix, Synced: true, Parts: parts,
				Retentions: []bus.Retention{news.Keep}}))
		}
		members := make([][]int, parts)
		for part := range members {
			eventually(t, "three nodes store the log", func() bool {
				members[part] = storedBy(t, nodes, idOf(inPart(part, parts), parts))
				return len(members[part]) == 3
			})
		}
		for first, a := range members {
			for second, b := range members {
				for i := range a {
					two := []int{a[i], a[(i+1)%3]}
					if !slices.Contains(b, two[0]) || !slices.Contains(b, two[1]) {
						return nodes, inPart(first, parts), inPart(second, parts), two
					}
				}
			}
		}
		for _, b := range nodes {
			b.Close()
		}
	}
	t.Fatal("the same nodes store all logs")
	return nil, stuck, going, nil
}

// storedBy returns which nodes store a log, as far as they are up to date.
func storedBy(t *testing.T, nodes []*Bus, id logID) (list []int) {
	i, err := nodes[0].logs.streams.info(within(t), id.stream(nodes[0].prefix))
	if err != nil || i.Cluster == nil {
		return nil
	}
	names := []string{i.Cluster.Leader}
	for _, r := range i.Cluster.Replicas {
		if r.Current {
			names = append(names, r.Name)
		}
	}
	for at, b := range nodes {
		if slices.Contains(names, b.node) {
			list = append(list, at)
		}
	}
	return list
}

// When most nodes are down, the others still deliver publications of channels without a history.
func TestPassingWithoutQuorum(t *testing.T) {
	t.Parallel()
	servers := cluster(t, 4)
	nodes := trio(t, servers)
	from, to := nodes[0], nodes[1]
	r, passing := new(collector), bus.Topic{Name: "passing"}
	if err := to.Subscribe(within(t), passing, r); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a leader knows four nodes, and all know of it", func() bool {
		return slices.ContainsFunc(servers, func(s *Server) bool { return len(s.nats.JetStreamClusterPeers()) == 4 }) &&
			!slices.ContainsFunc(servers, func(s *Server) bool { return s.clusterSize() != 4 })
	})
	for i := 2; i < 4; i++ {
		nodes[i].Close()
		servers[i].Shutdown()
	}
	eventually(t, "the cluster has no leader", func() bool { return !anyLeads(servers[:2]) })
	for i := range 10 {
		if _, err := from.Publish(within(t), passing, bus.Publication{Data: []byte(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are passed on", func() bool { n, _ := r.state(); return n == 10 })
}

func anyLeads(servers []*Server) bool {
	return slices.ContainsFunc(servers, func(s *Server) bool { return s.nats.JetStreamIsLeader() })
}
