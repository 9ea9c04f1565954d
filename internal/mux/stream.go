package mux

import (
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/flow"
	"github.com/myriad-go/myriad/internal/h2"
)

// A Stream carries one request and its response. Init makes it ready for Accept or Open. It serves
// once.
type Stream struct {
	conn     *Conn
	owner    StreamOwner
	id       uint32 // 0 at a client until its head is written
	send     int32  // window for data that we send
	recv     int32  // window that the peer has
	owed     int32  // consumed, and not yet in a WINDOW_UPDATE for the stream
	unread   int32  // received, and not yet credited to the connection
	length   int64  // the peer's Content-Length, if there is one; else negative
	left     int64  // what the body still lacks of it; negative as well
	bits     streamBits
	priority h2.Priority
	next     *Stream // in one of the queues of output
	box      flow.Outbox

	asked asked   // guarded by conn.mu
	code  h2.Code // guarded by conn.mu; of askReset
	dirty *Stream // guarded by conn.mu; the next in conn.dirty
}

type streamBits uint16

const (
	remoteDone streamBits = 1 << iota // the peer has ended its side
	localDone                         // we have
	closed                            // the stream has ended
	released                          // its owner's goroutine is done
	gotHead                           // a client has the final head; a server the request
	queued                            // in a queue of output
	tunnel                            // each side ends by itself
	noBody                            // a response without a body, whatever its Content-Length says
	counted                           // has a place among the streams of its connection
	done                              // has ended before its release
	connected                         // of a CONNECT: DATA alone may follow its head
)

type asked uint8

const (
	inDirty    asked = 1 << iota // in conn.dirty
	askOutput                    // something is in the box
	askCredit                    // something has been consumed
	askReset                     // Cancel
	askRelease                   // Release
)

// Init gives a stream its owner. Before Accept returns it, or before Open.
func (s *Stream) Init(owner StreamOwner) {
	s.conn, s.owner, s.id, s.bits, s.left = nil, owner, 0, 0, -1
	s.send, s.recv, s.owed, s.unread, s.asked, s.next = 0, 0, 0, 0, 0, nil
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
	c := s.conn
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	if what == askReset && s.asked&askReset == 0 {
		s.code = code
	}
	first := s.asked&inDirty == 0
	s.asked |= what
	if first {
		s.asked |= inDirty
		s.dirty = nil
		if c.dirtyTail == nil {
			c.dirty = s
		} else {
			c.dirtyTail.dirty = s
		}
		c.dirtyTail = s
	}
	c.mu.Unlock()
	if first {
		c.c.Notify()
	}
}

// Prioritize changes the stream's priority, as RFC 9218 lets a server do. L.
func (s *Stream) Prioritize(p h2.Priority) { s.conn.prioritize(s, p) }

// Tunnel says that the two sides of a CONNECT end by themselves (section 8.5). At a server, once it
// has been accepted and before the end leaves: END_STREAM of ours is not followed by RST_STREAM. At
// a client, before Head: a response that accepts has no Content-Length, whatever it says, and no
// trailers. L.
func (s *Stream) Tunnel() { s.bits |= tunnel }

// Sent reports whether all output has been written to the connection, to its end. L.
func (s *Stream) Sent() bool { return s.is(localDone) }

// Offered reports whether the loop knows of all that was put: what Queued counts waits for the
// peer, or for streams that come before. H.
func (s *Stream) Offered() bool { return s.box.Visited() }

// WithoutBody says that the response has no body, whatever its Content-Length is: the request was
// HEAD. L, at a client, before Head.
func (s *Stream) WithoutBody() { s.bits |= noBody }

func (s *Stream) is(b streamBits) bool { return s.bits&b != 0 }
