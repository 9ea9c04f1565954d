package resp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// connect has a goroutine make a connection, unless one does, or there is one. It is called under
// mu.
func (l *link) connect() {
	if l.running || l.nc != nil || l.ended {
		return
	}
	l.running = true
	l.c.system.Go(l.attempt)
}

// attempt waits as long as is due after failed attempts, and then makes one.
func (l *link) attempt() {
	l.mu.Lock()
	d := l.c.backoff(l.failed)
	if d > 0 && !l.ended {
		p := l.c.system.NewParker()
		l.wake = p.Unpark
		l.mu.Unlock()
		p.ParkFor(d)
		l.mu.Lock()
		l.wake = nil
	}
	ended, ends := l.ended, l.ends
	l.mu.Unlock()
	err := error(ErrClientClosed)
	if !ended {
		err = l.dial()
	}
	l.mu.Lock()
	l.running, l.wake = false, nil
	var calls []*call
	if err != nil {
		l.failed++
		calls = l.waiting.take()
	}
	if (err != nil || l.ends > ends) && l.needed() { // else the connection has been, or will be, opened
		l.connect()
	}
	l.mu.Unlock()
	endAll(calls, err)
	if err != nil && l.subs != nil {
		l.subs.failed(err)
	}
}

// backoff is how long to wait after so many failed attempts.
func (c *Client) backoff(failed int) time.Duration {
	if failed == 0 {
		return 0
	}
	d := min(leastBackoff<<min(failed-1, 10), mostBackoff)
	if c.Backoff != nil {
		d = c.Backoff(failed)
	}
	if c.Jitter != nil {
		d -= time.Duration(c.Jitter() * float64(d) / 2)
	}
	return d
}

// dial makes a connection. Its handler goes on with it.
func (l *link) dial() error {
	c := l.c
	d := c.DialTimeout
	if d == 0 {
		d = DefaultDialTimeout
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	l.mu.Lock()
	l.wake = func() { cancel(ErrClientClosed) }
	l.mu.Unlock()
	clock := c.system.NewParker()
	defer clock.Unpark()
	c.system.Go(func() { clock.ParkFor(d); cancel(os.ErrDeadlineExceeded) })
	network, addr := c.address()
	var err error
	if c.TLSConfig != nil {
		_, err = tlsloop.Options{Timeout: d}.Dial(ctx, c.engine, network, addr, c.TLSConfig, l)
	} else {
		_, err = c.engine.Dial(ctx, network, addr, l)
	}
	if err != nil {
		return fmt.Errorf("resp: %s: %w", addr, err)
	}
	return nil
}

// begin sends the commands that a connection begins with; the last reply makes it ready. Those of
// users are sent behind that, so that none runs in another database or unauthenticated.
func (l *link) begin(nc *myriad.Conn) {
	c := l.c
	var setup [][]string
	if c.Protocol != RESP2 {
		setup = append(setup, c.helloCommand())
	} else if c.Password != "" {
		setup = append(setup, c.authCommand())
	}
	if c.DB != 0 && l.subs == nil {
		setup = append(setup, []string{"SELECT", strconv.Itoa(c.DB)})
	}
	if c.Name != "" {
		setup = append(setup, []string{"CLIENT", "SETNAME", c.Name})
	}
	l.setUp(nc, setup)
}

// setUp sends the first of these commands, and the others behind its reply.
func (l *link) setUp(nc *myriad.Conn, setup [][]string) {
	if len(setup) == 0 {
		l.open()
		return
	}
	k := l.c.newCall()
	first, rest := setup[0], setup[1:]
	k.request = AppendCommand(k.request[:0], first...)
	k.done = func(v Value, err error) {
		if refused, ok := errors.AsType[Error](err); ok && first[0] == "HELLO" && refused.Code() == "ERR" {
			err = nil // a server that does not know it
			if l.c.Password != "" {
				rest = append([][]string{l.c.authCommand()}, rest...)
			}
		}
		if err != nil {
			l.refused(nc, first[0], err)
			return
		}
		l.setUp(nc, rest)
	}
	l.mu.Lock()
	_, err := nc.Write(k.request)
	if err == nil {
		l.sent.push(k)
	}
	l.mu.Unlock()
	if err != nil {
		k.end(Value{}, err)
	}
}

// refused ends a connection whose setup has failed, and the commands that wait for it. Those that
// come after the end of the connection wait for another one.
func (l *link) refused(nc *myriad.Conn, what string, err error) {
	if _, answered := errors.AsType[Error](err); answered {
		err = fmt.Errorf("resp: the server refuses %s: %w", what, err)
	} else {
		err = fmt.Errorf("resp: the server does not answer %s: %w", what, err)
	}
	l.mu.Lock()
	var calls []*call
	if l.nc == nc {
		calls = l.waiting.take()
	}
	l.mu.Unlock()
	endAll(calls, err)
	if l.subs != nil {
		l.subs.failed(err)
	}
	nc.Abort(err)
}

// open begins with the users' commands. On the loop.
func (l *link) open() {
	l.mu.Lock()
	l.ready, l.failed = true, 0
	l.mu.Unlock()
	if l.subs != nil {
		l.subs.resume(l)
	}
	endAll(l.flush())
}

func (c *Client) helloCommand() []string {
	hello := []string{"HELLO", "3"}
	if c.Password != "" {
		hello = append(hello, "AUTH", c.user(), c.Password)
	}
	return hello
}

func (c *Client) user() string {
	if c.Username == "" {
		return "default"
	}
	return c.Username
}

// authCommand is without a name if none is set, which servers before Redis 6 understand.
func (c *Client) authCommand() []string {
	if c.Username == "" {
		return []string{"AUTH", c.Password}
	}
	return []string{"AUTH", c.Username, c.Password}
}
