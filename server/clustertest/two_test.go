package clustertest

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/freeport"
	"github.com/myriad-go/myriad/internal/soak"
)

// pair starts two nodes, each of which names the other one, and forms a third one that names both.
func pair(t *testing.T) (nodes []*node, third *node) {
	t.Helper()
	all := freeport.For(t, 6)
	public, peers := all[:3], all[3:]
	for i := range 2 {
		nodes = append(nodes, newNode(t, i, public[i], peers[i], []string{peers[1-i]}, history))
	}
	begin(t, nodes)
	return nodes, newNode(t, 2, public[2], peers[2], peers[:2], history)
}

// One of two nodes stores each log. While it is down, the other node has no log, and later it has
// the same log again. Neither node can be removed.
func TestTwoNodes(t *testing.T) {
	nodes, _ := pair(t)
	epoch := published(t, nodes[0])
	for i, gone := range nodes {
		left := nodes[1-i]
		gone.signal(syscall.SIGKILL)
		gone.wait()
		wantKept(t, left, gone.name)
		if gone.logs() > 0 {
			left.awaitSick()
		} else if now := published(t, left); now != epoch {
			t.Errorf("without %s the epoch is %s, and was %s", gone.name, now, epoch)
		}
		gone.start()
		for _, n := range nodes {
			n.awaitHealthy()
		}
		if now := published(t, gone); now != epoch {
			t.Errorf("with %s again the epoch is %s, and was %s", gone.name, now, epoch)
		}
	}
}

// A node of two that has lost its disk starts again with its name and an empty folder. If it stored
// the logs, they begin new epochs.
func TestTwoNodesLoseDisk(t *testing.T) {
	soak.Only(t)
	nodes, _ := pair(t)
	for _, gone := range nodes {
		epoch, stored := published(t, nodes[0]), gone.logs()
		gone.signal(syscall.SIGKILL)
		gone.wait()
		if err := os.RemoveAll(gone.dir); err != nil {
			t.Fatal(err)
		}
		gone.start()
		for _, n := range nodes {
			n.awaitHealthy()
		}
		for _, n := range nodes {
			now := published(t, n)
			if stored == 0 && now != epoch || stored == 3 && now == epoch {
				t.Errorf("%s stored %d of 3 logs; the epoch is %s, and was %s", gone.name, stored, now, epoch)
			}
		}
	}
}

// When two nodes get a third one, all three store each log. Then one of them can be removed, but
// not another.
func TestTwoNodesGetThird(t *testing.T) {
	soak.Only(t)
	nodes, third := pair(t)
	epoch := published(t, nodes[0])
	begin(t, []*node{third})
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		text := get(t, "http://"+third.public+"/console/cluster")
		if strings.Count(text, `"replicas":3,"current":3`) == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not all nodes store all logs: %s", text)
		}
	}
	gone, left := nodes[1], nodes[0]
	gone.signal(syscall.SIGKILL)
	gone.wait()
	if out, err := remove(left, gone.name); err != nil || !strings.Contains(out, "removed "+gone.name) {
		t.Fatalf("%v: %s", err, out)
	}
	wantKept(t, left, third.name)
	for _, n := range []*node{left, third} {
		if now := published(t, n); now != epoch {
			t.Errorf("by %s the epoch is %s, and was %s", n.name, now, epoch)
		}
	}
}

// remove removes a node by another one.
func remove(by *node, name string) (out string, err error) {
	text, err := exec.Command(program, "cluster", "remove", name, "--url", "http://"+by.public).CombinedOutput()
	return string(text), err
}

// wantKept expects that a node is not removed because there are only two.
func wantKept(t *testing.T, by *node, name string) {
	t.Helper()
	if out, err := remove(by, name); err == nil || !strings.Contains(out, "none of two can be removed") {
		t.Errorf("removing %s of two nodes: %v, %s", name, err, out)
	}
}

// logs returns how many logs the node stores.
func (n *node) logs() int {
	list, err := filepath.Glob(filepath.Join(n.dir, "jetstream", "jetstream", "MYRIAD", "streams", "*"))
	if err != nil {
		n.t.Fatal(err)
	}
	return len(list)
}

// published publishes by a node, repeatedly until the publication is acknowledged, and returns the
// epoch of its channel.
func published(t *testing.T, n *node) (epoch string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		answer, err := client.Post("http://"+n.public+"/api/publish", "application/json",
			strings.NewReader(`{"channel":"news","data":1}`))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		_, rest, found := strings.Cut(string(text), `"epoch":"`)
		if epoch, _, _ = strings.Cut(rest, `"`); err == nil && answer.StatusCode == http.StatusOK && found {
			return epoch
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not take a publication: %s %s, %v", n.name, answer.Status, text, err)
		}
	}
}
