package web

import (
	"net/http"
	"os"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h1"
)

// This file is how HTTP/1 frames an answer: its head, chunks, and when the connection ends with it.

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

func (x *h1stream) begin(req *http.Request, head *h1.Head) {
	w := &x.out
	if head.Major <= 1 && head.Minor == 0 {
		w.framing = framingPlain
	}
	w.noBody = req.Method == http.MethodHead
	x.enc.closeAfter = !head.KeepAlive
}

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
	e.closeAfter = x.ends() || x.body.blocksReuse(x.ending() == finishing, w.words().duplex)
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
	return x.write(appendError(nil, x.given.request.Method, status, reason, x.h.date()))
}

// send writes p, waiting for room where the handler may wait.
func (x *h1stream) send(p []byte) error {
	return x.out.sendWhenRoom(func() error { return x.write(p) })
}
