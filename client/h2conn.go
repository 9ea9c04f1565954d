package client

import (
	"crypto/tls"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/mux"
)

// silence is how long a server may leave a PING unanswered, and send nothing else, that was sent
// with the cancellation of a request. Then its connection gets no more calls: its host may be gone
// although its kernel acknowledges what is sent. longSilence is the same where no more PING may be
// sent: servers of gRPC take two, until they send an answer.
const silence, longSilence = time.Second, 3 * time.Second

// withoutStreams is how long a server may allow no stream on a connection that has none. Then the
// connection is left: RFC 9113 section 6.5.2 wants a limit of zero for short durations only. If
// the server is gone, calls that may have no other connection would wait for ever.
const withoutStreams = time.Second

// The timers of a muxConn beside those of mux.
const (
	idleTimer = mux.FirstTimer + iota
	waitTimer
	silentTimer
	barredTimer
)

// A muxConn is an HTTP/2 connection. It takes the calls that wait for its host from the pool, as
// many at a time as the server allows.
type muxConn struct {
	mux.Conn
	t    *Transport
	c    *myriad.Conn
	dial *dialing // that makes it, until it stands
	tls  *tls.ConnectionState

	pooled
	sharing

	busy      atomic.Int32 // calls that have a stream and are not over
	doubted   atomic.Bool  // a call was cancelled that waited for one
	suspected atomic.Bool  // another connection of its host was left because its server is silent

	// The loop's.
	carried   bool      // a call before
	idleSince time.Time // with IdleConnTimeout; zero: it carries a call
	closed    bool      // its dial was given up, or Gone was called
	watch     watch
	waits     streamWaits
}

// sharing is what the pool keeps of an HTTP/2 connection. It is guarded by pool.mu.
type sharing struct {
	free    int  // streams that can be opened now, as far as the pool knows
	proven  bool // the server has sent its SETTINGS
	leaving bool // it takes no more calls
}

// watch says what the loop of a connection looks for by timers.
type watch struct {
	listens bool // a sign of life: silentTimer is set
	unheard bool // and a request was given up
	barred  bool // room for a stream: barredTimer is set
}

// Opened begins HTTP/2, and takes calls that wait.
func (m *muxConn) Opened(c *myriad.Conn) {
	m.c = c
	m.Conn.Opened(c)
	d := m.dial
	m.dial = nil
	x, ok := d.standsMux(m)
	if !ok {
		m.closed = true
		c.Abort(errAbandoned)
		return
	}
	if x != nil {
		m.carry(x)
	}
	m.serve()
}

// Notified is called for calls that wait, for streams, and when the pool has let the connection go.
func (m *muxConn) Notified(c *myriad.Conn) {
	m.Conn.Notified(c)
	if m.doubted.Swap(false) {
		m.gaveUp()
	}
	if m.suspected.Swap(false) {
		m.listen()
	}
	m.serve()
	m.endIfUnused()
}

// serve opens a stream for each call that waits, as far as the server allows. It opens only one
// before the server's SETTINGS have come: a server may treat more than it allows as an error, if
// they follow our acknowledgement. And a server that sends none is not to get another call.
func (m *muxConn) serve() {
	m.watchLimit()
	if m.GoingAway() && !m.closed {
		m.t.pool.leave(m, true)
	}
	if !m.closed && m.Streams() == 0 && m.t.isStale(m.idleSince) {
		m.end()
	}
	for !m.closed {
		free := m.Free()
		if !m.Ready() && m.carried {
			free = 0
		}
		x, do := m.t.pool.pull(m, free)
		do.run()
		if x == nil {
			return
		}
		m.carry(x)
	}
}

// carry begins an attempt of x, which the pool has given to the connection.
func (m *muxConn) carry(x *Call) {
	st := &stream{m: m}
	st.Init(st)
	if err := m.Open(&st.Stream); err != nil {
		m.busy.Add(-1)
		x.refused(err)
		return
	}
	m.Timers.Set(m.c, idleTimer, 0)
	m.idleSince = time.Time{}
	st.begin(x)
	if m.t.DisableKeepAlives || x.closes {
		m.t.pool.leave(m, m.Streams() > 1) // it drains if others are on it
	}
}

// endIfUnused closes a connection that takes no more calls and has none.
func (m *muxConn) endIfUnused() {
	if !m.closed && m.Streams() == 0 && m.t.pool.hasLeft(m) {
		m.end()
	}
}

// end closes a connection without streams in order.
func (m *muxConn) end() {
	m.t.pool.leave(m, false)
	m.Shutdown()
	m.t.pool.closed(&m.pooled)
}

// Accept is never called at a client.
func (*muxConn) Accept(uint32) *mux.Stream { return nil }

// Settings may allow more streams, or fewer.
func (m *muxConn) Settings() {
	m.t.pool.settings(m)
	m.serve()
}

// watchLimit sets the timer after which a connection without streams is left that may have none.
func (m *muxConn) watchLimit() {
	barred := m.Barred() && !m.closed
	switch {
	case barred == m.watch.barred:
	case barred:
		m.Timers.Set(m.c, barredTimer, withoutStreams)
	default:
		m.Timers.Set(m.c, barredTimer, 0)
	}
	m.watch.barred = barred
}

// leaveIfBarred is called when the connection has had no stream, and might have none, for
// withoutStreams. Calls whose heads have waited for that are sent on another one.
func (m *muxConn) leaveIfBarred() {
	if !m.watch.barred || m.closed {
		return
	}
	m.t.pool.leave(m, false)
	m.Withdraw()
	m.endIfUnused()
}

