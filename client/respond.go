package client

import (
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
)

// A scratch is what a loop parses a head with.
type scratch struct{ head h1.ResponseHead }

func (s *scratch) put(t *Transport) {
	s.head.Reset()
	t.scratch.Put(s)
}

// respond is the final head of a response; rest came behind it.
func (pc *conn) respond(x *Call, head *h1.ResponseHead, rest []byte) {
	pc.interim = 0
	pc.due.Store(0)
	r := newResponse(x, head)
	r.TLS = pc.tls
	pc.last = !head.KeepAlive || wantsClose(x.req) || pc.t.DisableKeepAlives || pc.stopping || pc.ended
	if head.Status == http.StatusSwitchingProtocols {
		pc.switchProtocols(x, r, rest)
		return
	}
	if pc.expecting {
		pc.declineOrGoAhead()
	}
	if pc.frame = pc.framingOf(x, r, head); pc.frame == inHead {
		r.Body = http.NoBody
		pc.passOn(x, r, nil, rest)
		return
	}
	b := &body{link: pc, call: x, response: r}
	r.Body = b
	pc.body = b
	decompress(x, r)
	x.setPhase(Body) // an error in what follows is the body's, whether or not it came with the head
	for len(rest) > 0 && pc.body != nil && !pc.dead {
		if pc.frame == inTrailer {
			rest = pc.takeTrailer(rest)
		} else {
			rest = pc.takeBody(rest)
		}
	}
	pc.passOn(x, r, b, rest)
}

// declineOrGoAhead is for a server that answers without 100 Continue. As with net/http, the body
// is sent if the connection is to be used again.
func (pc *conn) declineOrGoAhead() {
	if pc.last {
		pc.expecting = false
		pc.up.decline()
		return
	}
	pc.goAhead()
}

// passOn gives the response to its caller. If it has no more body to come, the connection is free
// before that, so that the caller's next request finds it.
func (pc *conn) passOn(x *Call, r *http.Response, b *body, rest []byte) {
	if b == nil {
		if len(rest) > 0 {
			pc.last, pc.dead = true, true // RFC 9112 section 6.3: the server is out of step
		}
		if !x.settle(nil) {
			pc.broken(errCanceled)
			return
		}
		pc.answer(x)
		x.finish(r, nil)
		return
	}
	if !x.settle(b) { // cancelled meanwhile
		pc.drop(x, errCanceled)
		b.discard()
		return
	}
	x.finish(r, nil)
	if pc.body == nil || pc.dead {
		x.over()
	}
}

// framingOf is how the body of a response is framed (RFC 9112 section 6.3), inHead if there is
// none.
func (pc *conn) framingOf(x *Call, r *http.Response, head *h1.ResponseHead) framing {
	switch {
	case x.req.Method == "HEAD" || head.NoBody:
		return inHead
	case x.req.Method == "CONNECT" && head.Status/100 == 2:
		r.ContentLength = -1
	case head.Chunked:
		pc.chunks = h1.Chunked{}
		return inChunks
	case head.ContentLength == 0:
		return inHead
	case head.ContentLength > 0:
		pc.left = head.ContentLength
		return inLength
	}
	pc.last, r.Close = true, true
	return untilClose
}

// takeBody decodes body bytes, and returns what is behind the body.
func (pc *conn) takeBody(p []byte) (rest []byte) {
	switch pc.frame {
	case inLength:
		n := int(min(int64(len(p)), pc.left))
		pc.left -= int64(n)
		pc.deliver(p[:n:n])
		if pc.left == 0 {
			pc.completeBefore(p[n:])
		}
		return nil
	case untilClose:
		pc.deliver(p)
		return nil
	}
	n, data, done, err := pc.chunks.Decode(p)
	if err != nil {
		pc.malformed(err)
		return nil
	}
	if len(data) > 0 {
		pc.deliver(data)
	}
	if done {
		pc.frame = inTrailer
	}
	return p[n:]
}

// takeTrailer parses the trailer section of a chunked body.
func (pc *conn) takeTrailer(p []byte) (rest []byte) {
	if k := pc.partial; k != nil {
		k.p = append(k.p, p...)
		p = k.p
		ready, err := k.scan.Trailer(p, pc.t.limits(0))
		if err != nil {
			pc.malformed(err)
			return nil
		}
		if !ready {
			return nil
		}
	}
	n, fields, err := h1.ParseTrailer(p, pc.t.limits(0), nil)
	switch {
	case err != nil:
		pc.malformed(err)
		return nil
	case n == 0:
		pc.partial = newPartial(p)
		if _, err = pc.partial.scan.Trailer(pc.partial.p, pc.t.limits(0)); err != nil {
			pc.malformed(err)
		}
		return nil
	}
	pc.partial = nil
	if len(fields) > 0 && pc.body != nil {
		pc.body.setTrailer(headerOf(fields))
	}
	pc.completeBefore(p[n:])
	return nil
}

// completeBefore ends a body. What is behind it belongs to no response.
func (pc *conn) completeBefore(rest []byte) {
	if len(rest) > 0 {
		pc.last = true
	}
	pc.complete()
}

