package resp

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/tlsloop"
)

// A link is a client's place for one connection. When that breaks, the link makes another one as
// soon as it is needed. Commands that cannot be written yet wait here.
type link struct {
	c    *Client
	subs *subscriptions // nil: the link is for commands
	// open says that a command can be written at once: the connection is ready, and no command
	// waits. It is changed under mu and read by any goroutine.
	open atomic.Bool

	mu sync.Mutex
	// Guarded by mu:
	conn    *clientConn // being made, or in use; nil: none
	retired *clientConn // replaced by conn; replies to what was sent on it are to come; nil: none
	making  bool        // a goroutine makes connections
	closed  bool        // Client.Close was called
	failed  int         // attempts since the last connection that was of use
	waiting callList    // commands that are not sent, in order
	wake    func()      // has the goroutine that makes connections look again; nil: there is none
}

// trySend sends a command, or keeps it until the connection has room; then it returns false. It
// fails with ErrPending if as many as most have no reply.
func (l *link) trySend(k *call, most int) (wrote bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return false, ErrClientClosed
	case l.pending() >= most:
		return false, ErrPending
	case l.waiting.n == 0 && l.conn != nil && l.conn.ready:
		if wrote, err = l.conn.write(k); wrote {
			l.conn.sent.push(k)
		}
		if wrote || err != nil {
			return wrote, err
		}
		l.open.Store(false)
	}
	l.wait(k)
	l.connect()
	return false, nil
}

// pending is how many commands of the link have no reply. It is called under mu.
func (l *link) pending() int {
	n := l.waiting.n
	for _, c := range [...]*clientConn{l.conn, l.retired} {
		if c != nil {
			n += c.sent.n
		}
	}
	return n
}

// wait keeps a command, unless its caller has left. It is called under mu.
func (l *link) wait(k *call) {
	l.waiting.push(k)
	l.c.waiting.Add(1)
	k.at.Store(l)
	if k.queued == 0 && k.state.Load() == callLeft {
		l.take(k)
	}
}

// leave drops a command whose caller has left, if nothing of it is sent; else the rest has to
// follow. Another link may have taken the command meanwhile: then nothing of it may be read here.
func (l *link) leave(k *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.at.Load() == l && k.queued == 0 {
		l.take(k)
	}
}

// take takes a call out of those that wait. It is called under mu.
func (l *link) take(k *call) {
	l.waiting.remove(k)
	l.c.waiting.Add(-1)
	k.at.Store(nil)
}

// takeAll takes all calls that wait. It is called under mu.
func (l *link) takeAll() (calls []*call) {
	for l.waiting.first != nil {
		calls = append(calls, l.waiting.first)
		l.take(l.waiting.first)
	}
	return calls
}

// flush writes commands that wait. It returns those that end, and why.
func (l *link) flush(c *clientConn) (bad []*call, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != c || !c.ready {
		return nil, nil
	}
	for k := l.waiting.first; k != nil; k = l.waiting.first {
		done, e := c.write(k)
		if !done && e == nil {
			return bad, err
		}
		if l.take(k); e != nil {
			bad, err = append(bad, k), e
			continue
		}
		c.sent.push(k)
	}
	l.open.Store(true)
	return bad, err
}

// goOn writes what waits, here and at other links.
func (l *link) goOn(c *clientConn) {
	endAll(l.flush(c))
	l.relieveOthers()
}

// relieveOthers writes what waits at other links.
func (l *link) relieveOthers() {
	if l.subs != nil || l.c.waiting.Load() == 0 {
		return
	}
	for _, other := range l.c.links {
		if l.open.Load() && other != l {
			l.relieve(other)
		}
	}
}

// relieve writes what waits at another link, as far as there is room and MaxPending permits.
func (l *link) relieve(other *link) {
	l.mu.Lock()
	room := l.c.maxPending - l.pending()
	l.mu.Unlock()
	for _, k := range other.yield(room) {
		wrote, err := l.trySend(k, math.MaxInt) // others may have taken the room
		l.c.sent(l, k, wrote, err)
	}
}

// yield takes up to most calls of which nothing is sent.
func (l *link) yield(most int) (calls []*call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.waiting.first
	if k != nil && k.queued > 0 {
		k = k.next
	}
	for k != nil && len(calls) < most {
		next := k.next
		l.take(k)
		calls = append(calls, k)
		k = next
	}
	return calls
}

