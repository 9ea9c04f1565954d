package resp

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
)

// A link is one connection of a client, and what follows it when it breaks. Fields are guarded by
// mu, except those of the loop.
type link struct {
	c  *Client
	mu sync.Mutex
	nc *myriad.Conn // nil: there is none
	// ready says that the connection's setup is over: commands are sent.
	ready   bool
	ended   bool           // Close was called
	running bool           // a goroutine connects
	failed  int            // attempts since the last that succeeded
	sent    callQueue      // in order; their replies are to come
	waiting callQueue      // not sent
	subs    *subscriptions // of a link for subscriptions
	wake    func()         // ends an attempt, or the wait before it; nil: there is none
	ends    int            // how many connections have ended

	// the loop's
	kept  *buf.Block // part of a value
	from  int
	scan  valueScan
	heard bool // since the timer was set
	read  valueReader
	v     Value
}

func newLink(c *Client) *link { return &link{c: c} }

// A callQueue is calls in order, in a ring.
type callQueue struct {
	ring []*call
	head int
	n    int
}

func (q *callQueue) push(k *call) {
	if q.n == len(q.ring) {
		larger := make([]*call, max(16, 2*q.n))
		for i := range q.n {
			larger[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = larger, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = k
	q.n++
}

func (q *callQueue) pop() *call {
	if q.n == 0 {
		return nil
	}
	k := q.ring[q.head]
	q.ring[q.head] = nil
	q.head = (q.head + 1) % len(q.ring)
	q.n--
	return k
}

// take empties q into a list.
func (q *callQueue) take() []*call {
	all := make([]*call, 0, q.n)
	for q.n > 0 {
		all = append(all, q.pop())
	}
	return all
}

func endAll(calls []*call, err error) {
	for _, k := range calls {
		k.end(Value{}, err)
	}
}

// send sends a command, or keeps it until there is a connection with room.
func (l *link) send(k *call) {
	if err := l.trySend(k); err != nil {
		k.end(Value{}, err)
	}
}

func (l *link) trySend(k *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended:
		return ErrClientClosed
	case l.sent.n+l.waiting.n >= or(l.c.MaxPending, DefaultMaxPending):
		return ErrPending
	case l.ready && l.waiting.n == 0:
		return l.write(k)
	}
	l.waiting.push(k)
	l.connect()
	return nil
}

// write queues a command. It is called under mu. If it returns an error, the caller ends the call.
func (l *link) write(k *call) error {
	err := l.queue(k)
	switch {
	case err == nil:
		l.sent.push(k)
	case errors.Is(err, myriad.ErrFull), errors.Is(err, myriad.ErrClosed): // Drained or Closed is to come
		l.waiting.push(k)
	default:
		return fmt.Errorf("resp: the command was not sent: %w", err)
	}
	return nil
}

// queue queues what the connection has not taken of a command, in pieces, because one Write has a
// limit. It is called under mu. After an error the command stays the first of those that wait.
func (l *link) queue(k *call) error {
	for k.queued < len(k.request) {
		rest := k.request[k.queued:]
		n, err := l.nc.Write(rest[:min(len(rest), requestPiece)])
		if err != nil {
			return err
		}
		k.queued += n
	}
	return nil
}

// requestPiece is the most of a command that is written at once.
const requestPiece = 256 << 10

// Drained implements myriad.Drainer.
func (l *link) Drained(*myriad.Conn) { endAll(l.flush()) }

// flush sends commands that wait. It returns those that end, and why.
func (l *link) flush() (bad []*call, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.ready && l.waiting.n > 0 {
		k := l.waiting.ring[l.waiting.head]
		e := l.queue(k)
		switch {
		case e == nil:
			l.sent.push(l.waiting.pop())
		case errors.Is(e, myriad.ErrFull), errors.Is(e, myriad.ErrClosed):
			return bad, err
		default:
			bad, err = append(bad, l.waiting.pop()), fmt.Errorf("resp: the command was not sent: %w", e)
		}
	}
	return bad, err
}

// Opened implements myriad.Handler: it sends what the connection begins with.
func (l *link) Opened(nc *myriad.Conn) {
	nc.SetWriteLimit(clientWriteLimit)
	if d := l.c.silence(); d > 0 {
		l.heard = true
		nc.SetTimer(d)
	}
	l.mu.Lock()
	l.nc = nc
	ended := l.ended
	l.mu.Unlock()
	if ended {
		nc.Abort(ErrClientClosed)
		return
	}
	l.begin(nc)
}

func (c *Client) silence() time.Duration {
	if c.Silence == 0 {
		return DefaultSilence
	}
	return max(c.Silence, 0)
}

// Expired looks whether the server has been silent while replies are to come.
func (l *link) Expired(nc *myriad.Conn) {
	l.mu.Lock()
	pending := l.sent.n > 0
	l.mu.Unlock()
	if pending && !l.heard {
		nc.Abort(os.ErrDeadlineExceeded)
		return
	}
	l.heard = !pending // a command that is sent later has all of the time
	if !pending && l.subs != nil {
		l.ping(nc)
	}
	nc.SetTimer(l.c.silence())
}

// ping asks a server that has nothing to say whether it is there.
func (l *link) ping(nc *myriad.Conn) {
	k := l.c.newCall()
	k.done = func(Value, error) {}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := nc.Write([]byte("*1\r\n$4\r\nPING\r\n")); err == nil {
		l.sent.push(k)
	}
	l.heard = false
}

// Received implements myriad.Handler.
func (l *link) Received(nc *myriad.Conn, p []byte) {
	l.heard = true
	if l.kept != nil {
		l.kept, l.from = gather(l.kept, l.from, p)
		p = l.kept.Bytes()[l.from:]
		complete, err := l.scan.complete(p, &l.c.limits)
		if err != nil {
			nc.Abort(err)
			return
		}
		if !complete {
			return
		}
	}
	rest, err := l.values(p)
	if err != nil {
		nc.Abort(err)
		return
	}
	l.keep(rest)
}

// keep keeps part of a value for the bytes that are to come.
func (l *link) keep(rest []byte) {
	before := l.kept
	l.kept, l.from, l.scan = nil, 0, valueScan{}
	if len(rest) > 0 {
		l.kept = buf.From(rest)
		_, _ = l.scan.complete(rest, &l.c.limits) // it would have been found wrong before
	}
	if before != nil {
		before.Release()
	}
}

// values takes the complete values in p, and returns what is left.
func (l *link) values(p []byte) (rest []byte, err error) {
	for len(p) > 0 {
		l.read = valueReader{p: p, limits: &l.c.limits}
		if err := l.read.read(&l.v, 0); err == errShort {
			break
		} else if err != nil {
			return nil, err
		}
		p = p[l.read.pos:]
		if err := l.value(l.v); err != nil {
			return nil, err
		}
	}
	l.read, l.v = valueReader{}, Value{}
	return p, nil
}

// value takes one reply or push message.
func (l *link) value(v Value) error {
	if l.subs != nil && l.subs.message(v) {
		return nil
	}
	if v.Kind == Push {
		if f := l.c.OnPush; f != nil {
			l.c.callBack(func() { f(v) })
		}
		return nil
	}
	l.mu.Lock()
	k := l.sent.pop()
	l.mu.Unlock()
	if k == nil && l.subs != nil && v.Err() != nil {
		l.subs.refused(v.Err())
		return nil
	}
	if k == nil {
		return &ProtocolError{"a reply to no command"}
	}
	k.end(v, nil)
	return nil
}

// Ended is the server's FIN: no replies follow.
func (l *link) Ended(nc *myriad.Conn) { nc.Abort(errGone) }

var errGone = errors.New("resp: the server has closed the connection")

// Closed implements myriad.Handler.
func (l *link) Closed(_ *myriad.Conn, err error) {
	if l.kept != nil {
		l.kept.Release()
		l.kept = nil
	}
	l.scan = valueScan{}
	if err == nil {
		err = errGone
	}
	lost, unsent := fmt.Errorf("%w: %w", ErrLost, err), fmt.Errorf("resp: the command was not sent: %w", err)
	l.mu.Lock()
	calls := l.sent.take()
	var waiting []*call
	setUp := l.ready
	l.nc, l.ready = nil, false
	l.ends++
	if l.ended {
		lost, unsent = ErrClientClosed, ErrClientClosed
	}
	if !setUp {
		waiting = l.waiting.take()
		l.failed++
	} else if l.waiting.n > 0 {
		l.waiting.ring[l.waiting.head].queued = 0 // the server cannot have run part of it
	}
	if l.subs != nil {
		l.subs.lost()
	}
	if l.needed() {
		l.connect()
	}
	l.mu.Unlock()
	endAll(calls, lost)
	endAll(waiting, unsent)
}

// needed reports whether there is to be a connection. It is called under mu.
func (l *link) needed() bool { return l.waiting.n > 0 || l.subs != nil && l.subs.wanted() }

// close ends the link.
func (l *link) close() {
	l.mu.Lock()
	l.ended = true
	nc, wake := l.nc, l.wake
	calls := l.waiting.take()
	l.mu.Unlock()
	endAll(calls, ErrClientClosed)
	if wake != nil {
		wake()
	}
	if nc != nil {
		nc.Abort(ErrClientClosed)
	}
	if l.subs != nil {
		l.subs.end(ErrClientClosed)
	}
}
