package http1

import (
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// A Stream is an exchange on an HTTP/1 connection, and its carrier. Its place in the
// connection's line is the loop's, except that a chain's goroutine reads chain and enc.closeAfter
// before it tells the loop that an answer is complete.
type Stream struct {
	exchange.Exchange
	H   *Conn
	enc encoder
	dec *Decoder // nil: the request has no body

	behind  *Stream     // the next in the connection's line
	Chain   *Stream     // run by the same goroutine after this one; it is behind, too
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

var _ exchange.Carrier = (*Stream)(nil)

// write queues p, all or nothing, or holds it until the answers to earlier requests have ended:
// myriad.ErrFull.
func (x *Stream) write(p []byte) error {
	if x.hold != nil {
		if held, err := x.hold.take(p); held || err != nil {
			return err
		}
	}
	_, err := x.H.C.Write(p)
	return err
}

// Notify implements exchange.Carrier.
func (x *Stream) Notify() { x.H.C.Notify() }

// Fail ends the connection behind what was written: in order if the answer has not begun. Else TLS
// must not say that this was all: an answer whose end is that of its connection would look whole
// (RFC 9112 section 8, RFC 8446 section 6.1).
func (x *Stream) Fail() {
	end := func() { _ = x.H.C.Close() }
	if x.Out.Head == exchange.HeadSent {
		end = x.H.C.CloseTruncated
	}
	if x.hold == nil || !x.hold.failLater(end) {
		end()
	}
}

// HasTurn implements exchange.Carrier.
func (x *Stream) HasTurn() bool { return x.hold == nil || x.hold.isFirst() }

// awaitTurn waits until x is the first of its line, for what cannot be held.
func (x *Stream) awaitTurn() error {
	if x.hold == nil {
		return nil
	}
	return x.Out.SendWhenRoom(func() error {
		if !x.hold.isFirst() {
			return myriad.ErrFull
		}
		return nil
	})
}

// KeptByLoop implements exchange.Carrier: the loop goes on at once, so that the answers to
// pipelined requests leave together.
func (x *Stream) KeptByLoop() {
	if x.H.X == x { // else the connection was lost before Run
		x.H.serve()
	}
}

// ComesBack implements exchange.Carrier: a goroutine of the pool goes on with the chain of a
// connection, unless that ends with the answer.
func (x *Stream) ComesBack() dispatch.Task {
	h, next := x.H, x.Chain
	if next != nil && (x.enc.closeAfter || x.Progress() != exchange.Completed || !next.Begin()) {
		next = nil
	}
	if x.Complete() { // from now on x is the loop's, which finds next begun
		h.C.Notify()
	}
	if next == nil {
		return nil
	}
	st := next.Lane.Server
	st.Load.GoOn() // over has taken the one before off
	if st.WriteTimeout > 0 {
		next.Out.WriteBy.Store(int64(st.Now().After(st.WriteTimeout)))
	}
	return next
}

// ConnectionLost ends whatever the handler may be waiting for.
func (x *Stream) ConnectionLost(err error, end *exchange.LastState) {
	x.Exchange.Lose(err, end, x.hold.drop)
}

const (
	// headRoom is what a usual answer's head takes, and often its body too.
	headRoom = 512
	// framingRoom is kept free behind the handler's fields for those that the server adds: a date,
	// a type, a length or coding, keep-alive or close, and the size of a first chunk.
	framingRoom = 192
)

// A encoder is what HTTP/1 knows of an answer.
type encoder struct {
	// from WriteHeader until the head is sent: status line and the handler's fields, then room,
	// then bytes of the body; kept for another request
	front      []byte
	fields     int  // bytes of front that the fields take
	chunked    bool // the body comes in chunks
	closeAfter bool // the connection ends with this answer
	minor      int8 // of the version that is spoken: 0 or 1
}

var h1Fields = &exchange.FieldCoder{Field: h1.AppendField, Length: h1.AppendLength}

// Snapshot implements exchange.Carrier.
func (x *Stream) Snapshot() {
	w, e := &x.Out, &x.enc
	if e.front == nil {
		e.front = x.H.Own.Protocol.front()
	}
	p := w.AppendHeader(h1.AppendStatusLine(e.front[:0], int(x.enc.minor), w.Status), h1Fields)
	if e.fields = len(p); e.fields > len(e.front) {
		e.front = append(p, make([]byte, headRoom)...)
	}
	w.Near = nil
	if at := e.fields + framingRoom; at < len(e.front) {
		w.Near = e.front[at:at:len(e.front)]
	}
}

// Interim implements exchange.Carrier.
func (x *Stream) Interim(status int) error {
	p := h1.AppendStatusLine(make([]byte, 0, headRoom), int(x.enc.minor), status)
	return x.send(append(x.Out.AppendInterim(p, h1Fields), "\r\n"...))
}

// Invite implements exchange.Carrier.
func (x *Stream) Invite() error { return x.write([]byte(h1.Continue)) }

// Coding implements exchange.Carrier.
func (x *Stream) Coding(values []string) exchange.Coding {
	switch {
	case len(values) == 0 || values[0] == "":
		return exchange.CodingNone
	case values[0] == "chunked":
		return exchange.CodingChunked
	case values[0] == "identity":
		return exchange.CodingIdentity
	}
	return exchange.CodingOther
}

// OwnField implements exchange.Carrier.
func (x *Stream) OwnField(name string, values []string) (skip bool) {
	w := &x.Out
	switch name {
	case "Transfer-Encoding":
		return w.Said.Coding != exchange.CodingOther || w.NoBody || !exchange.BodyAllowed(w.Status) || x.enc.minor == 0
	case "Connection":
		if values == nil {
			values = []string{}
		}
		w.Tell().Connection = values // whether it can stand is known when the head is sent
		return true
	}
	return false
}

// SendHead implements exchange.Carrier.
func (x *Stream) SendHead(next []byte, last bool) error {
	w, e := &x.Out, &x.enc
	if last && x.Body != nil && !x.Body.Complete() && !w.Said.Duplex && !x.ends() {
		x.Body.AwaitEnd()
	}
	// Content-Length, chunks, or the end of the connection (RFC 9112 section 6)
	e.closeAfter = x.ends() ||
		x.Body != nil && x.Body.BlocksReuse(x.Progress() == exchange.Finishing, w.Said.Duplex)
	switch {
	case !w.NeedsFrame():
	case e.minor == 1 && w.Said.Coding != exchange.CodingIdentity:
		e.chunked = true
	default:
		e.closeAfter = true
	}
	first, front := w.Gathered(), e.front
	// of the head where it is; if it is longer, append has moved it
	limit := min(e.fields+framingRoom-exchange.ChunkRoom, len(front))
	p := w.AppendDecided(front[:e.fields:limit], h1Fields, first, next)
	if e.chunked {
		p = append(p, "Transfer-Encoding: chunked\r\n"...)
	}
	p = append(x.appendConnection(p), "\r\n"...)
	switch need := len(p) + len(first) + exchange.ChunkRoom; {
	case need > len(front):
		b := buf.Get(need)
		defer b.Release()
		p = append(b.Extend()[:0], p...)
	case len(p) <= limit:
		p = front[:len(p)] // with all that is behind it: first is there, and moves up
	}
	switch {
	case w.NoBody:
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
func (x *Stream) appendEnd(p []byte) []byte {
	return append(x.Out.AppendTrailer(append(p, h1.LastChunk...), h1Fields), "\r\n"...)
}

// ends reports whether the connection ends with the answer, however its request's body does. If the
// server ends it, the answer has to say so. With a larger PipelineDepth only the loop knows whether
// another request has been accepted, and ends it without a word.
func (x *Stream) ends() bool {
	w, e, s := &x.Out, &x.enc, x.Lane.Server
	return e.closeAfter || s.NoAlive.Load() || s.Closing.Load() && s.PipelineDepth <= 1 && x.behind == nil ||
		x.enc.minor == 0 && w.NeedsFrame() ||
		httpguts.HeaderValuesContainsToken(w.Said.Connection, "close") ||
		w.Status == http.StatusRequestEntityTooLarge && x.Body.HalfRead()
}

// appendConnection sends the handler's Connection field, unless the connection ends and the field
// does not say so. A switch of protocols needs its "Upgrade" in any case (RFC 9110 section 7.8).
func (x *Stream) appendConnection(p []byte) []byte {
	w, e := &x.Out, &x.enc
	own := w.Said.Connection
	switching := w.Status == http.StatusSwitchingProtocols && w.Header().Get("Upgrade") != "" &&
		httpguts.HeaderValuesContainsToken(own, "upgrade")
	switch {
	case len(own) > 0 && (switching || !e.closeAfter || httpguts.HeaderValuesContainsToken(own, "close")):
		return h1Fields.Append(p, "Connection", own)
	case e.closeAfter && x.enc.minor == 1:
		return append(p, "Connection: close\r\n"...)
	case !e.closeAfter && x.enc.minor == 0 && own == nil:
		return append(p, "Connection: keep-alive\r\n"...)
	}
	return p
}

// SendData implements exchange.Carrier.
func (x *Stream) SendData(p []byte, last bool) error {
	switch {
	case x.enc.chunked && !x.Out.NoBody:
		b := buf.Get(len(p) + exchange.ChunkRoom + headRoom)
		defer b.Release()
		q := h1.AppendChunk(b.Extend()[:0], p)
		if last {
			q = x.appendEnd(q)
		}
		return x.send(q)
	case len(p) == 0:
		return x.Out.Alive()
	}
	return x.send(p)
}

// CanSendFile implements exchange.Carrier.
func (x *Stream) CanSendFile() bool { return !x.enc.chunked }

// SendFile implements exchange.Carrier.
func (x *Stream) SendFile(f *os.File, off, n int64) error {
	return x.Out.SendWhenRoom(func() error {
		if !x.HasTurn() {
			return myriad.ErrFull
		}
		return x.H.C.WriteFile(f, off, n)
	})
}

// Refuse implements exchange.Carrier.
func (x *Stream) Refuse(status int, reason string) error {
	x.enc.closeAfter = true
	x.Notify()
	return x.write(appendError(nil, x.Given.Request.Method, x.Refusal(status, reason), x.H.Date()))
}

// send writes p, waiting for room where the handler may wait.
func (x *Stream) send(p []byte) error {
	return x.Out.SendWhenRoom(func() error { return x.write(p) })
}

// A plainSink is the connection as the sink of an answer that ends with it, a chunkedSink that of
// one in chunks.
type (
	plainSink   myriad.Conn
	chunkedSink myriad.Conn
)

// Outlive implements exchange.Carrier.
func (x *Stream) Outlive() error {
	if err := x.awaitTurn(); err != nil {
		return err
	}
	if !x.Body.Complete() {
		x.enc.closeAfter = true // what is still to come of it would be taken for a request
	}
	return nil
}

// Sink implements exchange.Carrier.
func (x *Stream) Sink() exchange.Sink {
	if x.enc.chunked {
		return (*chunkedSink)(x.H.C)
	}
	return (*plainSink)(x.H.C)
}

func (c *plainSink) conn() *myriad.Conn { return (*myriad.Conn)(c) }

func (c *plainSink) Write(p []byte) error {
	_, err := c.conn().Write(p)
	return err
}

func (c *plainSink) Chunk(k *exchange.Chunk) error { return c.Write(k.Data()) }

func (c *plainSink) End() error { return nil }

func (c *plainSink) Queued() int { return c.conn().Queued() }

func (c *plainSink) SetLimit(n int) { c.conn().SetWriteLimit(n) }

func (c *plainSink) Abort(err error) { c.conn().Abort(err) }

func (c *plainSink) Notify() { c.conn().Notify() }

func (c *plainSink) RemoteAddr() net.Addr { return c.conn().RemoteAddr() }

func (c *chunkedSink) conn() *myriad.Conn { return (*myriad.Conn)(c) }

func (c *chunkedSink) Write(p []byte) error {
	b := buf.Get(len(p) + exchange.ChunkRoom)
	b.Commit(len(h1.AppendChunk(b.Extend()[:0], p)))
	return c.conn().WriteBlocks(b)
}

func (c *chunkedSink) Chunk(k *exchange.Chunk) error { return c.conn().WriteBlocks(k.Block()) }

func (c *chunkedSink) End() error {
	_, err := c.conn().Write([]byte(h1.LastChunk + "\r\n"))
	return err
}

func (c *chunkedSink) Queued() int { return c.conn().Queued() }

func (c *chunkedSink) SetLimit(n int) { c.conn().SetWriteLimit(n) }

func (c *chunkedSink) Abort(err error) { c.conn().Abort(err) }

func (c *chunkedSink) Notify() { c.conn().Notify() }

func (c *chunkedSink) RemoteAddr() net.Addr { return c.conn().RemoteAddr() }

// obtain gives an exchange to fill in. One that the server no longer needs is used for another
// request, without what its handler was given. With Server.ReuseRequests that is used again, too.
func (ln *Lane) obtain() *Stream {
	x := ln.spare
	if ln.spare = nil; x == nil {
		x, _ = ln.Protocol.spare.Get().(*Stream)
	}
	if x == nil {
		x = new(Stream)
	}
	if x.Given == nil {
		x.Given = exchange.NewGiven()
		x.Given.Out.Store(&x.Out)
	}
	return x
}

// recycle makes an exchange that has come back ready for another request, if nothing else refers to
// it. On the loop.
func (ln *Lane) recycle(x *Stream) {
	again := ln.Server.ReuseRequests && x.Given.Ctx.Unwatched()
	front := x.enc.front
	if !x.Reusable() || x.hold != nil {
		x.H.Shared = true
		x.Given.Out.Store(nil)
		if len(front) == headRoom {
			ln.Protocol.fronts.Put((*[headRoom]byte)(front))
		}
		return
	}
	g, fields := x.Given, x.Fields
	if !again {
		g.Out.Store(nil)
	}
	*x = Stream{}
	if len(front) == headRoom {
		x.enc.front = front
	}
	if again {
		g.Again()
		x.Given, x.Fields = g, exchange.Emptied(fields)
	}
	if ln.spare == nil {
		ln.spare = x
		return
	}
	ln.Protocol.spare.Put(x)
}

// front gives what an answer is put together in.
func (s *Server) front() []byte {
	if p, _ := s.fronts.Get().(*[headRoom]byte); p != nil {
		return p[:]
	}
	return make([]byte, headRoom)
}

// unbegun is the bytes of the requests behind x, for the new owner of the connection.
func (x *Stream) unbegun() (heads []byte) {
	for y := x.behind; y != nil; y = y.behind {
		heads = append(append(heads, y.raw...), y.rest...)
	}
	return heads
}

// loseLine ends all exchanges behind x.
func (x *Stream) loseLine(err error, end *exchange.LastState) {
	if x == nil {
		return
	}
	for y := x.behind; y != nil; y = y.behind {
		y.ConnectionLost(err, end)
	}
}

// A goneNotice is when the loop ends the context of a handler whose client has ended its side of
// the connection. It comes late: a client may half-close and still wait for its answer, which
// http.TimeoutHandler would withhold. A quick handler gets no notice, and none gets it before it
// has begun and has read its body. net/http has the same delay, as a side effect of its background
// read.
type goneNotice struct {
	at    exchange.Moment // of the next look; never: there is none, because it has been told
	wait  time.Duration   // between the last look and that
	ready bool            // at the last look the handler could be told
}

const (
	firstNotice = time.Millisecond // between the first two looks
	maxNotice   = time.Second / 8  // at most, between any two
)

// TellsOfEnd begins the notice, if that has not been done, and returns when the next look is. On
// the loop.
func (x *Stream) TellsOfEnd(now exchange.Moment) exchange.Moment {
	if x.notice == nil {
		x.notice = new(goneNotice)
		x.LookAtEnd(now)
	}
	return x.notice.at
}

// LookAtEnd ends the context if that could have been done at the last look, too. On the loop.
func (x *Stream) LookAtEnd(now exchange.Moment) {
	f := x.notice
	if f.ready {
		f.at = exchange.Never
		x.Given.Ctx.Depart()
		return
	}
	f.ready = (x.Inlined || x.Given.Ctx.HasBegun()) && x.Body.Got()
	f.wait = min(max(2*f.wait, firstNotice), maxNotice)
	f.at = now.After(f.wait)
}
