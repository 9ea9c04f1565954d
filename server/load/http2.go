package load

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
	"github.com/myriad-go/myriad/internal/mux"
	"github.com/myriad-go/myriad/tlsloop"
)

var errNoHTTP2 = errors.New("the server has not chosen HTTP/2 in its TLS handshake")

// A muxRequest is the request of a plan for HTTP/2. All connections of a worker share it.
type muxRequest struct {
	config mux.Config
	head   []byte // fields as h2.AppendPair makes them
	body   []byte
	toHead bool // the method is HEAD: its responses have no body
	secure bool
}

// connectionFields are those that HTTP/2 forbids (RFC 9113 section 8.2.2).
var connectionFields = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade"}

func newMuxRequest(p Plan, u *url.URL) *muxRequest {
	r := &muxRequest{body: []byte(p.Body), toHead: p.Method == "HEAD", secure: secure(u)}
	r.config = mux.Config{Client: true, Outbox: max(64<<10, len(r.body)), Now: time.Now}
	r.config.Take(nil)
	authority := u.Host
	var fields []byte
	for _, line := range p.Header {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if strings.EqualFold(name, "Host") {
			authority = value
			continue
		}
		fields = h2.AppendPair(fields, strings.ToLower(name), value, false)
	}
	if len(r.body) > 0 {
		fields = h2.AppendPair(fields, "content-length", strconv.Itoa(len(r.body)), false)
	}
	for _, pseudo := range [][2]string{{":method", p.Method}, {":scheme", u.Scheme}, {":authority", authority},
		{":path", u.RequestURI()}} {
		r.head = h2.AppendPair(r.head, pseudo[0], pseudo[1], false)
	}
	r.head = append(r.head, fields...)
	return r
}

// A muxConn is an HTTP/2 connection. Each of its streams at a time is a link of the lane. Its
// methods run on the loop, but for send.
type muxConn struct {
	mux.Conn
	lane    *lane
	request *muxRequest
	dialer  dialer
	again   func(d dialer, taken bool) // the connection has ended
	links   []*muxLink

	nc      *myriad.Conn
	ready   bool // the server's SETTINGS are there, and the lane has the links
	leaving bool // it takes no more streams
	over    bool // it has ended
	// refused are links whose request the server has not processed. GOAWAY may follow, in what was
	// received at the same time.
	refused []*muxLink

	mu   sync.Mutex
	due  []*muxLink // that are to open a stream, in order
	kept []*muxLink // the loop's: those that the server's limit has made wait
}

// newMuxConn makes a connection with as many streams at a time as the plan says.
func newMuxConn(l *lane, r *muxRequest, d dialer, again func(d dialer, taken bool)) *muxConn {
	c := &muxConn{lane: l, request: r, dialer: d, again: again}
	for range l.plan.Streams {
		c.links = append(c.links, &muxLink{conn: c})
	}
	c.Init(&r.config, c)
	return c
}

// all is what the lane knows as the links of this connection.
func (c *muxConn) all() (list []link) {
	for _, k := range c.links {
		list = append(list, k)
	}
	return list
}

// Opened implements myriad.Handler. Over TLS the server must have chosen HTTP/2 by ALPN.
func (c *muxConn) Opened(nc *myriad.Conn) {
	c.nc = nc
	if c.request.secure {
		if s := tlsloop.SharedState(nc); s == nil || s.NegotiatedProtocol != "h2" {
			nc.Abort(errNoHTTP2)
			return
		}
	}
	c.Conn.Opened(nc)
}

// Received implements myriad.Handler.
func (c *muxConn) Received(nc *myriad.Conn, p []byte) {
	c.lane.received(len(p))
	c.Conn.Received(nc, p)
	for _, k := range c.refused {
		c.lane.replied(k, 1, 1, "stream reset: "+h2.RefusedStream.String(), c.leaving)
	}
	c.refused = c.refused[:0]
}

// Notified opens streams for links that send, and lets streams do what they have asked for.
func (c *muxConn) Notified(nc *myriad.Conn) {
	c.openStreams()
	c.Conn.Notified(nc)
}

// Closed implements myriad.Handler. What is under way has failed.
func (c *muxConn) Closed(nc *myriad.Conn, err error) {
	c.over = true
	c.Conn.Closed(nc, err)
	if !c.ready {
		c.lane.failed("connecting: " + reasonOf(err))
	}
	c.lane.lost(err, c.all()...)
	c.again(c.dialer, c.ready)
}

