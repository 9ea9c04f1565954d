package resp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/resp/wire"
)

// A clientConn is one connection of a link, from the attempt to make it to its end. It is the
// handler of what the engine has of it.
type clientConn struct {
	link     *link
	progress // guarded by link.mu
	input    // owned by the loop
}

// A progress is how far a clientConn has come.
type progress struct {
	nc     *myriad.Conn // nil: it is being made
	step   string       // what it waits for until it is ready
	ready  bool         // the setup is over: commands are sent; changed by the loop
	since  time.Time    // when it became ready
	proven bool         // a command has been answered
	sent   callList     // commands whose replies are to come, in order
}

// An input is what a clientConn reads.
type input struct {
	setup [][]string     // commands of the setup whose answers are to come; the first is sent
	heard bool           // something has come since the timer was set
	kept  *buf.Block     // part of a value
	from  int            // where in kept it begins
	scan  wire.ValueScan // of kept
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
	errUnasked = &ProtocolError{Reason: "a reply to no command"}
	// errEarly is for a command that a server has refused, or answered, before all of it was sent.
	errEarly = &ProtocolError{Reason: "a reply to a command of which a part was sent"}
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
	c.heard = !pending             // a command that is sent later has all of the time
	if !pending && l.subs != nil { // a server that has nothing to say is asked whether it is there
		l.mu.Lock()
		err := l.subs.ask(c, asked{word: "PING"})
		l.mu.Unlock()
		if err != nil {
			c.drop(err)
		}
	}
	nc.SetTimer(l.c.silence)
}

// Received implements myriad.Handler: it takes the complete values, and keeps what is left.
func (c *clientConn) Received(nc *myriad.Conn, p []byte) {
	c.heard = true
	limits := c.link.c.Limits
	if c.kept != nil {
		c.kept, c.from = gather(c.kept, c.from, p)
		p = c.kept.Bytes()[c.from:]
		complete, err := c.scan.Complete(p, limits)
		if err != nil {
			c.drop(err)
		}
		if err != nil || !complete {
			return
		}
	}
	for len(p) > 0 {
		n, v, err := wire.ParseValue(p, limits)
		if n == 0 && err == nil {
			break
		}
		if p = p[n:]; err == nil {
			err = c.value(nc, v)
		}
		if err != nil {
			c.drop(err)
			return
		}
	}
	before := c.kept
	c.kept, c.from, c.scan = nil, 0, wire.ValueScan{}
	if len(p) > 0 {
		c.kept = buf.From(p)
		_, _ = c.scan.Complete(p, limits) // it would have been found wrong before
	}
	if before != nil {
		before.Release()
	}
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
	case v.Kind == wire.Push:
		if f := l.c.OnPush; f != nil {
			l.c.callBack(func() { f(v) })
		}
		return nil
	case !c.ready && len(c.setup) > 0:
		return c.setUp(nc, v)
	case l.subs != nil:
		return l.subs.answer(c, "", v)
	}
	return c.reply(v)
}

// reply ends the command that waits for its reply.
func (c *clientConn) reply(v Value) error {
	l := c.link
	l.mu.Lock()
	k := c.sent.first
	c.proven = true
	var err error
	if k != nil {
		c.sent.remove(k)
	} else {
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
	if last || isReplica(v) && l.retire(c) {
		return errReplaced
	}
	if l.c.waiting.Load() > 0 && l.open.Load() {
		l.relieveOthers() // there is room for one more
	}
	return err
}

// isReplica reports whether a reply says that the server takes no writes. Before Redis 7 that
// stands inside of the error when a script has written.
func isReplica(v Value) bool {
	return v.Kind == wire.Failure && (bytes.HasPrefix(v.Str, []byte("READONLY ")) ||
		bytes.Contains(v.Str, []byte(" -READONLY ")))
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
	c.setup = c.link.setup()
	c.begin(nc)
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
	if _, err := nc.Write(wire.AppendCommand(nil, what...)); err != nil {
		c.drop(fmt.Errorf("resp: %s was not sent: %w", what[0], err))
	}
}

// setUp takes the answer to a command of the setup.
func (c *clientConn) setUp(nc *myriad.Conn, v Value) error {
	what, err := c.setup[0][0], v.Err()
	c.setup = c.setup[1:]
	if refused, ok := errors.AsType[Error](err); ok && what == "HELLO" && speaksRESP2(refused) {
		err = nil
		c.setup = append(c.link.c.authCommand(), c.setup...)
	}
	if err != nil {
		return fmt.Errorf("resp: the server refuses %s: %w", what, err)
	}
	c.begin(nc)
	return nil
}

// speaksRESP2 reports whether a server that has refused HELLO 3 does not know that command, or that
// version. A server that has no room says so before it reads anything.
func speaksRESP2(refused Error) bool {
	return refused.Code() == "NOPROTO" ||
		refused.Code() == "ERR" && !strings.HasPrefix(string(refused), "ERR max number of clients")
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

// write queues a command. done says that the connection has taken all of it: its reply is to come.
// After an error the caller ends the call. It is called under the link's mu.
func (c *clientConn) write(k *call) (done bool, err error) {
	for k.queued < len(k.request) {
		rest := k.request[k.queued:]
		n, err := c.nc.Write(rest[:min(len(rest), requestPiece)])
		switch {
		case err == nil:
			k.queued += n
		case errors.Is(err, myriad.ErrFull), errors.Is(err, myriad.ErrClosed): // Drained or Closed is to come
			return false, nil
		default:
			return false, fmt.Errorf("resp: the command was not sent: %w", err)
		}
	}
	if cap(k.request) > keptRequest {
		k.request = nil // the connection has a copy
	}
	return true, nil
}

// requestPiece is the most of a command that is written at once, because one Write has a limit.
const requestPiece = 256 << 10
