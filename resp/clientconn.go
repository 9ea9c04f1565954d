package resp

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
)

// A clientConn is one connection of a link, from the attempt to make it to its end. It is the
// handler of what the engine has of it.
type clientConn struct {
	link *link

	// Guarded by link.mu:
	nc     *myriad.Conn // nil: it is being made
	step   string       // what it waits for until it is ready
	ready  bool         // the setup is over: commands are sent; changed by the loop
	since  time.Time    // when it became ready
	proven bool         // a command has been answered
	sent   callQueue    // commands whose replies are to come, in order

	// Owned by the loop:
	setup [][]string // commands of the setup whose answers are to come; the first is sent
	heard bool       // something has come since the timer was set
	kept  *buf.Block // part of a value
	from  int        // where in kept it begins
	scan  valueScan  // of kept
	read  valueReader
	v     Value
}

var (
	_ myriad.Drainer = (*clientConn)(nil)
	_ myriad.Ender   = (*clientConn)(nil)
	_ myriad.Timed   = (*clientConn)(nil)
)

var (
	errGone   = errors.New("resp: the server has closed the connection")
	errSilent = fmt.Errorf("resp: the server has been silent for too long (Client.Silence): %w", os.ErrDeadlineExceeded)
	// errReplaced ends a connection whose last reply has come.
	errReplaced = errors.New("resp: the connection was replaced")
	// errUnasked is for a reply that no command waits for.
	errUnasked = &ProtocolError{"a reply to no command"}
	// errEarly is for a command that a server has refused, or answered, before all of it was sent.
	errEarly = &ProtocolError{"a reply to a command of which a part was sent"}
)

// drop gives the connection up. Any goroutine.
func (c *clientConn) drop(err error) {
	if nc := c.link.lost(c, err); nc != nil {
		nc.Abort(err)
	}
}

// Drained implements myriad.Drainer.
func (c *clientConn) Drained(*myriad.Conn) { c.link.goOn(c) }

// Ended is the server's FIN: no replies follow.
func (c *clientConn) Ended(nc *myriad.Conn) {
	c.Closed(nc, errGone)
	nc.Abort(errGone)
}

// Closed implements myriad.Handler.
func (c *clientConn) Closed(_ *myriad.Conn, err error) {
	if c.kept != nil {
		c.kept.Release()
		c.kept = nil
	}
	if err == nil {
		err = errGone
	}
	if !c.ready {
		err = fmt.Errorf("resp: %s: the connection has ended, it waited for %s: %w", c.link.c.addr, c.step, err)
	}
	c.link.lost(c, err)
}

// Expired looks whether the server has been silent while replies are to come.
func (c *clientConn) Expired(nc *myriad.Conn) {
	l := c.link
	l.mu.Lock()
	pending := c.sent.n > 0 || l.subs != nil && len(l.subs.asked) > 0
	l.mu.Unlock()
	if pending && !c.heard {
		c.drop(errSilent)
		return
	}
	c.heard = !pending // a command that is sent later has all of the time
	if !pending && l.subs != nil {
		c.ping()
	}
	nc.SetTimer(l.c.silence)
}

// ping asks a server that has nothing to say whether it is there.
func (c *clientConn) ping() {
	l := c.link
	l.mu.Lock()
	err := l.subs.ask(c, asked{word: "PING"})
	l.mu.Unlock()
	if err != nil {
		c.drop(err)
	}
}

// Received implements myriad.Handler.
func (c *clientConn) Received(nc *myriad.Conn, p []byte) {
	c.heard = true
	if c.kept != nil {
		c.kept, c.from = gather(c.kept, c.from, p)
		p = c.kept.Bytes()[c.from:]
		complete, err := c.scan.complete(p, &c.link.c.limits)
		if err != nil {
			c.drop(err)
			return
		}
		if !complete {
			return
		}
	}
	rest, err := c.values(nc, p)
	if err != nil {
		c.drop(err)
		return
	}
	c.keep(rest)
}

// keep keeps part of a value for the bytes that are to come.
func (c *clientConn) keep(rest []byte) {
	before := c.kept
	c.kept, c.from, c.scan = nil, 0, valueScan{}
	if len(rest) > 0 {
		c.kept = buf.From(rest)
		_, _ = c.scan.complete(rest, &c.link.c.limits) // it would have been found wrong before
	}
	if before != nil {
		before.Release()
	}
}

// values takes the complete values in p, and returns what is left.
func (c *clientConn) values(nc *myriad.Conn, p []byte) (rest []byte, err error) {
	for len(p) > 0 {
		c.read = valueReader{p: p, limits: &c.link.c.limits}
		if err := c.read.read(&c.v, 0); err == errShort {
			break
		} else if err != nil {
			return nil, err
		}
		p = p[c.read.pos:]
		if err := c.value(nc, c.v); err != nil {
			return nil, err
		}
	}
	c.read, c.v = valueReader{}, Value{}
	return p, nil
}

// value takes one reply or push message.
func (c *clientConn) value(nc *myriad.Conn, v Value) error {
	l := c.link
	if l.subs != nil && c.ready {
		if taken, err := l.subs.message(c, v); taken || err != nil {
			return err
		}
	}
	switch {
	case v.Kind == Push:
		if f := l.c.OnPush; f != nil {
			l.c.callBack(func() { f(v) })
		}
		return nil
	case !c.ready && len(c.setup) > 0:
		return c.setUp(nc, v)
	case l.subs != nil:
		return l.subs.reply(c, v)
	}
	return c.reply(v)
}

// isReadOnly reports whether a reply is that of a replica to a command that writes.
func isReadOnly(v Value) bool {
	const code = "READONLY "
	return v.Kind == Failure && len(v.Str) >= len(code) && string(v.Str[:len(code)]) == code
}

// reply ends the command that waits for its reply.
func (c *clientConn) reply(v Value) error {
	l := c.link
	l.mu.Lock()
	k := c.sent.pop()
	c.proven = true
	var err error
	if k == nil {
		err = errUnasked
		if first := l.waiting.first; l.conn == c && first != nil && first.queued > 0 {
			l.take(first)
			k, err = first, errEarly
		}
	}
	last := l.retired == c && c.sent.n == 0
	l.mu.Unlock()
	if k != nil {
		k.end(v, nil)
	}
	if last || isReadOnly(v) && l.retire(c) {
		return errReplaced
	}
	if l.c.waiting.Load() > 0 && l.open.Load() {
		l.relieveOthers() // there is room for one more
	}
	return err
}
