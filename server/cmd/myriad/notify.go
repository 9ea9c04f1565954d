package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// A notifier sends the server's state to the service manager (sd_notify(3)): a datagram of lines
// NAME=VALUE to the socket in NOTIFY_SOCKET. A nil notifier sends nothing.
type notifier struct {
	conn *net.UnixConn

	mu     sync.Mutex
	silent bool // another process is the main one: see handOver
}

func newNotifier(environ func(string) string) (*notifier, error) {
	path := environ("NOTIFY_SOCKET")
	if path == "" {
		return nil, nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"}) // @ begins an abstract name
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET %q: %w: a unit with RestrictAddressFamilies must allow AF_UNIX", path,
			cause(err))
	}
	return &notifier{conn: conn}, nil
}

// say sends the state. It waits at most a second.
func (n *notifier) say(state string) error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.silent {
		return nil
	}
	return n.send(state)
}

// handOver makes a child of this process the service's main one. From then on the service manager
// listens to that one, so this one sends nothing more: its end is not the end of the service.
func (n *notifier) handOver(pid int) error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = true
	return n.send(fmt.Sprintf("MAINPID=%d", pid))
}

// send sends a datagram. The caller holds mu.
func (n *notifier) send(state string) error {
	_ = n.conn.SetWriteDeadline(time.Now().Add(time.Second)) // if it fails, Write fails too
	_, err := n.conn.Write([]byte(state))
	return err
}

func (n *notifier) close() error {
	if n == nil {
		return nil
	}
	return n.conn.Close()
}

// watchdogPeriod returns how often the service manager expects a keep-alive; 0: never
// (sd_watchdog_enabled(3)). It expects them of a process's successor, too.
func watchdogPeriod(environ func(string) string) (time.Duration, error) {
	text := environ("WATCHDOG_USEC")
	if pid := environ("WATCHDOG_PID"); text == "" || pid != "" && !self(environ).means(pid) {
		return 0, nil
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil || micros <= 0 {
		return 0, fmt.Errorf("WATCHDOG_USEC is %q: %w", text, errors.New("it must be a number of microseconds"))
	}
	return time.Duration(micros) * time.Microsecond, nil
}

// watch sends the service manager two keep-alives per period until ctx ends. While stuck returns
// true it sends none, so that the service manager restarts the server.
func (n *notifier) watch(ctx context.Context, period time.Duration, stuck func() bool) {
	if n == nil || period == 0 {
		return
	}
	ticker := time.NewTicker(period / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if !stuck() {
				_ = n.say("WATCHDOG=1") // a service manager that does not get it acts on that
			}
		}
	}
}
