package web

import (
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
)

// An h1stream is an exchange on an HTTP/1 connection, and its carrier. Its place in the
// connection's line is the loop's, except that a chain's goroutine reads chain and enc.closeAfter
// before it tells the loop that an answer is complete.
type h1stream struct {
	exchange
	h   *conn
	enc h1encoder
	dec *h1decoder // nil: the request has no body

	behind  *h1stream   // the next in the connection's line
	chain   *h1stream   // run by the same goroutine after this one; it is behind, too
	notice  *goneNotice // nil: the client has not ended its side
	raw     string      // the head, for the new owner of the connection
	rest    string      // the fields, if they were cached
	hold    *hold       // nil: what it answers is sent at once
	sequel  sequel
	follows bool // it is another's chain
}

// A sequel is what may come behind a request on its connection.
type sequel uint8

const (
	sequelRequest sequel = iota
	sequelOther          // perhaps no request: nothing is begun before this one has been answered
	sequelNone           // the client wants the connection to end
)

var _ carrier = (*h1stream)(nil)

// write queues p, all or nothing, or holds it until the answers to earlier requests have ended:
// myriad.ErrFull.
func (x *h1stream) write(p []byte) error {
	if x.hold != nil {
		if held, err := x.hold.take(p); held || err != nil {
			return err
		}
	}
	_, err := x.h.c.Write(p)
	return err
}

func (x *h1stream) ask() { x.h.c.Notify() }

// returned serves what an inline task has asked for at once, so that the answers to pipelined
// requests leave together.
func (x *h1stream) returned() {
	if x.h.x == x { // else the connection was lost before Run
		x.h.serveLine()
	}
}

// fail ends the connection behind what was written: in order if the answer has not begun. Else TLS
// must not say that this was all: an answer whose end is that of its connection would look whole
// (RFC 9112 section 8, RFC 8446 section 6.1).
func (x *h1stream) fail() {
	end := func() { _ = x.h.c.Close() }
	if x.out.head == headSent {
		end = x.h.c.CloseTruncated
	}
	if x.hold == nil || !x.hold.failLater(end) {
		end()
	}
}

// hasTurn implements carrier.
func (x *h1stream) hasTurn() bool { return x.hold == nil || x.hold.isFirst() }

// awaitTurn waits until x is the first of its line, for what cannot be held.
func (x *h1stream) awaitTurn() error {
	if x.hold == nil {
		return nil
	}
	return x.out.sendWhenRoom(func() error {
		if !x.hold.isFirst() {
			return myriad.ErrFull
		}
		return nil
	})
}

// writer implements carrier.
func (x *h1stream) writer() http.ResponseWriter { return x.given }

// goesOn reports whether the answer has ended in such a way that another request may follow.
func (x *h1stream) goesOn() bool { return x.ending() == answered && !x.enc.closeAfter }

// next implements carrier: a goroutine of the pool goes on with the chain of a connection.
func (x *h1stream) next() dispatch.Task {
	next, plain := x.chain, x.goesOn()
	x.release()
	if next == nil || !plain || !next.given.ctx.begin() {
		return nil // if the answer is late, the connection ends with its handler
	}
	st := next.lane.st
	st.load.goOn() // over has taken the one before off
	if s := next.lane.s; s.WriteTimeout > 0 {
		next.out.writeBy.Store(int64(st.now().after(s.WriteTimeout)))
	}
	return next
}

// spent implements carrier: the loop alone goes on with x.
func (x *h1stream) spent() {}

// connectionLost ends whatever the handler may be waiting for.
func (x *h1stream) connectionLost(err error, end *lastState) {
	x.exchange.lose(err, end, x.hold.drop)
}