// lost gives up a connection, if it is still the link's, and returns what there is of it in the
// engine. Commands that were sent on it end with ErrLost. Those that wait do so for the next
// connection; if this one was never ready, they end. Any goroutine.
func (l *link) lost(c *clientConn, err error) *myriad.Conn {
	lost, why := fmt.Errorf("%w: %w", ErrLost, err), err
	l.mu.Lock()
	if l.conn != c {
		var sent []*call
		var nc *myriad.Conn
		if l.retired == c {
			l.retired, sent, nc = nil, c.sent.takeAll(), c.nc
		}
		if l.closed {
			lost = ErrClientClosed
		}
		l.mu.Unlock()
		endAll(sent, lost)
		return nc
	}
	l.conn = nil
	l.open.Store(false)
	sent, unsent := c.sent.takeAll(), []*call(nil)
	switch first := l.waiting.first; {
	case l.closed:
		lost, why = ErrClientClosed, ErrClientClosed
		unsent = l.takeAll()
	case !c.ready:
		unsent = l.takeAll()
	case first != nil && first.queued > 0: // the server cannot have run a part of it
		first.queued = 0
		if first.state.Load() == callLeft {
			l.take(first)
		} else if first.cut++; first.cut == mostCuts {
			l.take(first)
			unsent = append(unsent, first)
			why = fmt.Errorf("resp: the command was not sent: %d connections have ended in the middle of it: %w",
				mostCuts, err)
		}
	}
	l.failed++
	if c.proven {
		l.failed = 0
	}
	if l.subs != nil {
		l.subs.lost(lost, why, c.ready)
	}
	if l.wanted() {
		l.connect()
	}
	wake, nc := l.wake, c.nc
	l.mu.Unlock()
	if wake != nil {
		wake()
	}
	endAll(sent, lost)
	endAll(unsent, why)
	l.c.relieve(l)
	return nc
}

// retire has c replaced by a new connection, unless that has happened shortly before. The replies
// to what was sent on c still come; it returns true if there are none. It is for a server that
// answers READONLY. After a failover that is a former primary, and the name of the address leads to
// another server by now.
func (l *link) retire(c *clientConn) (ends bool) {
	now := l.c.system.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.waiting.first
	if l.conn != c || l.retired != nil || now.Sub(c.since) < leastLife || first != nil && first.queued > 0 {
		return false
	}
	l.conn, l.retired = nil, c
	l.open.Store(false)
	l.connect()
	return c.sent.n == 0
}

// leastLife is how long a connection is used at least, although the server answers READONLY.
const leastLife = 10 * time.Second

// mostCuts is how many connections may end in the middle of one command before it ends as well. A
// server may refuse the command in this way.
const mostCuts = 2

// wanted reports whether there is to be a connection. It is called under mu.
func (l *link) wanted() bool {
	return !l.closed && (l.waiting.n > 0 || l.subs != nil && l.subs.all.Len() > 0)
}

// close ends the link.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	c, retired, wake := l.conn, l.retired, l.wake
	unsent := l.takeAll()
	if l.subs != nil {
		l.subs.end()
	}
	l.mu.Unlock()
	if wake != nil {
		wake()
	}
	endAll(unsent, ErrClientClosed)
	for _, c := range []*clientConn{c, retired} {
		if c != nil {
			c.drop(ErrClientClosed)
		}
	}
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

// pause waits as long as is due after failed attempts (Client.Backoff). It is called under mu,
// which it gives up meanwhile.
func (l *link) pause(p driver.Parker) {
	c := l.c
	if l.failed == 0 {
		return
	}
	d := min(leastBackoff<<min(l.failed-1, 10), mostBackoff)
	if c.Backoff != nil {
		d = c.Backoff(l.failed)
	}
	if c.Jitter != nil {
		d -= time.Duration(c.Jitter() * float64(d) / 2)
	}
	until := c.system.Now().Add(d)
	for left := d; left > 0 && !l.closed; left = until.Sub(c.system.Now()) {
		l.mu.Unlock()
		p.ParkFor(left)
		l.mu.Lock()
	}
}

// attempt makes one connection. It returns when that is ready, or lost, or has had its time. It is
// called under mu, which it gives up meanwhile.
func (l *link) attempt(p driver.Parker) {
	c := &clientConn{link: l, progress: progress{step: "the network"}}
	l.conn = c
	l.mu.Unlock()
	until := l.c.system.Now().Add(l.c.dialTimeout)
	h := myriad.Handler(c)
	if l.c.tls != nil {
		o := tlsloop.Options{Timeout: -1, Failed: func(*myriad.Conn, error, uint64) {}, Closed: c.Closed}
		h = o.Client(l.c.tls, c)
	}
	cancel := l.c.engine.DialFunc(context.Background(), l.c.network, l.c.addr, h, c.dialed)
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

// setup is the commands that a connection begins with.
func (l *link) setup() (all [][]string) {
	c := l.c
	switch {
	case c.Protocol == RESP2:
		all = c.authCommand()
	case c.Password != "":
		all = [][]string{{"HELLO", "3", "AUTH", cmp.Or(c.Username, "default"), c.Password}}
	default:
		all = [][]string{{"HELLO", "3"}}
	}
	if c.DB != 0 && l.subs == nil {
		all = append(all, []string{"SELECT", strconv.Itoa(c.DB)})
	}
	if c.Name != "" {
		all = append(all, []string{"CLIENT", "SETNAME", c.Name})
	}
	return all
}

// authCommand is AUTH, if there is a password. It is without a name if none is set, which servers
// before Redis 6 understand.
func (c *Client) authCommand() [][]string {
	switch {
	case c.Password == "":
		return nil
	case c.Username == "":
		return [][]string{{"AUTH", c.Password}}
	}
	return [][]string{{"AUTH", c.Username, c.Password}}
}
