package clustertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/freeport"
	"github.com/myriad-go/myriad/internal/leaktest"
)

// program is the binary, built once.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "clustertest")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "myriad")
	build := exec.Command("go", "build", "-o", program, "../cmd/myriad")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir) // if the process ends by itself, the system removes it some day
	leaktest.Main(m)
}

// A node is one process of the cluster.
type node struct {
	t      *testing.T
	name   string
	public string // its address for clients
	args   []string
	dir    string
	mu     sync.Mutex
	pid    int           // of the first process, or the last one that has taken another's place
	ended  chan struct{} // closed when all of them have ended
	log    bytes.Buffer
}

// cluster starts nodes that know each other, with one namespace.
func cluster(t *testing.T, namespace string, more ...string) []*node {
	t.Helper()
	nodes := formed(t, namespace, more...)
	begin(t, nodes)
	return nodes
}

// formed returns the nodes of a cluster before they are started.
func formed(t *testing.T, namespace string, more ...string) (nodes []*node) {
	t.Helper()
	all := freeport.For(t, 6)
	public, peers := all[:3], all[3:]
	for i := range peers {
		nodes = append(nodes, newNode(t, i, public[i], peers[i], peers, namespace, more...))
	}
	return nodes
}

func newNode(t *testing.T, i int, public, listen string, routes []string, namespace string, more ...string) *node {
	n := &node{t: t, name: fmt.Sprintf("n%d", i+1), public: public, dir: t.TempDir()}
	n.args = []string{"serve", "--listen", n.public, "--node", n.name, "--data", n.dir,
		"--cluster-listen", listen, "--namespace", namespace}
	for _, route := range routes {
		n.args = append(n.args, "--cluster-route", route)
	}
	n.args = append(n.args, more...)
	return n
}

// moveTo has the node store its data in another folder, before it is started.
func (n *node) moveTo(dir string) {
	n.args[slices.Index(n.args, n.dir)] = dir
	n.dir = dir
}

// begin starts nodes, waits until they are healthy, and ends them with the test.
func begin(t *testing.T, nodes []*node) {
	t.Helper()
	for _, n := range nodes {
		n.start()
	}
	t.Cleanup(func() {
		for _, n := range nodes {
			n.signal(syscall.SIGKILL)
			n.wait()
			if t.Failed() {
				t.Logf("%s:\n%s", n.name, n.tail())
			}
		}
	})
	for _, n := range nodes {
		n.awaitHealthy()
	}
}

func (n *node) start() {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	command, ended := exec.Command(program, n.args...), make(chan struct{})
	command.Stderr = (*lockedLog)(n) // which a process that takes its place has, too
	if err := command.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.pid, n.ended = command.Process.Pid, ended
	go func() {
		_ = command.Wait() // the signal that ended it is the test's own
		close(ended)
	}()
}

type lockedLog node

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(p)
}

func (n *node) tail() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := n.log.String()
	return text[max(0, len(text)-4000):]
}

func (n *node) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.ended: // another process may have the pid
	default:
		_ = syscall.Kill(n.pid, s) // it may end at this moment
	}
}

func (n *node) wait() { <-n.ended }

func (n *node) healthy() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.public+"/health", nil)
	if err != nil {
		return false
	}
	answer, err := client.Do(r)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	io.Copy(io.Discard, answer.Body)
	return answer.StatusCode == http.StatusOK
}

// patience bounds every wait; the machine may be busy.
const patience = 2 * time.Minute

func (n *node) awaitHealthy() {
	n.t.Helper()
	for deadline := time.Now().Add(patience); !n.healthy(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("%s is not healthy in time:\n%s", n.name, n.tail())
		}
	}
}

// awaitSick waits until the node says that it does not have what the others publish.
func (n *node) awaitSick() {
	n.t.Helper()
	for deadline := time.Now().Add(patience); n.healthy(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("%s says that it is healthy, and cannot be:\n%s", n.name, n.tail())
		}
	}
}

// cutFiles cuts the second half off each file in which the node stores messages, as a disk that has
// lost what was written last.
func (n *node) cutFiles() {
	n.t.Helper()
	err := filepath.WalkDir(n.dir, func(name string, d os.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
			return err
		case strings.HasSuffix(name, "index.db"):
			return os.Remove(name)
		case !strings.HasSuffix(name, ".blk"):
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.Truncate(name, info.Size()/2)
	})
	if err != nil {
		n.t.Fatal(err)
	}
}
