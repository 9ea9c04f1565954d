package client

import (
	"crypto/tls"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/mux"
)

// The timers of a muxConn beside those of mux.
const (
	idleTimer = mux.FirstTimer + iota
	waitTimer
)

// speaks are the protocols that Transport.Protocols allows, or its default.
func (t *Transport) speaks() http.Protocols {
	if t.Protocols != nil {
		return *t.Protocols
	}
	var p http.Protocols
	p.SetHTTP1(true)
	if t.TLSNextProto != nil {
		p.SetHTTP2(t.TLSNextProto["h2"] != nil)
		return p
	}
	p.SetHTTP2(t.ForceAttemptHTTP2 || t.TLSClientConfig == nil && t.dialer() == nil && t.tlsDialer() == nil)
	return p
}

// mayH2 reports whether connections of a key may speak HTTP/2. A proxy that takes requests itself
// is spoken to in HTTP/1.
func (t *Transport) mayH2(k hostKey) bool {
	p := t.speaks()
	switch {
	case k.onlyH1 || k.addr == "":
		return false
	case k.scheme == "https":
		return p.HTTP2()
	}
	return p.UnencryptedHTTP2() && !p.HTTP1()
}

// A muxConn is an HTTP/2 connection. It serves the calls that wait for its host, as many at a time
// as the server allows.
type muxConn struct {
	mux.Conn
	t    *Transport
	host *host
	dial *dialing
	tls  *tls.ConnectionState
	c    *myriad.Conn

	retire  atomic.Bool  // CloseIdleConnections was called, with Transport.mu
	busy    atomic.Int32 // calls that have a stream and are not over
	carried bool         // the loop's: a call before
	leaving bool         // the loop's: it takes no more calls
	closed  bool         // the loop's
	waits   []streamWait
}

// A streamWait is a point in time at which a stream has waited long enough. They are in order,
// because each kind of wait is always as long.
type streamWait struct {
	st    *stream
	until time.Time
}

// Opened begins HTTP/2, and takes the calls that wait.
func (m *muxConn) Opened(c *myriad.Conn) {
	m.c = c
	m.Conn.Opened(c)
	if !m.dial.standsMux(m) {
		m.closed = true
		c.Abort(nil)
		return
	}
	m.dial = nil
	m.serve()
}

// Notified is called for calls that wait, and for streams.
func (m *muxConn) Notified(c *myriad.Conn) {
	m.Conn.Notified(c)
	if m.retire.Swap(false) {
		m.leave()
		if m.Streams() == 0 { // else Idle follows
			m.Shutdown()
		}
	}
	m.serve()
}

// serve opens a stream for each call that waits, as far as the server allows. It opens only one
// before the server's SETTINGS have come: a server may treat more than it allows as an error, if
// they follow our acknowledgement.
func (m *muxConn) serve() {
	for !m.leaving && (m.Ready() || m.Streams() == 0) {
		m.t.mu.Lock()
		var x *Call
		if !m.retire.Load() {
			x = m.t.next(m.host)
		}
		if x != nil {
			m.busy.Add(1)
		}
		m.t.mu.Unlock()
		if x == nil {
			return
		}
		st := &stream{m: m}
		st.Init(st)
		err := m.Open(&st.Stream)
		if err == nil {
			m.Timers.Set(m.c, idleTimer, 0)
			st.begin(x)
			if m.t.DisableKeepAlives || wantsClose(x.req) {
				m.leave()
			}
			continue
		}
		m.t.mu.Lock()
		m.t.pushFront(m.host, x)
		m.busy.Add(-1)
		m.t.mu.Unlock()
		if x.isSettled() {
			m.t.dequeue(x)
		}
		if !errors.Is(err, mux.ErrStreams) {
			m.leave()
		}
		return
	}
}

// leave takes the connection from its host. Calls that wait get another one.
func (m *muxConn) leave() {
	if m.leaving {
		return
	}
	m.leaving = true
	m.t.mu.Lock()
	if m.host.mux == m {
		m.host.mux = nil
	}
	d := m.t.dialFor(m.host)
	m.t.mu.Unlock()
	d.start()
}

// Accept is never called at a client.
func (*muxConn) Accept(uint32) *mux.Stream { return nil }

// Settings may allow more streams.
func (m *muxConn) Settings() { m.serve() }

// GoAway is the server's wish to have no more streams.
func (m *muxConn) GoAway(uint32, h2.Code) { m.leave() }

// Idle is called when the last stream has ended.
func (m *muxConn) Idle() {
	switch {
	case m.closed:
	case m.leaving || m.t.DisableKeepAlives:
		m.leave()
		m.Shutdown()
	case m.t.IdleConnTimeout > 0:
		m.Timers.Set(m.c, idleTimer, m.t.IdleConnTimeout)
	}
}

// Expired is the end of a wait.
func (m *muxConn) Expired(c *myriad.Conn) {
	for number := range m.Timers.Expired(c) {
		switch number {
		case idleTimer:
			if m.Streams() == 0 {
				m.leave()
				m.Shutdown()
			}
		case waitTimer:
			m.expireStreams()
		default:
			m.TimerExpired(number)
		}
	}
}

func (m *muxConn) expireStreams() {
	now := m.t.sys.Now()
	for len(m.waits) > 0 {
		w := m.waits[0]
		if left := w.until.Sub(now); left > 0 && w.st.waiting() {
			m.Timers.Set(m.c, waitTimer, left)
			return
		}
		m.waits = m.waits[1:]
		w.st.expired(now)
	}
}

// Stopping is the engine's shutdown.
func (m *muxConn) Stopping(c *myriad.Conn) {
	m.leave()
	m.Conn.Stopping(c)
}

// Gone is the end of the connection.
func (m *muxConn) Gone(err error) {
	if m.closed {
		return // its dial was given up
	}
	m.closed = true
	m.leave()
	m.t.closed(m.host, false)
}
