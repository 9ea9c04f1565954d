package clustertest

import (
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

// history is more than what a subscriber may miss here.
const history = "history-size=20000 history-age=1h recovery"

// begun starts a cluster under load, of a size that fits the run.
func begun(t *testing.T) ([]*node, *load) {
	t.Helper()
	nodes := cluster(t, history, "--ping-interval", "2s")
	l := start(t, nodes, soak.Size(t, 4, 1000), soak.Size(t, 60, 3000), soak.Size(t, 100, 2000))
	time.Sleep(soak.Size(t, time.Second, 5*time.Second)) // of load before the failure
	return nodes, l
}

// A node is killed, and starts again with its data. MYRIAD_CLUSTER_KILLS says how often.
func TestKilled(t *testing.T) {
	kills := soak.Size(t, 1, 3)
	if n, err := strconv.Atoi(os.Getenv("MYRIAD_CLUSTER_KILLS")); err == nil {
		kills = n
	}
	nodes, l := begun(t)
	for i := range kills {
		n := nodes[i%len(nodes)]
		n.signal(syscall.SIGKILL)
		n.wait()
		time.Sleep(soak.Size(t, time.Second, 5*time.Second))
		n.start()
		for _, n := range nodes {
			n.awaitHealthy()
		}
		time.Sleep(soak.Size(t, time.Second, 5*time.Second))
	}
	l.finish().wantAll(t)
}

// A node hangs, and goes on later.
func TestStopped(t *testing.T) {
	soak.Only(t)
	nodes, l := begun(t)
	nodes[1].signal(syscall.SIGSTOP)
	time.Sleep(15 * time.Second)
	nodes[1].signal(syscall.SIGCONT)
	for _, n := range nodes {
		n.awaitHealthy()
	}
	time.Sleep(time.Second)
	l.finish().wantAll(t)
}

// The nodes restart one after another, as for an upgrade.
func TestRollingRestart(t *testing.T) {
	soak.Only(t)
	nodes, l := begun(t)
	for _, n := range nodes {
		n.signal(syscall.SIGTERM)
		n.wait()
		n.start()
		for _, n := range nodes {
			n.awaitHealthy()
		}
	}
	l.finish().wantAll(t)
}

// All nodes are killed, and start again with their data.
func TestAllKilled(t *testing.T) {
	soak.Only(t)
	nodes, l := begun(t)
	for _, n := range nodes {
		n.signal(syscall.SIGKILL)
	}
	for _, n := range nodes {
		n.wait()
		n.start()
	}
	for _, n := range nodes {
		n.awaitHealthy()
	}
	time.Sleep(time.Second)
	l.finish().wantAll(t)
}

// All nodes are killed, and their disks have lost the second half of each file. No subscriber is
// told that it has recovered.
func TestAllCut(t *testing.T) {
	soak.Only(t)
	nodes, l := begun(t)
	for _, n := range nodes {
		n.signal(syscall.SIGKILL)
	}
	for _, n := range nodes {
		n.wait()
		n.cutFiles()
	}
	for _, n := range nodes {
		n.start()
	}
	for _, n := range nodes {
		n.awaitHealthy()
	}
	time.Sleep(time.Second)
	c := l.finish()
	if c.lost > 0 || c.twice > 0 || c.behind > 0 || c.gaps < len(l.all) {
		t.Errorf("lost without notice %d, twice %d, behind %d, told so %d of %d", c.lost, c.twice, c.behind, c.gaps,
			len(l.all))
	}
}
