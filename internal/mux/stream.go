package mux

import (
	"slices"
	"sync"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/flow"
	"github.com/myriad-go/myriad/internal/h2"
)

// A Stream carries one request and its response. Init makes it ready for Accept or Open. It serves
// once. All of it is the loop's, but for box and for what asks guards.
type Stream struct {
	conn     *Conn
	owner    StreamOwner
	id       uint32 // 0 at a client until its head is written
	state    streamState
	place    placeState
	window   window
	unread   int32 // received, and not yet credited to the connection
	length   int64 // the peer's Content-Length, if there is one; else negative
	left     int64 // what the body still lacks of it; negative as well
	priority h2.Priority
	queued   *queue  // of output that the stream stands in
	next     *Stream // there
	box      flow.Outbox

	gotHead   bool // a client has the final head; a server the request
	tunnel    bool // each side ends by itself
	noBody    bool // a response without a body, whatever its Content-Length says
	connected bool // of a CONNECT: DATA alone may follow its head

	asked    asked   // guarded by asks.mu
	code     h2.Code // guarded by asks.mu; of askReset
	nextAsks *Stream // guarded by asks.mu
}

// A streamState is that of RFC 9113 section 5.1, and rises only.
//
//	state            | our END_STREAM | the peer's END_STREAM
//	open             | is to come     | is to come
//	halfClosedLocal  | has left       | is to come
//	halfClosedRemote | is to come     | has come
//	bothEnded        | has left       | has come, and the owner is being called with it
//	closed           | as above, or a reset by either side, or the connection's end
type streamState uint8

const (
	open streamState = iota
	halfClosedLocal
	halfClosedRemote
	bothEnded
	closed
)

// A placeState is whether a stream has a place among those of its connection.
//
//	state     | Ended was called | Release was called
//	unplaced  | no, nor begun    |
//	placed    | no               | no
//	abandoned | no               | yes
//	finished  | yes              | no
//	freed     | yes              | yes: it has no place any more
type placeState uint8

const (
	unplaced placeState = iota
	placed
	abandoned
	finished
	freed
)

// asked is a set of what H asks of the loop. With any of them the stream is in Conn.asks.
type asked uint8

const (
	askOutput  asked = 1 << iota // something is in the box
	askCredit                    // something has been consumed
	askReset                     // Cancel
	askRelease                   // Release
)

// Init gives a stream its owner. Before Accept returns it, or before Open.
func (s *Stream) Init(owner StreamOwner) {
	s.conn, s.owner, s.id, s.state, s.place, s.left = nil, owner, 0, open, unplaced, -1
	s.window, s.unread, s.asked, s.queued, s.next = window{}, 0, 0, nil, nil
	s.gotHead, s.tunnel, s.noBody, s.connected = false, false, false, false
}

// ID is the stream's number; at a client 0 until its head is on its way. L.
func (s *Stream) ID() uint32 { return s.id }

// Put queues copies of a head and of data, all or nothing: flow.ErrFull takes nothing, and Room
// tells when there is room. head is made by h2.AppendPair, with pseudo-fields first, or nil. last
// ends our side. H.
func (s *Stream) Put(head, p []byte, last bool) error {
	tell, err := s.box.Put(head, p, last)
	return s.added(tell, err)
}

// PutBlocks is Put for data in blocks, of which it consumes one reference each, also on error. H.
func (s *Stream) PutBlocks(last bool, blocks ...*buf.Block) error {
	tell, err := s.box.PutBlocks(last, blocks...)
	return s.added(tell, err)
}

// End ends our side with trailers, made of h2.AppendPair, which it keeps; nil: without. H.
func (s *Stream) End(trailers []byte) error {
	tell, err := s.box.End(trailers)
	return s.added(tell, err)
}

func (s *Stream) added(tell bool, err error) error {
	if tell {
		s.ask(askOutput, 0)
	}
	return err
}

// SetLimit changes how much output may wait: Config.Outbox for this stream. H.
func (s *Stream) SetLimit(n int) { s.box.SetLimit(n) }

// Queued is how many bytes of output wait. H.
func (s *Stream) Queued() int { return s.box.Queued() }

// Notify has the loop call StreamOwner.Credit: flow.Inbox.Read has said so. H.
func (s *Stream) Notify() { s.ask(askCredit, 0) }

// Cancel resets the stream, unless it has ended by then. What is queued leaves before, if it can at
// once, and else is dropped. H.
func (s *Stream) Cancel(code h2.Code) { s.ask(askReset, code) }

// Release says that the owner's goroutine is done with the stream. After it H must not use the
// stream any more. Each stream needs it once. H.
func (s *Stream) Release() { s.ask(askRelease, 0) }

// ask notes what the loop has to do and wakes it, once until it does. Behind the connection's end
// there is nothing to do.
func (s *Stream) ask(what asked, code h2.Code) {
	if s.conn.asks.add(s, what, code) {
		s.conn.c.Notify()
	}
}

// Prioritize changes the stream's priority, as RFC 9218 lets a server do. L.
func (s *Stream) Prioritize(p h2.Priority) {
	s.priority = p
	if s.queued != nil { // else it is where it belongs when it comes into a queue
		s.queued.remove(s)
		s.conn.enqueue(s)
	}
}