// GoAway is the server's wish to have no more streams.
func (m *muxConn) GoAway(uint32, h2.Code) { m.t.pool.leave(m, true) }

// Idle is called when the last stream has ended.
func (m *muxConn) Idle() {
	switch {
	case m.closed:
	case m.t.DisableKeepAlives || m.t.pool.hasLeft(m):
		m.end()
	case m.t.IdleConnTimeout > 0:
		m.idleSince = m.t.sys.Now()
		m.Timers.Set(m.c, idleTimer, m.t.IdleConnTimeout)
	}
}

// gaveUp is called when a request was cancelled that waited for a stream, or of which nothing has
// come back: is the server still there?
func (m *muxConn) gaveUp() {
	m.watch.unheard = true
	m.listen()
}

// listen asks the server for a sign of life, and sets the timer after which it has to have come.
func (m *muxConn) listen() {
	if m.closed {
		return
	}
	m.Probe()
	if !m.watch.listens {
		m.watch.listens = true
		m.Timers.Set(m.c, silentTimer, silence)
	}
}

// leaveIfSilent is called silence after listen. If the connection is left, and a request was given
// up, the server's other connections are asked, too: they often end together. An idle connection
// on which no request was given up is left for an unanswered PING only, not for its silence.
func (m *muxConn) leaveIfSilent() {
	unanswered, silent := m.Unanswered(), m.Silent()
	if !m.watch.unheard {
		silent = 0
	}
	m.watch.listens = false
	switch {
	case m.closed:
		return
	case !m.Ready() || unanswered >= silence || silent >= longSilence:
		m.t.pool.leave(m, true)
		if m.watch.unheard {
			m.t.pool.suspect(m)
		}
		m.endIfUnused()
		return
	case unanswered > 0: // by a later PING
		m.Timers.Set(m.c, silentTimer, silence-unanswered)
	case silent > 0:
		m.Timers.Set(m.c, silentTimer, longSilence-silent)
	default:
		m.watch.unheard = false
		return
	}
	m.watch.listens = true
}

// wait begins a wait of st, in place of another one.
func (m *muxConn) wait(st *stream, what wait, d time.Duration) {
	st.endWait()
	st.waits = what
	if st.wait = m.waits.add(st, what, m.t.sys.Now().Add(d)); st.wait == m.waits[what-1][0] {
		m.setWaitTimer()
	}
}

// setWaitTimer sets the timer to the first wait of all kinds that ends.
func (m *muxConn) setWaitTimer() {
	switch first, now := m.waits.first(), m.t.sys.Now(); {
	case first.IsZero():
		m.Timers.Set(m.c, waitTimer, 0)
	case first.After(now):
		m.Timers.Set(m.c, waitTimer, first.Sub(now))
	default:
		m.Timers.Set(m.c, waitTimer, -1)
	}
}

// streamWaits are the waits of a connection's streams by kind, in order: each kind lasts the same
// time for all streams.
type streamWaits [4][]*streamWait

// A streamWait is one wait of a stream for something that has a limit of its own.
type streamWait struct {
	st    *stream // nil: the wait is over
	until time.Time
}

func (l *streamWaits) add(st *stream, what wait, until time.Time) *streamWait {
	w := &streamWait{st, until}
	l[what-1] = append(l[what-1], w)
	return w
}

// first is when the first wait ends; zero: there is none.
func (l *streamWaits) first() (first time.Time) {
	for i := range l {
		for len(l[i]) > 0 && l[i][0].st == nil {
			l[i][0] = nil
			l[i] = l[i][1:]
		}
		if len(l[i]) == 0 {
			l[i] = nil
		} else if until := l[i][0].until; first.IsZero() || until.Before(first) {
			first = until
		}
	}
	return first
}

// expire ends the waits that have lasted long enough.
func (l *streamWaits) expire(now time.Time) {
	for i := range l {
		for len(l[i]) > 0 && (l[i][0].st == nil || !l[i][0].until.After(now)) {
			w := l[i][0]
			l[i] = l[i][1:]
			if w.st != nil {
				w.st.expired()
			}
		}
	}
}

// Expired is the end of a timer.
func (m *muxConn) Expired(c *myriad.Conn) {
	for number := range m.Timers.Expired(c) {
		switch number {
		case idleTimer:
			if m.Streams() == 0 {
				m.end()
			}
		case waitTimer:
			m.waits.expire(m.t.sys.Now())
			m.setWaitTimer()
		case silentTimer:
			m.leaveIfSilent()
		case barredTimer:
			m.leaveIfBarred()
		default:
			m.TimerExpired(number)
		}
	}
}

// Stopping is the engine's shutdown.
func (m *muxConn) Stopping(c *myriad.Conn) {
	m.t.pool.leave(m, false)
	m.Conn.Stopping(c)
}

// Failed gives the connection's place back: its end may wait until the server has read why.
func (m *muxConn) Failed() {
	if !m.closed { // else its dial was given up
		m.t.pool.leave(m, false)
		m.t.pool.closed(&m.pooled)
	}
}

// Gone is the end of the connection.
func (m *muxConn) Gone(error) {
	m.Failed()
	m.closed = true
}

// endError is the error of a call whose stream ended with err, in the form of net/http.
func (m *muxConn) endError(err error, within bool) error {
	frame, ok := err.(*h2.Error)
	switch {
	case !ok:
		return closedError(m.c, err, within)
	case frame.Cause != nil: // such as io.ErrUnexpectedEOF, if the body is shorter than its Content-Length
		return frame.Cause
	}
	return streamError{frame}
}
