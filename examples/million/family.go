//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// A family is all processes of a run: the servers, and the load processes that have joined their
// group.
type family struct {
	progress io.Writer
	nodes    []*node
}

// A node is one `myriad serve`.
type node struct {
	command *exec.Cmd
	address string
	said    chan string   // its URL, once
	ended   chan struct{} // closed when the process has ended
	mu      sync.Mutex
	last    string // line of its log
}

// oneProcessor is set for all processes: there are many for each processor, and the threads of one
// would only take it from another's.
const oneProcessor = "GOMAXPROCS=1"

// Servers and load processes share the processors. Subscribers elsewhere would answer a ping at
// once. Here load processes would wait for a processor, and servers would disconnect their
// subscribers for that. So the servers have a lower priority. The load processes do not interrupt a
// server for each message, but take what has come together.
var (
	lower    = found("nice", "-n", "10")
	together = found("chrt", "--batch", "0")
)

// found is a command that starts another one, or nothing if this machine does not have it.
func found(command ...string) []string {
	if _, err := exec.LookPath(command[0]); err != nil {
		return nil
	}
	return command
}

// serving is the line in which a server says where it listens.
var serving = regexp.MustCompile(`msg="myriad: serving" url=(\S+)`)

// start starts the servers, and waits until all listen. Its goroutine must stay on its thread until
// end, because the kernel takes the end of that thread for the end of this process.
func (f *family) start(ctx context.Context, s settings, nats string) error {
	n := s.processes()
	fmt.Fprintf(f.progress, "starting %d servers\n", n)
	for i := range n {
		words := slices.Concat(lower, []string{s.program, "serve", "--listen", "127.0.0.1:0", "--nats", nats, "--node",
			"n" + strconv.Itoa(i), "--loops", "1", "--ping-interval", pingEvery(s.hold).String(), "--pong-timeout",
			pongWithin(s.hold).String()})
		c := exec.Command(words[0], words[1:]...)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: f.group(), Pdeathsig: syscall.SIGKILL}
		c.Env = append(os.Environ(), oneProcessor)
		one := &node{command: c, said: make(chan string, 1), ended: make(chan struct{})}
		log, err := c.StderrPipe()
		if err != nil {
			return err
		}
		if err := c.Start(); err != nil {
			return fmt.Errorf("starting server %d of %d: %w", i+1, n, err)
		}
		f.nodes = append(f.nodes, one)
		go one.follow(log)
	}
	for i, one := range f.nodes {
		select {
		case at := <-one.said:
			u, err := url.Parse(at)
			if err != nil {
				return err
			}
			one.address = u.Host
		case <-one.ended:
			return fmt.Errorf("server %d of %d has ended: %s", i+1, n, one.lastWords())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// pingEvery is the interval of the servers' pings, in whole seconds: each subscriber is pinged once
// while all are held.
func pingEvery(hold time.Duration) time.Duration {
	return max(time.Second, (hold - 3*settle).Truncate(time.Second))
}

// pongWithin is how long an answer to a ping may take. In the seconds of a publication to all, the
// answer is behind it in the queues of both processes.
func pongWithin(hold time.Duration) time.Duration {
	return max(time.Second/2, min(time.Minute, pingEvery(hold)/2))
}

// follow reads a server's log to its end, and waits for the process.
func (s *node) follow(log io.Reader) {
	defer close(s.ended)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		s.mu.Lock()
		s.last = lines.Text()
		s.mu.Unlock()
		if m := serving.FindStringSubmatch(lines.Text()); m != nil {
			s.said <- m[1]
		}
	}
	_ = s.command.Wait() // it was killed, or lastWords say why
}

func (s *node) lastWords() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// group is the number of the process group: that of the first server. 0: there is none yet.
func (f *family) group() int {
	if len(f.nodes) == 0 {
		return 0
	}
	return f.nodes[0].command.Process.Pid
}

func (f *family) addresses() (list []string) {
	for _, s := range f.nodes {
		list = append(list, s.address)
	}
	return list
}

// lost names a server that has ended, if there is one.
func (f *family) lost() error {
	for i, s := range f.nodes {
		select {
		case <-s.ended:
			return fmt.Errorf("server %d of %d has ended: %s", i+1, len(f.nodes), s.lastWords())
		default:
		}
	}
	return nil
}

// kill kills all processes of the group.
func (f *family) kill() {
	if g := f.group(); g != 0 {
		_ = syscall.Kill(-g, syscall.SIGKILL) // it may be empty
	}
}

// exitPatience is how long killed processes may take to close their connections.
const exitPatience = time.Minute

// end kills what is left, and waits until the group is empty. Load processes are not waited for
// here: their fleet does that.
func (f *family) end() error {
	f.kill()
	for _, s := range f.nodes {
		<-s.ended
	}
	g := f.group()
	for deadline := time.Now().Add(exitPatience); g != 0 && !errors.Is(syscall.Kill(-g, 0), syscall.ESRCH); {
		if time.Now().After(deadline) {
			return fmt.Errorf("processes of group %d are left", g)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}
