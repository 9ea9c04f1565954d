package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/freeport"
	"github.com/urfave/cli/v3"
)

// clusterCommand has what is done to a cluster; serve runs its nodes.
func clusterCommand(stdout, stderr io.Writer) *cli.Command {
	dev := &cli.Command{
		Name:  "dev",
		Usage: "run a cluster on this machine, to try it",
		Description: "Options of serve may follow --, as in\n   myriad cluster dev -- --namespace " +
			"'name=chat history-size=100 recovery'",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "nodes", Value: 3, Usage: "`COUNT` of nodes"},
			&cli.IntFlag{Name: "port", Value: 8000,
				Usage: "`PORT` of the first node; the others have the next ones; 0: any"},
			&cli.StringFlag{Name: "data", Usage: "`FOLDER` of the nodes' data; without one, it is deleted at the end"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			d := development{nodes: c.Int("nodes"), port: c.Int("port"), data: c.String("data"), args: c.Args().Slice(),
				stdout: stdout, stderr: stderr}
			return d.run(ctx)
		},
	}
	remove := &cli.Command{
		Name:      "remove",
		Usage:     "remove a node that is gone for good",
		ArgsUsage: "NODE",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "url", Value: "http://127.0.0.1:8000",
				Usage: "`URL` of a node that is up: its console"},
			&cli.StringFlag{Name: "console-key", Usage: "`KEY` of the console",
				Sources: cli.EnvVars("MYRIAD_CONSOLE_KEY")},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return errors.New("name the node to remove: myriad cluster remove NODE")
			}
			node := c.Args().First()
			if err := removeNode(ctx, c.String("url"), c.String("console-key"), node); err != nil {
				return err
			}
			_, err := fmt.Fprintf(stdout, "removed %s: other nodes store its part from now on\n", node)
			return err
		},
	}
	return &cli.Command{Name: "cluster", Usage: "try a cluster, or remove a node of one",
		Commands: []*cli.Command{dev, remove}}
}

func removeNode(ctx context.Context, base, key, node string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		strings.TrimSuffix(base, "/")+"/cluster/remove?node="+url.QueryEscape(node), nil)
	if err != nil {
		return err
	}
	r.Header.Set("X-API-Key", key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", base, answer.Status, text)
	}
	return err
}

// A development is a cluster of processes on this machine.
type development struct {
	nodes, port    int
	data           string
	args           []string // for serve
	stdout, stderr io.Writer
}

// maxNodes is how many nodes cluster dev starts at most.
const maxNodes = 9

func (d *development) run(ctx context.Context) error {
	if d.nodes < 1 || d.nodes > maxNodes {
		return fmt.Errorf("--nodes %d: use 1 to %d", d.nodes, maxNodes)
	}
	if d.data == "" {
		dir, err := os.MkdirTemp("", "myriad-cluster")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		d.data = dir
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	free, release, err := freeport.Reserve(2 * d.nodes)
	if err != nil {
		return err
	}
	defer release()
	peers, public := free[:d.nodes], d.addresses(free[d.nodes:])
	// the nodes get the signal from this process, also if a terminal has sent it to all
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A node that has been upgraded is another process. Wait of the first one's command waits for
	// that one, too, because it has the pipe of the log.
	if err := adoptNodes(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { endNodes(d.data) })()
	var running sync.WaitGroup
	failed := make(chan error, d.nodes)
	for i := range d.nodes {
		name := fmt.Sprintf("n%d", i+1)
		args := []string{"serve", "--listen", public[i], "--node", name, "--data", filepath.Join(d.data, name),
			"--cluster-listen", peers[i]}
		for _, peer := range peers {
			args = append(args, "--cluster-route", peer)
		}
		command := exec.CommandContext(ctx, self, append(args, d.args...)...)
		command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
		command.Stdout, command.Stderr = d.stdout, &prefixed{to: d.stderr, name: name}
		if err := command.Start(); err != nil {
			cancel()
			running.Wait()
			return fmt.Errorf("starting %s: %w", name, err)
		}
		fmt.Fprintf(d.stdout, "%s: http://%s, process %d, data in %s\n", name, public[i], command.Process.Pid,
			filepath.Join(d.data, name))
		running.Go(func() {
			if err := command.Wait(); err != nil && ctx.Err() == nil {
				fmt.Fprintf(d.stdout, "%s has ended: %v\n", name, err)
			}
			failed <- nil
		})
	}
	fmt.Fprintln(d.stdout, "stop one of the processes to see what clients notice; Ctrl-C stops all")
	for range d.nodes { // until all have ended, as they do when ctx ends
		<-failed
	}
	running.Wait()
	return nil
}

// addresses returns where clients reach the nodes.
func (d *development) addresses(free []string) (list []string) {
	if d.port == 0 {
		return free
	}
	for i := range d.nodes {
		list = append(list, net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port+i)))
	}
	return list
}

// prefixed writes lines with the name of a node before each.
type prefixed struct {
	mu   sync.Mutex
	to   io.Writer
	name string
	rest []byte
}

func (p *prefixed) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, text...)
	for {
		line, rest, found := strings.Cut(string(p.rest), "\n")
		if !found {
			return len(text), nil
		}
		p.rest = []byte(rest)
		if _, err := fmt.Fprintf(p.to, "%s  %s\n", p.name, line); err != nil {
			return 0, err
		}
	}
}
