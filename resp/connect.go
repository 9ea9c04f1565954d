package resp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/tlsloop"
)

// This file is how a link gets a connection: the wait before an attempt, the attempt, and the
// commands that a connection begins with.

// prepare has a connection made, although no command waits for it.
func (l *link) prepare() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connect()
}

// connect has a goroutine make a connection, unless one does, or there is one. It is called under
// mu.
func (l *link) connect() {
	if !l.making && l.conn == nil && !l.closed {
		l.making = true
		l.c.system.Go(l.makeConns)
	}
}

// makeConns makes connections until there is one, or none is wanted any more.
func (l *link) makeConns() {
	p := l.c.system.NewParker()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake = p.Unpark
	for first := true; l.conn == nil && !l.closed && (first || l.wanted()); first = false {
		if l.pause(p); !l.closed {
			l.attempt(p)
		}
	}
	l.making, l.wake = false, nil
}

// pause waits as long as is due after failed attempts. It is called under mu, which it gives up
// meanwhile.
func (l *link) pause(p driver.Parker) {
	until := l.c.system.Now().Add(l.c.backoff(l.failed))
	for !l.closed {
		left := until.Sub(l.c.system.Now())
		if left <= 0 {
			return
		}
		l.mu.Unlock()
		p.ParkFor(left)
		l.mu.Lock()
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

// attempt makes one connection. It returns when that is ready, or lost, or has had its time. It is
// called under mu, which it gives up meanwhile.
func (l *link) attempt(p driver.Parker) {
	c := &clientConn{link: l, step: "the network"}
	l.conn = c
	l.mu.Unlock()
	until := l.c.system.Now().Add(l.c.dialTimeout)
	cancel := l.c.engine.DialFunc(context.Background(), l.c.network, l.c.addr, l.c.handler(c), c.dialed)
	l.mu.Lock()
	for l.conn == c && !c.ready {
		left, step := until.Sub(l.c.system.Now()), c.step
		l.mu.Unlock()
		if left > 0 {
			p.ParkFor(left)
		} else {
			c.drop(fmt.Errorf("resp: %s: no connection after %v (Client.DialTimeout), it waits for %s: %w", l.c.addr,
				l.c.dialTimeout, step, os.ErrDeadlineExceeded))
		}
		l.mu.Lock()
	}
	if l.conn != c {
		l.mu.Unlock()
		cancel()
		l.mu.Lock()
	}
}

// handler is what speaks first on a connection.
func (c *Client) handler(cc *clientConn) myriad.Handler {
	if c.tls == nil {
		return cc
	}
	o := tlsloop.Options{Timeout: -1, Failed: func(*myriad.Conn, error, uint64) {}, Closed: cc.Closed}
	return o.Client(c.tls, cc)
}

// dialed is called when the engine has a connection, before a handshake of TLS, or none.
func (c *clientConn) dialed(nc *myriad.Conn, err error) {
	switch {
	case err != nil:
		c.link.lost(c, fmt.Errorf("resp: %w", err))
	case c.link.c.tls != nil:
		c.reach(nc, "the handshake of TLS")
	}
}

// reach notes what the connection waits for, and what drop has to end. It returns false if the
// connection has been given up.
func (c *clientConn) reach(nc *myriad.Conn, step string) bool {
	l := c.link
	l.mu.Lock()
	ok := l.conn == c
	c.nc, c.step = nc, step
	l.mu.Unlock()
	if !ok {
		nc.Abort(nil)
	}
	return ok
}

// Opened implements myriad.Handler: it sends the first command of the setup. Those of users are
// sent behind all of it, so that none runs in another database or unauthenticated.
func (c *clientConn) Opened(nc *myriad.Conn) {
	nc.SetWriteLimit(clientWriteLimit)
	c.setup = c.link.c.setup(c.link.subs != nil)
	c.begin(nc)
}

// setup is the commands that a connection begins with.
func (c *Client) setup(forSubscriptions bool) (all [][]string) {
	if c.Protocol != RESP2 {
		all = append(all, c.helloCommand())
	} else if c.Password != "" {
		all = append(all, c.authCommand())
	}
	if c.DB != 0 && !forSubscriptions {
		all = append(all, []string{"SELECT", strconv.Itoa(c.DB)})
	}
	if c.Name != "" {
		all = append(all, []string{"CLIENT", "SETNAME", c.Name})
	}
	return all
}

// begin sends the next command of the setup, or makes the connection ready.
func (c *clientConn) begin(nc *myriad.Conn) {
	if len(c.setup) == 0 {
		c.becomeReady(nc)
		return
	}
	what := c.setup[0]
	if !c.reach(nc, "the answer to "+what[0]) {
		return
	}
	if _, err := nc.Write(AppendCommand(nil, what...)); err != nil {
		c.drop(fmt.Errorf("resp: %s was not sent: %w", what[0], err))
	}
}

// setUp takes the answer to a command of the setup.
func (c *clientConn) setUp(nc *myriad.Conn, v Value) error {
	what, err := c.setup[0][0], v.Err()
	c.setup = c.setup[1:]
	if refused, ok := errors.AsType[Error](err); ok && what == "HELLO" && refused.Code() == "ERR" {
		err = nil // a server that does not know it
		if c.link.c.Password != "" {
			c.setup = append([][]string{c.link.c.authCommand()}, c.setup...)
		}
	}
	if err != nil {
		return fmt.Errorf("resp: the server refuses %s: %w", what, err)
	}
	c.begin(nc)
	return nil
}

// becomeReady begins with the users' commands.
func (c *clientConn) becomeReady(nc *myriad.Conn) {
	l := c.link
	c.setup = nil
	l.mu.Lock()
	if l.conn != c {
		l.mu.Unlock()
		nc.Abort(nil)
		return
	}
	c.nc, c.ready, c.since = nc, true, l.c.system.Now()
	wake := l.wake
	var err error
	if l.subs != nil {
		err = l.subs.resume(c)
	}
	l.mu.Unlock()
	wake()
	if err != nil {
		c.drop(err)
		return
	}
	if d := l.c.silence; d > 0 {
		c.heard = true
		nc.SetTimer(d)
	}
	l.goOn(c)
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
