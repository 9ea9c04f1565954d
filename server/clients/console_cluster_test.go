package clients

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/myriad-go/myriad/internal/freeport"
)

// The console shows the nodes of a cluster with their clients, and its logs; also a node that is
// gone. The clients are those of all nodes.
func TestConsoleShowsCluster(t *testing.T) {
	peers := freeport.For(t, 2)
	var nodes []server
	for i, peer := range peers {
		nodes = append(nodes, serve(t, "--node", fmt.Sprintf("n%d", i+1), "--data", t.TempDir(),
			"--cluster-listen", peer, "--cluster-route", peers[0], "--cluster-route", peers[1],
			"--namespace", "history-size=10 recovery"))
	}
	b := startBrowser(t)
	b.look(1440, "light")
	b.open("http://" + nodes[0].addr + "/")
	const row = `[...document.querySelectorAll('#nodes tr')].find((r) => r.children[0].textContent === 'n%d')` +
		`?.children[%d].textContent`
	for i := range nodes {
		b.until(fmt.Sprintf(row, i+1, 1) + ` === 'ready'`)
		b.until(fmt.Sprintf(row, i+1, 2) + ` === 'all'`)
	}
	subscribers(t, nodes[1], 2, "news")
	b.until(fmt.Sprintf(row, 2, 3) + ` === '2'`)
	b.until(`document.getElementById('cluster-state').textContent === 'Nodes that answer: 2 · clients: 2'`)
	b.until(`document.querySelectorAll('#logs tr').length === 3`)
	for _, width := range []int{360, 1440} {
		b.look(width, "dark")
		var found []string
		if b.run(audit, &found); len(found) > 0 {
			t.Errorf("%d wide:\n%s", width, strings.Join(found, "\n"))
		}
		b.screenshot(fmt.Sprintf("console-cluster-%d", width))
	}
	if err := nodes[1].cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.until(`(` + fmt.Sprintf(row, 2, 1) + ` ?? '').startsWith('silent for ')`)
}
