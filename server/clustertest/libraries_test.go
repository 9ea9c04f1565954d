package clustertest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

// A library is a program that follows a channel with a client library, and prints each publication.
type library struct {
	name    string
	channel int
	numbers []int64 // as they came
	last    atomic.Int64
}

// Client libraries behind a load balancer follow channels while one node after another is killed.
// Each gets everything once and in order.
func TestLibrariesWhileNodesAreKilled(t *testing.T) {
	soak.Only(t)
	nodes := cluster(t, history, "--ping-interval", "2s")
	var public []string
	for _, n := range nodes {
		public = append(public, n.public)
	}
	at := newLink(t, "127.0.0.1:0", public...).listener.Addr().String()
	clients := "../clients/"
	followers := []struct{ name, program, script, address string }{
		{"centrifuge-js", "node", "follow.mjs", "ws://" + at + "/connection/websocket"},
		{"centrifuge-python", clients + ".venv/bin/python", "follow.py", "ws://" + at + "/connection/websocket"},
		{"EventSource", "node", "events.mjs", "http://" + at + "/events?channel=c2"},
	}
	l := start(t, nodes, len(followers), 0, 50)
	var all []*library
	for i, f := range followers {
		all = append(all, follow(t, f.name, i, f.program, clients+"testdata/"+f.script, f.address))
	}
	for _, one := range all {
		one.await(t, 1)
	}
	for _, n := range nodes {
		n.signal(syscall.SIGKILL)
		n.wait()
		for _, one := range all {
			one.await(t, l.published[one.channel].Load()+1) // published by the others
		}
		n.start()
		n.awaitHealthy()
	}
	l.finish()
	for _, one := range all {
		one.await(t, l.published[one.channel].Load())
	}
	for _, one := range all {
		one.check(t)
	}
}

// follow starts a library's program. What it misses if it is not installed is what server/clients
// needs, too.
func follow(t *testing.T, name string, channel int, program, script, address string) *library {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("MYRIAD_REQUIRE_CLIENTS") == "1" {
			t.Fatalf("%s: %v", name, err)
		}
		t.Skipf("%s: %v", name, err)
	}
	one := &library{name: name, channel: channel}
	command := exec.Command(program, script, address, "c"+strconv.Itoa(channel))
	command.Stderr = os.Stderr
	in, err1 := command.StdinPipe() // it ends when this is closed
	out, err2 := command.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { one.read(out) })
	t.Cleanup(func() {
		in.Close()
		_ = command.Process.Kill()
		reading.Wait()
		_ = command.Wait()
	})
	return one
}

func (one *library) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		text, isPublication := strings.CutPrefix(lines.Text(), "publication ")
		if n, err := strconv.ParseInt(text, 10, 64); isPublication && err == nil {
			one.numbers = append(one.numbers, n)
			one.last.Store(n)
		}
	}
}

func (one *library) await(t *testing.T, number int64) {
	t.Helper()
	for deadline := time.Now().Add(patience); one.last.Load() < number; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s has %d, and %d was published", one.name, one.last.Load(), number)
		}
	}
}

// check is for when nothing more comes.
func (one *library) check(t *testing.T) {
	t.Helper()
	t.Logf("%s got %d to %d", one.name, one.numbers[0], one.last.Load())
	for i, n := range one.numbers {
		if want := one.numbers[0] + int64(i); n != want {
			t.Errorf("%s got %d instead of %d", one.name, n, want)
			return
		}
	}
}
