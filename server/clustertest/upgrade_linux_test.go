package clustertest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

const tookOver, goesOn = `a new process goes on" pid=(\d+)`, `no new process took over, and this one (goes on)`

// upgrade has the node start its program anew, and returns when the new process has taken its
// place.
func (n *node) upgrade() {
	n.t.Helper()
	from := n.logged()
	n.signal(syscall.SIGUSR2)
	pid, err := strconv.Atoi(n.await(from, regexp.MustCompile(tookOver)))
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

// killNext has the node start its program anew, and kills the new process when that starts NATS. It
// returns false if the new process was faster, and has taken the node's place.
func (n *node) killNext() bool {
	n.t.Helper()
	from := n.logged()
	n.signal(syscall.SIGUSR2)
	folder, err := os.Stat(filepath.Join(n.dir, "jetstream", "lock"))
	if err != nil {
		n.t.Fatal(err)
	}
	held := regexp.MustCompile(fmt.Sprintf(`FLOCK +ADVISORY +WRITE (\d+) \S+:%d `, folder.Sys().(*syscall.Stat_t).Ino))
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			n.t.Fatal(err)
		}
		found := held.FindSubmatch(locks)
		if found == nil {
			continue
		}
		next, err := strconv.Atoi(string(found[1]))
		if err != nil {
			n.t.Fatal(err)
		}
		if next == n.pid {
			continue
		}
		if err := syscall.Kill(next, syscall.SIGSTOP); err != nil {
			n.t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // for what it may have said to reach the old process's log
		n.mu.Lock()
		defer n.mu.Unlock()
		if regexp.MustCompile(tookOver).Match(n.log.Bytes()[from:]) {
			n.pid = next
			_ = syscall.Kill(next, syscall.SIGCONT)
			return false
		}
		if err := syscall.Kill(next, syscall.SIGKILL); err != nil {
			n.t.Fatal(err)
		}
		return true
	}
	n.t.Fatalf("%s starts no process:\n%s", n.name, n.tail())
	return false
}

// A new process that fails, or is killed, when it has started NATS costs a pause.
func TestUpgradeThatFails(t *testing.T) {
	nodes := formed(t, history, "--ping-interval", pings)
	one := nodes[0]
	config := filepath.Join(t.TempDir(), "myriad.toml")
	listen := func(address string) {
		t.Helper()
		if err := os.WriteFile(config, fmt.Appendf(nil, "listen = %q\n", address), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := slices.Index(one.args, "--listen")
	one.args[at], one.args[at+1] = "--config", config
	listen(one.public)
	begin(t, nodes)
	l := start(t, nodes, 4, 60, 100)
	listen(nodes[1].public) // which is taken: the new process finds out when it has everything else
	from := one.logged()
	one.signal(syscall.SIGUSR2)
	one.await(from, regexp.MustCompile(goesOn))
	one.awaitHealthy()
	listen(one.public)
	for {
		from = one.logged()
		if one.killNext() {
			one.await(from, regexp.MustCompile(goesOn))
			break
		}
		one.awaitHealthy()
	}
	one.awaitHealthy()
	one.upgrade()
	one.awaitHealthy()
	c := l.finish()
	c.wantAll(t)
	if c.reconnects > 0 {
		t.Errorf("clients have connected again %d times", c.reconnects)
	}
}

// The nodes are upgraded one right after another while all of them take publications. No client
// connects again, and none misses anything.
func TestRollingUpgrade(t *testing.T) {
	nodes := cluster(t, history, "--ping-interval", pings)
	l := start(t, nodes, soak.Size(t, 4, 100), soak.Size(t, 60, 3000), soak.Size(t, 100, 200))
	time.Sleep(soak.Size(t, time.Second, 5*time.Second)) // of load before the first one
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
