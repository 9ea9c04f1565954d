package clustertest

import (
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

// upgrade has the node start its program anew, and returns when the new process has taken its place.
func (n *node) upgrade() {
	n.t.Helper()
	from := n.logged()
	n.signal(syscall.SIGUSR2)
	pid, err := strconv.Atoi(n.await(from, regexp.MustCompile(`a new process goes on" pid=(\d+)`)))
	if err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pid = pid
}

// logged returns how long the log is.
func (n *node) logged() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Len()
}

// await waits until the log has the pattern after a place, and returns its first group.
func (n *node) await(from int, pattern *regexp.Regexp) string {
	n.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		n.mu.Lock()
		found := pattern.FindSubmatch(n.log.Bytes()[from:])
		n.mu.Unlock()
		if found != nil {
			return string(found[len(found)-1])
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("the log of %s has no %q:\n%s", n.name, pattern, n.tail())
		}
	}
}

// The nodes are upgraded one right after another while all of them take publications. No client
// connects again, and none misses anything.
func TestRollingUpgrade(t *testing.T) {
	nodes, l := begun(t)
	for range soak.Size(t, 1, 3) {
		for _, n := range nodes {
			n.upgrade()
		}
	}
	for _, n := range nodes {
		n.awaitHealthy()
	}
	c := l.finish()
	c.wantAll(t)
	if c.reconnects > 0 {
		t.Errorf("clients have connected again %d times", c.reconnects)
	}
}