// complete ends a body in order.
func (pc *conn) complete() {
	x, b := pc.x.Load(), pc.body
	pc.body = nil
	if x == nil || b == nil {
		return
	}
	pc.answer(x)
	b.end()
	if x.isSettled() { // else passOn has still to deliver the head
		x.over()
	}
}

// answer is the end of a response: the connection is free, unless the request is still under way.
func (pc *conn) answer(x *Call) {
	pc.frame = inHead
	switch {
	case pc.last || pc.stopping || pc.ended:
		pc.dead = true
		pc.x.Store(nil)
		if !pc.up.wrote.Load() {
			x.abandonUpload(errServerClosed)
		}
		_ = pc.c.Close()
		x.tracePut(errKeepIdle)
	case !pc.up.wrote.Load():
		pc.answered = true
		pc.wait(uploadGrace)
	default:
		pc.leave()
	}
}

// leave frees the connection on the loop.
func (pc *conn) leave() {
	x := pc.x.Load()
	pc.answered, pc.up, pc.size = false, nil, 0
	pc.due.Store(0)
	pc.x.Store(nil)
	pc.c.Resume()
	if pc.t.IdleConnTimeout > 0 {
		pc.c.SetTimer(pc.t.IdleConnTimeout)
	}
	err := pc.t.offer(pc)
	x.tracePut(err)
	if err != nil {
		pc.dead = true
		_ = pc.c.Close()
	}
}

func (x *Call) tracePut(err error) {
	if x.trace != nil && x.trace.PutIdleConn != nil && !x.t.DisableKeepAlives {
		x.trace.PutIdleConn(err)
	}
}

// deliver gives decoded bytes to the body's reader, and stops reading at its limit.
func (pc *conn) deliver(p []byte) {
	if pc.body != nil && len(p) > 0 && pc.body.add(p) {
		pc.c.Pause()
	}
}

// newResponse is the response without its body.
func newResponse(x *Call, head *h1.ResponseHead) *http.Response {
	r := &http.Response{
		StatusCode: head.Status, Status: statusLine(head), ProtoMajor: 1, ProtoMinor: head.Minor,
		Proto: "HTTP/1." + string(rune('0'+head.Minor)), Header: headerOf(head.Fields),
		ContentLength: head.ContentLength, Close: !head.KeepAlive, Request: x.original,
	}
	if head.Minor == 1 {
		r.Proto = "HTTP/1.1"
	}
	if head.Chunked {
		r.TransferEncoding = []string{"chunked"}
		delete(r.Header, "Transfer-Encoding")
		announceTrailer(r)
	}
	if head.NoBody && x.req.Method != "HEAD" {
		r.ContentLength = 0
	}
	if v := r.Header["Pragma"]; len(v) > 0 && v[0] == "no-cache" && r.Header["Cache-Control"] == nil {
		r.Header["Cache-Control"] = []string{"no-cache"} // RFC 9111 section 5.4, as net/http has it
	}
	return r
}

func statusLine(head *h1.ResponseHead) string {
	if head.Status == http.StatusOK && string(head.Reason) == "OK" {
		return "200 OK"
	}
	return strconv.Itoa(head.Status) + " " + string(head.Reason)
}

// announceTrailer moves the names of a Trailer field to Response.Trailer.
func announceTrailer(r *http.Response) {
	for _, v := range r.Header["Trailer"] {
		for name := range strings.SplitSeq(v, ",") {
			if name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)); name == "" {
				continue
			}
			if r.Trailer == nil {
				r.Trailer = http.Header{}
			}
			r.Trailer[name] = nil
		}
	}
	delete(r.Header, "Trailer")
}

// headerOf copies fields. All values share two allocations.
func headerOf(fields []h1.Field) http.Header {
	h := make(http.Header, len(fields))
	size := 0
	for _, f := range fields {
		size += len(f.Value)
	}
	var text strings.Builder
	text.Grow(size)
	for _, f := range fields {
		text.Write(f.Value)
	}
	all, values := text.String(), make([]string, len(fields))
	for i, f := range fields {
		value := all[:len(f.Value)]
		all = all[len(f.Value):]
		name := h1.CanonicalName(f.Name)
		if before, there := h[name]; there {
			h[name] = append(before, value)
			continue
		}
		values[i] = value
		h[name] = values[i : i+1 : i+1]
	}
	return h
}

func mimeHeader(head *h1.ResponseHead) textproto.MIMEHeader {
	return textproto.MIMEHeader(headerOf(head.Fields))
}

// switchProtocols gives the connection to the caller: the response's Body is an io.ReadWriteCloser,
// as in net/http.
func (pc *conn) switchProtocols(x *Call, r *http.Response, rest []byte) {
	h, stream := myriad.Stream(0)
	r.ContentLength = 0
	r.Body = &switched{Reader: stream, Writer: stream, Closer: stream}
	if !x.settle(nil) {
		_ = stream.Close()
		pc.broken(errCanceled)
		return
	}
	x.abandonUpload(errServerClosed)
	pc.x.Store(nil)
	pc.due.Store(0)
	pc.c.SetTimer(0)
	pc.c.SetHandler(h, append([]byte(nil), rest...))
	pc.dead = true
	pc.t.closed(pc.host, false)
	x.finish(r, nil)
	x.over()
}

// switched is the Body of a response that has switched protocols.
type switched struct {
	io.Reader
	io.Writer
	io.Closer
}