// Tunnel says that the two sides of a CONNECT end by themselves (section 8.5). At a server, once it
// has been accepted and before the end leaves: END_STREAM of ours is not followed by RST_STREAM. At
// a client, before Head: a response that accepts has no Content-Length, whatever it says, and no
// trailers. L.
func (s *Stream) Tunnel() { s.tunnel = true }

// Sent reports whether all output of a stream that has not ended has been written to the
// connection, to its end. L.
func (s *Stream) Sent() bool { return s.state == halfClosedLocal || s.state == bothEnded }

// Offered reports whether the loop knows of all that was put: what Queued counts waits for the
// peer, or for streams that come before. H.
func (s *Stream) Offered() bool { return s.box.Visited() }

// WithoutBody says that the response has no body, whatever its Content-Length is: the request was
// HEAD. L, at a client, before Head.
func (s *Stream) WithoutBody() { s.noBody = true }

// begin opens the stream.
func (s *Stream) begin(c *Conn, id uint32) {
	s.conn, s.id, s.place = c, id, placed
	s.window = window{send: c.peer.window, recv: int32(c.cfg.Window)}
	if c.peer.awaited != handshakeDone { // section 6.9.2: until then the peer may use the initial one
		s.window.recv = max(s.window.recv, h2.InitialWindow)
	}
	s.box.Reset(c.cfg.Outbox)
	c.places.count++
	c.budgets.Return(glitches, streamPays)
	if n := c.cfg.Counters; n != nil {
		n.Opened.Add(1)
	}
	if id != 0 {
		c.act.streams[id] = s
	}
}

// remoteEnds notes the peer's END_STREAM, before the owner is called with it.
func (s *Stream) remoteEnds() {
	switch s.state {
	case open:
		s.state = halfClosedRemote
	case halfClosedLocal:
		s.state = bothEnded
	default:
	}
}

// closeIfEnded closes a stream that both sides have ended.
func (s *Stream) closeIfEnded() {
	if s.state == bothEnded {
		s.close(h2.NoError, nil)
	}
}

// localEnds follows our END_STREAM. A server that has answered needs no more of the request
// (section 8.1), unless it has become a tunnel.
func (s *Stream) localEnds() {
	switch {
	case s.state == halfClosedRemote:
		s.close(h2.NoError, nil)
	case !s.conn.cfg.Client && !s.tunnel:
		s.reset(h2.NoError, nil)
	default:
		s.state = halfClosedLocal
	}
}

// reset closes a stream and tells the peer.
func (s *Stream) reset(code h2.Code, err error) {
	if s.id != 0 {
		s.conn.sendReset(s.id, code)
	}
	s.close(code, err)
}

// close ends a stream, whatever the reason. What it has not consumed is the connection's again.
func (s *Stream) close(code h2.Code, err error) {
	if s.state == closed {
		return
	}
	s.state = closed
	c := s.conn
	if s.place == placed {
		s.place = finished
		c.places.ended++
	}
	a := c.act
	if s.id == 0 {
		a.opening = slices.DeleteFunc(a.opening, func(o *Stream) bool { return o == s })
	} else {
		delete(a.streams, s.id)
		c.openAllowed()
	}
	if s.queued != nil {
		s.queued.remove(s)
	}
	if err == nil {
		s.box.Fail(errDone)
	} else {
		s.box.Fail(err)
	}
	unread := int(s.unread)
	s.unread = 0
	c.credit(nil, unread)
	s.owner.Ended(code, err)
	if s.place == abandoned {
		s.free()
	}
}

// released notes Release.
func (s *Stream) released() {
	switch s.place {
	case placed:
		s.place = abandoned
	case finished:
		s.conn.places.ended--
		s.free()
	default:
	}
}

// free gives the place back of a stream that has ended and been released.
func (s *Stream) free() {
	s.place = freed
	c := s.conn
	if c.places.count--; c.places.count == 0 {
		c.owner.Idle()
	}
}

// asks are the streams that have asked for something, in order. Any goroutine may add one.
type asks struct {
	mu   sync.Mutex // innermost; guards what follows, and what each stream asks for
	last *Stream    // its nextAsks is the first one; nil: there is none
	over bool       // Closed was called: streams that ask are not kept
}

// add notes what s asks for. It reports whether the loop has to be notified.
func (q *asks) add(s *Stream, what asked, code h2.Code) (notify bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return false
	}
	if what == askReset && s.asked&askReset == 0 {
		s.code = code
	}
	notify = s.asked == 0
	s.asked |= what
	if notify {
		s.nextAsks = s
		if q.last != nil {
			s.nextAsks, q.last.nextAsks = q.last.nextAsks, s
		}
		q.last = s
	}
	return notify
}

// next takes the first stream and what it has asked for; nil: there is none.
func (q *asks) next() (s *Stream, what asked, code h2.Code) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last == nil {
		return nil, 0, 0
	}
	s = q.last.nextAsks
	if s == q.last {
		q.last = nil
	} else {
		q.last.nextAsks = s.nextAsks
	}
	what, code = s.asked, s.code
	s.asked, s.nextAsks = 0, nil
	return s, what, code
}

// close drops what is asked, now and later.
func (q *asks) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over, q.last = true, nil
}
