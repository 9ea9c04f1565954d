package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	patience = 10 * time.Second       // for a server to come up, and for an answer
	warmUp   = 200 * time.Millisecond // before the clock starts
)

// measure runs one server as a child process under load.
func measure(ctx context.Context, name string, s settings) (sample, error) {
	program, err := os.Executable()
	if err != nil {
		return sample{}, err
	}
	child := exec.CommandContext(ctx, program)
	child.Env = append(os.Environ(), serveVariable+"="+name)
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		return sample{}, err
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		return sample{}, err
	}
	if err := child.Start(); err != nil {
		return sample{}, err
	}
	one, err := load(ctx, stdout, child.Process.Pid, s)
	return one, errors.Join(err, stdin.Close(), child.Wait())
}

func load(ctx context.Context, stdout io.Reader, pid int, s settings) (sample, error) {
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return sample{}, fmt.Errorf("the server has not said where it listens: %w", err)
	}
	conns, err := dial(strings.TrimSpace(addr), s.connections)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	if err != nil {
		return sample{}, err
	}
	return window(ctx, conns, pid, s.duration)
}

func dial(addr string, n int) (conns []net.Conn, err error) {
	for range n {
		c, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			return conns, err
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// window keeps every connection busy and takes the figures of a stretch in the middle.
func window(ctx context.Context, conns []net.Conn, pid int, d time.Duration) (sample, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var answers atomic.Int64
	var clients sync.WaitGroup
	failures := make(chan error, len(conns))
	for _, c := range conns {
		clients.Go(func() {
			if err := ask(ctx, c, &answers); err != nil {
				failures <- err
				stop()
			}
		})
	}
	before, err1 := after(ctx, warmUp, pid, &answers)
	end, err2 := after(ctx, d, pid, &answers)
	stop()
	clients.Wait()
	close(failures)
	one := sample{end.requests - before.requests, end.cpu - before.cpu}
	err := errors.Join(<-failures, err1, err2)
	if err == nil && one.requests == 0 {
		err = errors.New("no request was answered in that time: give it longer")
	}
	return one, err
}

// after waits, and then says how far the server is.
func after(ctx context.Context, d time.Duration, pid int, answers *atomic.Int64) (sample, error) {
	select {
	case <-ctx.Done():
		return sample{}, ctx.Err()
	case <-time.After(d):
	}
	cpu, err := cpuTime(pid)
	return sample{int(answers.Load()), cpu}, err
}

var request = []byte("GET /plaintext HTTP/1.1\r\nHost: localhost\r\n\r\n")

// ask sends one request after the other until ctx ends, and checks every answer.
func ask(ctx context.Context, c net.Conn, answers *atomic.Int64) error {
	r := bufio.NewReader(c)
	for ctx.Err() == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write(request); err != nil {
			return err
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || string(body) != answer {
			return fmt.Errorf("the answer is %s with body %q: %w", res.Status, body, err)
		}
		answers.Add(1)
	}
	return nil
}
