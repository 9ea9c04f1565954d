package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// exitTimeout is how long a child may take to end when its input has.
const exitTimeout = 3 * time.Second

// A child is a process that is spoken to by lines on its standard input and output. It ends with
// the context that it was started under, at the latest.
type child struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *tail
	ended  func() error // waits for the process, once
}

func start(ctx context.Context, name, path string, args ...string) (*child, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	c := &child{name: name, cmd: cmd, stderr: &tail{}}
	cmd.Stderr = c.stderr
	cmd.WaitDelay = exitTimeout
	var err1, err2 error
	var out io.ReadCloser
	c.in, err1 = cmd.StdinPipe()
	out, err2 = cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	c.ended = sync.OnceValue(cmd.Wait)
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// line is the next line of output. If there is none it says why, as far as the child has told.
func (c *child) line() (string, error) {
	line, err := c.out.ReadString('\n')
	if err != nil {
		return "", c.silent(err)
	}
	return strings.TrimSpace(line), nil
}

func (c *child) silent(err error) error {
	_ = c.in.Close()
	if errors.Is(err, io.EOF) {
		err = c.ended()
	}
	return fmt.Errorf("%s ended: %w %s", c.name, err, c.stderr)
}

// ask sends a line and reads one.
func (c *child) ask(line string) (string, error) {
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		return "", c.silent(io.EOF)
	}
	return c.line()
}

// send sends a value as JSON, receive receives one.
func (c *child) send(v any) error {
	if err := json.NewEncoder(c.in).Encode(v); err != nil {
		return c.silent(io.EOF)
	}
	return nil
}

func (c *child) receive(v any) error {
	line, err := c.line()
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(line), v)
}

// end lets the process end by itself, and kills it, by its pid, if it does not.
func (c *child) end() {
	_ = c.in.Close()
	impatience := time.AfterFunc(exitTimeout, func() { _ = c.cmd.Process.Kill() })
	defer impatience.Stop()
	_ = c.ended()
}

// A tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 600

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(string(t.text)), " ")
}