// Accept is never called at a client.
func (*muxConn) Accept(uint32) *mux.Stream { return nil }

// Settings is called when the server has said how many streams it allows. The first time it makes
// the connection ready: a server may treat more streams than it allows as an error.
func (c *muxConn) Settings() {
	if !c.ready {
		c.ready = true
		c.dialer.dialing().opened()
		c.lane.opened(c.all()...)
		return
	}
	c.openStreams()
}

// GoAway is the server's wish to have no more streams. Those that it has accepted end first; other
// connections make the requests that it has not (RFC 9113 section 6.8).
func (c *muxConn) GoAway(uint32, h2.Code) {
	c.leaving = true
	c.lane.retire(c.all()...)
	for _, k := range c.refused {
		c.lane.retry(k)
	}
	c.refused = c.refused[:0]
	c.openStreams()
	if c.Streams() == 0 { // else Idle follows
		c.Shutdown()
	}
}

// Idle ends a connection that takes no more streams, after the last one.
func (c *muxConn) Idle() {
	if c.leaving {
		c.Shutdown()
	}
}

// Gone is the end of the connection, which Closed sees, too.
func (*muxConn) Gone(error) {}

// openStreams opens a stream for each link that is due, as far as the server allows.
func (c *muxConn) openStreams() {
	c.mu.Lock()
	c.kept = append(c.kept, c.due...)
	c.due = c.due[:0]
	c.mu.Unlock()
	for len(c.kept) > 0 && !c.over {
		err := c.kept[0].begin()
		if errors.Is(err, mux.ErrStreams) {
			return // the end of a stream, or Settings, calls again
		}
		if errors.Is(err, mux.ErrGoingAway) {
			c.lane.retry(c.kept[0])
		} else if err != nil {
			c.nc.Abort(err)
			return
		}
		c.kept = append(c.kept[:0], c.kept[1:]...)
	}
}

// A muxLink sends one request after the other, each on a stream of its own.
type muxLink struct {
	linkState
	conn *muxConn
}

func (k *muxLink) state() *linkState { return &k.linkState }

func (k *muxLink) abort(err error) { k.conn.nc.Abort(err) }

func (k *muxLink) send(time.Time) error {
	c := k.conn
	c.mu.Lock()
	c.due = append(c.due, k)
	c.mu.Unlock()
	c.nc.Notify()
	return nil
}

func (k *muxLink) begin() error {
	c := k.conn
	s := &muxStream{link: k}
	s.Init(s)
	if err := c.Open(&s.Stream); err != nil {
		return err
	}
	if c.request.toHead {
		s.WithoutBody()
	}
	return s.Put(c.request.head, c.request.body, true)
}

// A muxStream is one request and its response.
type muxStream struct {
	mux.Stream
	link   *muxLink
	status int
	taken  int // bytes of the body since the last Credit
}

// Head is an interim response, or the final one.
func (s *muxStream) Head(h *h2.Head, _ bool) h2.Code {
	if h.Status >= 200 {
		s.status = h.Status
	}
	return h2.NoError
}

// Data takes in a piece of the body.
func (s *muxStream) Data(p []byte, _ bool) { s.taken += len(p) }

// Trailers ends the body.
func (*muxStream) Trailers([]hpack.Field) {}

// Credit is what was taken in.
func (s *muxStream) Credit() int {
	n := s.taken
	s.taken = 0
	return n
}

// Room is never called: the outbox is large enough for the request.
func (*muxStream) Room() {}

// Ended counts the reply, or why there is none.
func (s *muxStream) Ended(code h2.Code, err error) {
	s.Release()
	c := s.link.conn
	if c.over {
		return // Closed counts it
	}
	refused, reason := int64(0), ""
	switch {
	case code == h2.RefusedStream:
		c.refused = append(c.refused, s.link)
		return
	case err != nil || s.status == 0:
		refused, reason = 1, fmt.Sprintf("stream reset: %v", code)
	case s.status > 399:
		refused, reason = 1, "status "+strconv.Itoa(s.status)
	}
	c.lane.replied(s.link, 1, refused, reason, c.leaving)
	if !c.leaving {
		c.openStreams()
	}
}
