package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/bench/proc"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

// A target is a server process that listens.
type target struct {
	*child
	addr      string
	commands  bool // it understands those of package harness
	successor int  // the process that has taken the child's place; 0: none
}

// pid is that of the process that serves.
func (t *target) pid() int {
	if t.successor != 0 {
		return t.successor
	}
	return t.child.pid()
}

// end ends the process that serves, as child.end does.
func (t *target) end() {
	if pid := t.successor; pid != 0 { // its input is the child's, at whose end it ends
		impatience := time.AfterFunc(exitTimeout, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		defer impatience.Stop()
	}
	t.child.end()
}

// launch starts a server. before is a command that starts the one behind it, or nothing.
func launch(ctx context.Context, s server, before []string, program, app string) (*target, error) {
	return launchAt(ctx, "127.0.0.1:0", s, before, program, app)
}

// launchAt starts a server that listens there.
func launchAt(ctx context.Context, addr string, s server, before []string, program, app string) (*target, error) {
	command := slices.Concat(before, []string{program, "--app", app, "--listen", addr}, s.args)
	c, err := start(ctx, "the server", command[0], command[1:]...)
	if err != nil {
		return nil, err
	}
	line, err := c.line()
	if err != nil {
		c.end()
		return nil, err
	}
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "listening" {
		c.end()
		return nil, fmt.Errorf("the server's first line is %q, not \"listening ADDRESS\"", line)
	}
	return &target{child: c, addr: words[1], commands: len(words) > 2 && words[2] == "control"}, nil
}

// goroutines is how many there are, if the server can tell.
func (t *target) goroutines() (n float64, known bool, err error) {
	if !t.commands {
		return 0, false, nil
	}
	line, err := t.ask("goroutines")
	if err != nil {
		return 0, false, err
	}
	n, err = strconv.ParseFloat(line, 64)
	if err != nil {
		return 0, false, fmt.Errorf("the server says it has %q goroutines", line)
	}
	return n, true, nil
}

// work has the program do what it does by itself.
func (t *target) work(o harness.Order) (harness.Report, error) {
	order, err := json.Marshal(o)
	if err != nil {
		return harness.Report{}, err
	}
	line, err := t.ask("work " + string(order))
	if err != nil {
		return harness.Report{}, err
	}
	var r harness.Report
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		return r, fmt.Errorf("work is answered with %.200q", line)
	}
	return r, nil
}

// collect has the server's garbage collected, if it has any.
func (t *target) collect() error {
	if !t.commands {
		return nil
	}
	line, err := t.ask("gc")
	if err == nil && line != "done" {
		err = fmt.Errorf("the server answers a command to collect garbage with %q", line)
	}
	return err
}

func (t *target) status() (proc.Status, error) { return proc.ReadStatus(t.pid()) }
