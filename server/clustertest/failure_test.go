package clustertest

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
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
	nodes := cluster(t, history, "--ping-interval", pings)
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
		l.kill(i % len(nodes))
		time.Sleep(soak.Size(t, time.Second, 5*time.Second))
		nodes[i%len(nodes)].start()
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
	time.Sleep(silence * 3 / 2)
	nodes[1].signal(syscall.SIGCONT)
	for _, n := range nodes {
		n.awaitHealthy()
	}
	time.Sleep(time.Second)
	l.finish().wantAll(t)
}

// The nodes restart one after another, as for an upgrade, with 10,000 clients.
func TestRollingRestart(t *testing.T) {
	soak.Only(t)
	nodes := cluster(t, history, "--ping-interval", pings)
	l := start(t, nodes, 1000, 10_000, 500)
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

// A node is gone for good: it is removed, and one with another name and an empty folder takes its
// place.
func TestReplaced(t *testing.T) {
	soak.Only(t)
	nodes := cluster(t, history)
	gone := nodes[2]
	gone.signal(syscall.SIGKILL)
	gone.wait()
	at := "http://" + nodes[0].public
	if out, err := exec.Command(program, "cluster", "remove", "nobody", "--url", at).CombinedOutput(); err == nil {
		t.Errorf("a node that there is not was removed: %s", out)
	}
	out, err := exec.Command(program, "cluster", "remove", gone.name, "--url", at).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "removed "+gone.name) {
		t.Fatalf("%v: %s", err, out)
	}
	fresh := &node{t: t, name: "n4", public: gone.public, dir: t.TempDir()}
	for _, arg := range gone.args {
		switch arg {
		case gone.name:
			arg = fresh.name
		case gone.dir:
			arg = fresh.dir
		}
		fresh.args = append(fresh.args, arg)
	}
	nodes[2] = fresh
	fresh.start()
	for _, n := range nodes {
		n.awaitHealthy()
	}
	l := start(t, nodes, 30, 300, 200)
	time.Sleep(5 * time.Second)
	nodes[1].signal(syscall.SIGKILL) // which the new node has to make up for
	nodes[1].wait()
	nodes[1].start()
	nodes[1].awaitHealthy()
	time.Sleep(time.Second)
	l.finish().wantAll(t)
	if text := get(t, at+"/console/cluster"); !strings.Contains(text, `"`+fresh.name+`"`) {
		t.Errorf("the cluster is said to be %s", text)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, answer.Status, err)
	}
	return string(text)
}
