package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/freeport"
)

// starting is how long a cluster may take to be complete.
const starting = time.Minute

// A cluster is three nodes. All its processes end with this one.
type cluster struct {
	nodes   []*node
	settled func() error // nil: the cluster is ready when its nodes are
}

type node struct {
	public  string
	path    string
	args    []string
	command *exec.Cmd
	said    bytes.Buffer
}

// startCluster returns when all nodes are ready.
func startCluster(r rules) (*cluster, error) {
	dir, err := os.MkdirTemp("", "bench-cluster")
	if err != nil {
		return nil, err
	}
	free, _, err := freeport.Reserve(7) // until this process ends
	if err != nil {
		return nil, err
	}
	c := new(cluster)
	if *with == "" {
		err = c.plan(free[:3], free[3:6], dir, r)
	} else {
		err = c.planCentrifugo(free[:3], free[6], dir, r)
	}
	if err != nil {
		return nil, err
	}
	for _, n := range c.nodes {
		if err := n.start(); err != nil {
			return nil, err
		}
	}
	return c, c.await()
}

// await waits until the nodes are ready.
func (c *cluster) await() error {
	for _, n := range c.nodes {
		if err := n.until("/health", func([]byte) bool { return true }); err != nil {
			return err
		}
	}
	if c.settled == nil {
		return nil
	}
	return c.settled()
}

// plan makes the nodes of a cluster of package push: this program.
func (c *cluster) plan(public, peers []string, dir string, r rules) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for i := range public {
		name := fmt.Sprintf("n%d", i+1)
		n := &node{public: public[i], path: self, args: []string{"node", "--listen", public[i], "--name", name,
			"--peer", peers[i], "--peers", strings.Join(peers, ","), "--data", filepath.Join(dir, name)}}
		if *lazy {
			n.args = append(n.args, "--lazy")
		}
		if r.kept {
			n.args = append(n.args, "--kept")
		}
		if r.recovers {
			n.args = append(n.args, "--recover")
		}
		c.nodes = append(c.nodes, n)
	}
	c.settled = c.replicated
	return nil
}

// replicated waits until three nodes store each log.
func (c *cluster) replicated() error {
	return c.nodes[0].until("/console/cluster", func(text []byte) bool {
		var state struct {
			Nodes []struct{}
			Logs  []struct{ Replicas, Current int }
		}
		if json.Unmarshal(text, &state) != nil || len(state.Nodes) < len(c.nodes) {
			return false
		}
		for _, l := range state.Logs {
			if l.Replicas < len(c.nodes) || l.Current < len(c.nodes) {
				return false
			}
		}
		return true
	})
}

func (n *node) start() error {
	n.command = exec.Command(n.path, n.args...)
	n.command.Stderr = &n.said
	n.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return n.command.Start()
}

// kill ends the node at once, and returns when it has ended.
func (n *node) kill() error {
	if err := n.command.Process.Kill(); err != nil {
		return err
	}
	var ended *exec.ExitError
	if err := n.command.Wait(); !errors.As(err, &ended) {
		return fmt.Errorf("a node that was killed: %w", err)
	}
	return nil
}

var client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// until waits for an answer 200 whose body is right.
func (n *node) until(path string, right func(body []byte) bool) error {
	for end := time.Now().Add(starting); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		answer, err := client.Get("http://" + n.public + path)
		if err != nil {
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err == nil && answer.StatusCode == http.StatusOK && right(body) {
			return nil
		}
	}
	return fmt.Errorf("a node is not ready in %v: %s", starting, tail(n.said.String()))
}

func tail(text string) string { return text[max(0, len(text)-600):] }
