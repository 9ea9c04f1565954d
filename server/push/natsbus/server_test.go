package natsbus

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/freeport"
)

// NATS expects as many nodes as there are routes: an address that is given twice counts once.
func TestRoutesCountOnce(t *testing.T) {
	options, err := optionsOf(ServerConfig{Name: "n1", Dir: t.TempDir(), Listen: "127.0.0.1:1",
		Routes: []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:1", "127.0.0.1:2"}}, "1", "2")
	if err != nil {
		t.Fatal(err)
	}
	if len(options.Routes) != 3 {
		t.Errorf("the routes are %v", options.Routes)
	}
}

// Without an interval NATS syncs each publication before it confirms it, and with one that often.
func TestSyncAlwaysByDefault(t *testing.T) {
	for _, interval := range []time.Duration{0, 10 * time.Second} {
		options, err := optionsOf(ServerConfig{Name: "n1", Dir: t.TempDir(), SyncInterval: interval}, "1", "2")
		if err != nil {
			t.Fatal(err)
		}
		if options.SyncAlways != (interval == 0) || options.SyncInterval != interval {
			t.Errorf("%v: always %v, every %v", interval, options.SyncAlways, options.SyncInterval)
		}
	}
}

// A node is removed as soon as the cluster has a leader: the one that is gone may have been it.
func TestRemoveWaitsForALeader(t *testing.T) {
	t.Parallel()
	addresses := freeport.For(t, 3)
	start := func(i int) *Server {
		s, err := StartServer(ServerConfig{Name: fmt.Sprintf("n%d", i), Dir: t.TempDir(), Listen: addresses[i-1],
			Routes: addresses, Secret: "secret", SyncInterval: time.Minute, Logger: quiet(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Shutdown)
		return s
	}
	first := start(1)
	removed := make(chan error, 1)
	go func() {
		err := first.Remove(t.Context(), "nobody")
		for err != nil && strings.Contains(err.Error(), "has two nodes") { // the third one is not known yet
			err = first.Remove(t.Context(), "nobody")
		}
		removed <- err
	}()
	start(2)
	start(3)
	if err := <-removed; err == nil || !strings.Contains(err.Error(), "no node of the cluster") {
		t.Errorf("the answer is %v", err)
	}
}

// Neither node of two is removed: not one that is up, and not one that has just gone. JetStream
// would remove both.
func TestRemoveKeepsTwo(t *testing.T) {
	t.Parallel()
	addresses := freeport.For(t, 2)
	var servers []*Server
	for i, address := range addresses {
		s, err := StartServer(ServerConfig{Name: fmt.Sprintf("n%d", i+1), Dir: t.TempDir(), Listen: address,
			Routes: []string{addresses[1-i]}, Secret: "secret", SyncInterval: time.Minute, Logger: quiet(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Shutdown)
		servers = append(servers, s)
	}
	leader := -1
	eventually(t, "one of them leads", func() bool {
		leader = slices.IndexFunc(servers, func(s *Server) bool { return s.nats.JetStreamIsLeader() })
		return leader >= 0
	})
	left, gone := servers[leader], servers[1-leader]
	refused := func() {
		t.Helper()
		if err := left.Remove(t.Context(), gone.name); err == nil || !strings.Contains(err.Error(), "the same name") {
			t.Errorf("the answer is %v", err)
		}
	}
	refused()
	gone.Shutdown()
	refused()
	if n := left.clusterSize(); n != 2 {
		t.Errorf("the cluster has %d nodes", n)
	}
}
