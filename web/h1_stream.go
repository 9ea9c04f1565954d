package web

import (
	"net"
	"net/http"
	"os"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/h1"
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

// notify implements carrier.
func (x *h1stream) notify() { x.h.c.Notify() }

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

// returned implements carrier: the loop goes on at once, so that the answers to pipelined requests
// leave together.
func (x *h1stream) returned() {
	if x.h.x == x { // else the connection was lost before Run
		x.h.serve()
	}
}

// comesBack implements carrier: a goroutine of the pool goes on with the chain of a connection,
// unless that ends with the answer.
func (x *h1stream) comesBack() dispatch.Task {
	h, next := x.h, x.chain
	if next != nil && (x.enc.closeAfter || x.progress() != completed || !next.begin()) {
		next = nil
	}
	if x.complete() { // from now on x is the loop's, which finds next begun
		h.c.Notify()
	}
	if next == nil {
		return nil
	}
	st := next.lane.st
	st.load.goOn() // over has taken the one before off
	if s := next.lane.s; s.WriteTimeout > 0 {
		next.out.writeBy.Store(int64(st.now().after(s.WriteTimeout)))
	}
	return next
}

// connectionLost ends whatever the handler may be waiting for.
func (x *h1stream) connectionLost(err error, end *lastState) {
	x.exchange.lose(err, end, x.hold.drop)
}

const (
	// headRoom is what a usual answer's head takes, and often its body too.
	headRoom = 512
	// framingRoom is kept free behind the handler's fields for those that the server adds: a date,
	// a type, a length or coding, keep-alive or close, and the size of a first chunk.
	framingRoom = 192
)

// An h1encoder is what HTTP/1 knows of an answer.
type h1encoder struct {
	// from WriteHeader until the head is sent: status line and the handler's fields, then room,
	// then bytes of the body; kept for another request
	front      []byte
	fields     int  // bytes of front that the fields take
	chunked    bool // the body comes in chunks
	closeAfter bool // the connection ends with this answer
}

var h1Fields = &fieldCoder{h1.AppendField, h1.AppendLength}

// minor is of the version that is spoken.
func (x *h1stream) minor() int {
	if x.out.framing == framingPlain {
		return 0
	}
	return 1
}

// snapshot implements carrier.
func (x *h1stream) snapshot() {
	w, e := &x.out, &x.enc
	if e.front == nil {
		e.front = x.lane.st.front()
	}
	p := w.appendHeader(h1.AppendStatusLine(e.front[:0], x.minor(), w.status), h1Fields)
	if e.fields = len(p); e.fields > len(e.front) {
		e.front = append(p, make([]byte, headRoom)...)
	}
	w.near = nil
	if at := e.fields + framingRoom; at < len(e.front) {
		w.near = e.front[at:at:len(e.front)]
	}
}

// interim implements carrier.
func (x *h1stream) interim(status int) error {
	p := h1.AppendStatusLine(make([]byte, 0, headRoom), x.minor(), status)
	return x.send(append(x.out.appendInterim(p, h1Fields), "\r\n"...))
}

// invite implements carrier.
func (x *h1stream) invite() error { return x.write([]byte(h1.Continue)) }

// coding implements carrier.
func (x *h1stream) coding(values []string) coding {
	switch {
	case len(values) == 0 || values[0] == "":
		return codingNone
	case values[0] == "chunked":
		return codingChunked
	case values[0] == "identity":
		return codingIdentity
	}
	return codingOther
}

// ownField implements carrier.
func (x *h1stream) ownField(name string, values []string) (skip bool) {
	w := &x.out
	switch name {
	case "Transfer-Encoding":
		return w.words().coding != codingOther || w.noBody || !bodyAllowed(w.status) || x.minor() == 0
	case "Connection":
		if values == nil {
			values = []string{}
		}
		w.tell().connection = values // whether it can stand is known when the head is sent
		return true
	}
	return false
}

// head implements carrier.
func (x *h1stream) head(next []byte, last bool) error {
	w, e := &x.out, &x.enc
	if last && !x.body.complete() && !w.words().duplex && !x.ends() {
		x.body.awaitEnd()
	}
	x.frame()
	first, front := w.gathered(), e.front
	// of the head where it is; if it is longer, append has moved it
	limit := min(e.fields+framingRoom-chunkRoom, len(front))
	p := append(x.appendFraming(front[:e.fields:limit], first, next), "\r\n"...)
	switch need := len(p) + len(first) + chunkRoom; {
	case need > len(front):
		b := buf.Get(need)
		defer b.Release()
		p = append(b.Extend()[:0], p...)
	case len(p) <= limit:
		p = front[:len(p)] // with all that is behind it: first is there, and moves up
	}
	switch {
	case w.noBody:
	case e.chunked:
		p = h1.AppendChunk(p, first)
		if last {
			p = x.appendEnd(p)
		}
	default:
		p = append(p, first...)
	}
	return x.send(p)
}

// appendEnd ends a body in chunks.
func (x *h1stream) appendEnd(p []byte) []byte {
	return append(x.out.appendTrailer(append(p, h1.LastChunk...), h1Fields), "\r\n"...)
}

// frame chooses between Content-Length, chunks, and the end of the connection (RFC 9112 section 6).
func (x *h1stream) frame() {
	w, e := &x.out, &x.enc
	e.closeAfter = x.ends() || x.body.blocksReuse(x.progress() == finishing, w.words().duplex)
	switch {
	case !w.needsFrame():
	case x.minor() == 1 && w.words().coding != codingIdentity:
		e.chunked = true
	default:
		e.closeAfter = true
	}
}

// ends reports whether the connection ends with the answer, however its request's body does.
func (x *h1stream) ends() bool {
	w, e := &x.out, &x.enc
	return e.closeAfter || x.endsConn() || x.minor() == 0 && w.needsFrame() ||
		httpguts.HeaderValuesContainsToken(w.words().connection, "close") ||
		w.status == http.StatusRequestEntityTooLarge && x.body.halfRead()
}

// endsConn reports whether the server ends the connection behind this answer, which has to say so
// then. With a larger PipelineDepth only the loop knows whether another request has been accepted,
// and ends it without a word.
func (x *h1stream) endsConn() bool {
	s := x.lane.s
	return s.noAlive.Load() || s.closing.Load() && s.PipelineDepth <= 1 && x.behind == nil
}

// appendFraming adds the fields that the server answers for.
func (x *h1stream) appendFraming(p, first, next []byte) []byte {
	p = x.out.appendDecided(p, h1Fields, first, next)
	if x.enc.chunked {
		p = append(p, "Transfer-Encoding: chunked\r\n"...)
	}
	return x.appendConnection(p)
}

// appendConnection sends the handler's Connection field, unless the connection ends and the field
// does not say so. A switch of protocols needs its "Upgrade" in any case (RFC 9110 section 7.8).
func (x *h1stream) appendConnection(p []byte) []byte {
	w, e := &x.out, &x.enc
	own := w.words().connection
	switching := w.status == http.StatusSwitchingProtocols && w.header().Get("Upgrade") != "" &&
		httpguts.HeaderValuesContainsToken(own, "upgrade")
	switch {
	case len(own) > 0 && (switching || !e.closeAfter || httpguts.HeaderValuesContainsToken(own, "close")):
		return h1Fields.append(p, "Connection", own)
	case e.closeAfter && x.minor() == 1:
		return append(p, "Connection: close\r\n"...)
	case !e.closeAfter && x.minor() == 0 && own == nil:
		return append(p, "Connection: keep-alive\r\n"...)
	}
	return p
}

// data implements carrier.
func (x *h1stream) data(p []byte, last bool) error {
	switch {
	case x.enc.chunked && !x.out.noBody:
		b := buf.Get(len(p) + chunkRoom + headRoom)
		defer b.Release()
		q := h1.AppendChunk(b.Extend()[:0], p)
		if last {
			q = x.appendEnd(q)
		}
		return x.send(q)
	case len(p) == 0:
		return x.out.alive()
	}
	return x.send(p)
}

// canSendFile implements carrier.
func (x *h1stream) canSendFile() bool { return !x.enc.chunked }

// file implements carrier.
func (x *h1stream) file(f *os.File, off, n int64) error {
	return x.out.sendWhenRoom(func() error {
		if !x.hasTurn() {
			return myriad.ErrFull
		}
		return x.h.c.WriteFile(f, off, n)
	})
}

// refuse implements carrier.
func (x *h1stream) refuse(status int, reason string) error {
	x.enc.closeAfter = true
	x.notify()
	return x.write(appendError(nil, x.given.request.Method, status, reason, x.h.date()))
}

// send writes p, waiting for room where the handler may wait.
func (x *h1stream) send(p []byte) error {
	return x.out.sendWhenRoom(func() error { return x.write(p) })
}

// A plainSink is the connection as the sink of an answer that ends with it, a chunkedSink that of
// one in chunks.
type (
	plainSink   myriad.Conn
	chunkedSink myriad.Conn
)

// outlive implements carrier.
func (x *h1stream) outlive() error {
	if err := x.awaitTurn(); err != nil {
		return err
	}
	if !x.body.complete() {
		x.enc.closeAfter = true // what is still to come of it would be taken for a request
	}
	return nil
}

// sink implements carrier.
func (x *h1stream) sink() sink {
	if x.enc.chunked {
		return (*chunkedSink)(x.h.c)
	}
	return (*plainSink)(x.h.c)
}

func (c *plainSink) conn() *myriad.Conn { return (*myriad.Conn)(c) }

func (c *plainSink) write(p []byte) error {
	_, err := c.conn().Write(p)
	return err
}

func (c *plainSink) chunk(k *Chunk) error { return c.write(k.data()) }

func (c *plainSink) end() error { return nil }

func (c *plainSink) queued() int { return c.conn().Queued() }

func (c *plainSink) setLimit(n int) { c.conn().SetWriteLimit(n) }

func (c *plainSink) abort(err error) { c.conn().Abort(err) }

func (c *plainSink) notify() { c.conn().Notify() }

func (c *plainSink) remoteAddr() net.Addr { return c.conn().RemoteAddr() }

func (c *chunkedSink) conn() *myriad.Conn { return (*myriad.Conn)(c) }

func (c *chunkedSink) write(p []byte) error {
	b := buf.Get(len(p) + chunkRoom)
	b.Commit(len(h1.AppendChunk(b.Extend()[:0], p)))
	return c.conn().WriteBlocks(b)
}

func (c *chunkedSink) chunk(k *Chunk) error { return c.conn().WriteBlocks(k.block.Retain()) }

func (c *chunkedSink) end() error {
	_, err := c.conn().Write([]byte(h1.LastChunk + "\r\n"))
	return err
}

func (c *chunkedSink) queued() int { return c.conn().Queued() }

func (c *chunkedSink) setLimit(n int) { c.conn().SetWriteLimit(n) }

func (c *chunkedSink) abort(err error) { c.conn().Abort(err) }

func (c *chunkedSink) notify() { c.conn().Notify() }

func (c *chunkedSink) remoteAddr() net.Addr { return c.conn().RemoteAddr() }

// obtain gives an exchange to fill in. One that the server no longer needs is used for another
// request, without what its handler was given. With Server.ReuseRequests that is used again, too.
func (ln *lane) obtain() *h1stream {
	x := ln.spare
	if ln.spare = nil; x == nil {
		x, _ = ln.st.spare.Get().(*h1stream)
	}
	if x == nil {
		x = new(h1stream)
	}
	if x.given == nil {
		x.given = newGiven()
		x.given.out.Store(&x.out)
	}
	return x
}

// recycle makes an exchange that has come back ready for another request, if nothing else refers to
// it. On the loop.
func (ln *lane) recycle(x *h1stream) {
	again := ln.s.ReuseRequests && x.given.ctx.unwatched()
	front := x.enc.front
	if !x.reusable() || x.hold != nil {
		x.h.shared = true
		x.given.out.Store(nil)
		if len(front) == headRoom {
			ln.st.fronts.Put((*[headRoom]byte)(front))
		}
		return
	}
	g, fields := x.given, x.fields
	if !again {
		g.out.Store(nil)
	}
	*x = h1stream{}
	if len(front) == headRoom {
		x.enc.front = front
	}
	if again {
		g.again()
		x.given, x.fields = g, emptied(fields)
	}
	if ln.spare == nil {
		ln.spare = x
		return
	}
	ln.st.spare.Put(x)
}

// front gives what an answer is put together in.
func (st *state) front() []byte {
	if p, _ := st.fronts.Get().(*[headRoom]byte); p != nil {
		return p[:]
	}
	return make([]byte, headRoom)
}
