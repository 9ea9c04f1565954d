package client_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/myriad-go/myriad/internal/h1"
)

// This file is what a server does with one request: the plan of its answer, and the HTTP/1 server.

// A plan is drawn when a request arrives.
type plan struct {
	early   bool          // it does not wait for the request's body
	stops   bool          // nor does it read the rest of that
	delay   time.Duration // before the head
	goOn    time.Duration // before 100 Continue; negative: there is none
	interim int           // other responses before the final one
	status  int
	size    int
	chunked bool
	bare    bool // it ends with the connection: neither length nor chunks
	trailer bool
	gzip    bool
	pad     int // bytes in a field of the head
	piece   int
	gap     time.Duration // between pieces
	cut     string        // how it ends instead: "hang", "reset", "fin", "rst", "short"; "" is in order
	cutAt   float64       // where: 0 is before the head, 1 the end
	refuse  bool          // HTTP/2: REFUSED_STREAM
	close   bool          // HTTP/1: Connection: close
	idleFor time.Duration // HTTP/1: the idle connection is closed after so long; 0: never
}

// drawPlan draws an answer. Good hosts answer late or early, too, but to the end.
func (h *host) drawPlan(x *request, h2 bool) *plan {
	r, o := h.w.rng, h.w.o
	p := &plan{status: 200, delay: h.w.quick(), goOn: -1, piece: 1 << (4 + r.IntN(12)), trailer: chance(r, 0.1),
		chunked: chance(r, 0.4), size: r.IntN(200)}
	if x.probe || h.w.stopped {
		p.goOn = p.delay
		return p
	}
	if chance(r, 0.7-o.uploads/2) {
		p.goOn = between(r, 0, 20*ms)
	} else if chance(r, 0.5) {
		p.goOn = between(r, 0, 400*ms)
	}
	if chance(r, 0.4) {
		p.size = r.IntN(1 << r.IntN(18))
	}
	if chance(r, 0.2+o.late) {
		p.delay = between(r, 0, 1500*ms)
	}
	if o.crowd {
		p.delay, p.size, p.gap = between(r, 500*ms, 2500*ms), r.IntN(50), 0
	} else if chance(r, 0.3) {
		p.gap = between(r, 0, 50*ms)
		p.piece = max(p.piece, p.size/20)
	}
	p.early = chance(r, 0.2)
	p.stops = p.early && chance(r, 0.3)
	if chance(r, 0.1) {
		p.interim = 1 + r.IntN(3)
	}
	if chance(r, 0.2) {
		p.pad = r.IntN(6000)
	}
	p.gzip = chance(r, 0.3)
	p.status = pick(r, 200, 200, 200, 200, 503, 404, 204)
	if p.bare = chance(r, 0.1); p.bare {
		p.chunked = false
	}
	p.close = chance(r, 0.15)
	if chance(r, 0.15) {
		p.idleFor = between(r, 1, 200*ms)
	}
	if h.evil && chance(r, o.answer) {
		p.cut, p.cutAt = pick(r, "hang", "reset", "fin", "fin"), pick(r, 0, 0.02, 1, r.Float64(), r.Float64())
		if h2 {
			p.cut = pick(r, "hang", "rst", "rst", "reset", "short")
			p.refuse = chance(r, 0.2)
		}
	}
	return p
}

func (p *plan) String() string {
	s := fmt.Sprintf("%d after %v with %d bytes", p.status, p.delay, p.size)
	for _, f := range []struct {
		name string
		on   bool
	}{{"early", p.early}, {"stops reading", p.stops}, {"chunked", p.chunked}, {"until close", p.bare}, {"gzip", p.gzip},
		{"refused", p.refuse}, {"closes", p.close}, {"trailer", p.trailer}} {
		if f.on {
			s += ", " + f.name
		}
	}
	if p.gap > 0 {
		s += fmt.Sprintf(", %d bytes each %v", p.piece, p.gap)
	}
	if p.cut != "" {
		s += fmt.Sprintf(", %s at %.2f", p.cut, p.cutAt)
	}
	if p.idleFor > 0 {
		s += fmt.Sprintf(", closed idle after %v", p.idleFor)
	}
	return s
}

// quick is how long a good server takes.
func (w *world) quick() time.Duration { return between(w.rng, 0, 3*ms) }

// An attempt is a request as it has arrived at a peer.
type attempt struct {
	x      *request
	c      *peerConn // nil at a web.Server
	stream uint32
	plan   *plan
	reused bool // the connection has been idle, or has carried a request

	at       time.Time // its head came
	bodyAt   time.Time // the first byte of its body
	whole    time.Time // all of it has come
	got      int
	told100  time.Time
	began    time.Time // the head of the answer was written
	sent     int       // bytes of the answer's body that were written; with gzip, compressed ones
	answered time.Time // all of it was written

	deed         string // why the request may fail
	notProcessed bool   // and may be sent again, whatever its method
}

// fails notes a deed.
func (a *attempt) fails(format string, args ...any) {
	if a.deed == "" {
		a.deed = fmt.Sprintf(format, args...)
		a.x.note("peer: %s", a.deed)
	}
}

// letters is what bodies are made of; the number of a request shifts it.
var letters = func() []byte {
	p := make([]byte, 1<<19)
	for i := range p {
		p[i] = 'a' + byte(i%23)
	}
	return p
}()

// text is n bytes of a body, from the byte at.
func text(id, at, n int) []byte {
	at += id % 23
	return letters[at%23:][:n]
}

// answerID shifts the bodies of answers.
func answerID(id int) int { return id + 7 }

// data is a piece of the request's body.
func (a *attempt) data(p []byte) {
	if len(p) == 0 {
		return
	}
	if a.bodyAt.IsZero() {
		a.bodyAt = a.x.w.Now()
		a.x.w.judge.bodyCame(a)
	}
	if a.got+len(p) > a.x.size || !bytes.Equal(p, text(a.x.id, a.got, len(p))) {
		a.x.w.judge.broke(a.x, "request body", "bytes %d to %d of the body are wrong", a.got, a.got+len(p))
	}
	a.got += len(p)
}

// complete is the end of the request, in order.
func (a *attempt) complete(trailer http.Header) {
	w := a.x.w
	a.whole = w.Now()
	a.x.note("peer: the request is complete, with %d bytes", a.got)
	if a.got != a.x.size {
		w.judge.broke(a.x, "request body", "it ended in order behind %d bytes of %d", a.got, a.x.size)
	}
	if want := a.x.trailer; want != trailer.Get("X-After") && a.x.hasBody() {
		w.judge.broke(a.x, "request trailer", "%q came, want %q", trailer.Get("X-After"), want)
	}
}

// idOf is the number in a request's path.
func idOf(path string) int {
	n, err := strconv.Atoi(path[strings.LastIndexByte(path, '/')+1:])
	if err != nil {
		return -1
	}
	return n
}

// elsewhere reports whether a request has come on some connection already.
func (w *world) elsewhere(path string) bool {
	id := idOf(path)
	return id >= 0 && id < len(w.requests) && len(w.requests[id].attempts) > 0
}

// arrive begins an attempt.
func (c *peerConn) arrive(path string, stream uint32) *attempt {
	w := c.h.w
	id := idOf(path)
	if id < 0 || id >= len(w.requests) {
		w.judge.broke(nil, "request head", "a request for %q came", path)
		return nil
	}
	x := w.requests[id]
	a := &attempt{x: x, c: c, stream: stream, at: w.Now(), plan: c.h.drawPlan(x, c.h2),
		reused: c.used > 0 || w.Now().Sub(c.ready) > ms}
	x.note("peer: arrived on connection %d (fate %q), stream %d: %v", c.n, c.fate, stream, a.plan)
	w.judge.arrived(a)
	x.attempts = append(x.attempts, a)
	c.used++
	c.last = a
	return a
}

// encoded is the body of an answer.
func (a *attempt) encoded(acceptsGzip bool) []byte {
	p := text(answerID(a.x.id), 0, a.plan.size)
	if a.plan.gzip = a.plan.gzip && acceptsGzip; !a.plan.gzip {
		return p
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(p)
	z.Close()
	return b.Bytes()
}

func (a *attempt) bodiless() bool { return a.x.method == "HEAD" || a.plan.status == 204 }

// parseHead parses the head of an HTTP/1 request with net/http.
func parseHead(p []byte) (r *http.Request, rest []byte, ok bool) {
	end := bytes.Index(p, []byte("\r\n\r\n"))
	if end < 0 {
		return nil, p, false
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(p[:end+4])))
	if err != nil {
		return nil, p, false
	}
	return r, p[end+4:], true
}

// An h1Script is a server of HTTP/1 on one connection.
type h1Script struct {
	c      *peerConn
	in     []byte
	a      *attempt // that is received or answered
	inBody bool
	left   int64
	chunks *h1.Chunked
	inTail bool
	accept bool // gzip
	begun  bool // the answer is under way
	closes bool // the client closes
}

func (s *h1Script) received(p []byte) {
	s.in = append(s.in, p...)
	for s.advance() {
	}
}

func (s *h1Script) ended() {}

// advance takes a head, or a piece of a body.
func (s *h1Script) advance() bool {
	w := s.c.h.w
	switch {
	case len(s.in) == 0:
		return false
	case s.inBody && s.a.plan.stops && s.begun:
		s.in = nil // it is not read
		return false
	case s.inTail:
		n, fields, err := h1.ParseTrailer(s.in, h1.Limits{}, nil)
		if err != nil {
			w.judge.broke(s.a.x, "request trailer", "%v", err)
		}
		if n == 0 {
			return false
		}
		trailer := http.Header{}
		for _, f := range fields {
			trailer.Add(string(f.Name), string(f.Value))
		}
		s.in, s.inTail = s.in[n:], false
		s.complete(trailer)
	case s.inBody && s.chunks != nil:
		n, data, done, err := s.chunks.Decode(s.in)
		if err != nil {
			w.judge.broke(s.a.x, "request body", "%v", err)
			return false
		}
		s.in = s.in[n:]
		s.a.data(data)
		s.inTail = done
	case s.inBody:
		n := min(int64(len(s.in)), s.left)
		s.a.data(s.in[:n])
		s.in, s.left = s.in[n:], s.left-n
		if s.left == 0 {
			s.complete(nil)
		}
	default:
		return s.head()
	}
	return true
}

func (s *h1Script) head() bool {
	r, rest, ok := parseHead(s.in)
	if !ok {
		return false
	}
	w := s.c.h.w
	s.in = rest
	if s.a != nil && (s.a.answered.IsZero() || s.a.whole.IsZero()) {
		w.judge.broke(s.a.x, "order", "another request came before it was over")
	}
	a := s.c.arrive(r.URL.Path, 0)
	if a == nil {
		return false
	}
	s.c.free = time.Time{}
	s.a, s.begun, s.chunks, s.left = a, false, nil, r.ContentLength
	s.accept = r.Header.Get("Accept-Encoding") == "gzip"
	s.closes = r.Close
	if len(r.TransferEncoding) > 0 {
		s.chunks = new(h1.Chunked)
	}
	a.x.checkHead(r.Method, r.Header, r.ContentLength)
	s.inBody = s.chunks != nil || s.left > 0
	expects := r.Header.Get("Expect") == "100-continue" && s.inBody
	if expects && a.plan.goOn >= 0 {
		w.AfterFunc(a.plan.goOn, func() {
			if s.a == a && a.bodyAt.IsZero() && !s.begun {
				if s.c.top.write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); !s.c.dead {
					a.told100 = w.Now()
				}
			}
		})
	}
	if !s.inBody {
		a.plan.early, a.plan.stops = false, false
		s.complete(nil)
	} else if a.plan.early {
		s.answerLater(a)
	}
	return true
}

func (s *h1Script) complete(trailer http.Header) {
	s.inBody = false
	s.a.complete(trailer)
	if !s.a.plan.early {
		s.answerLater(s.a)
	}
	s.rest()
}

func (s *h1Script) answerLater(a *attempt) {
	s.c.h.w.AfterFunc(a.plan.delay, func() { s.answer(a) })
}

// answer writes all of the answer, in pieces, as far as its plan goes.
func (s *h1Script) answer(a *attempt) {
	if s.a != a || s.begun || !s.c.gone.IsZero() {
		return
	}
	s.begun = true
	plan := a.plan
	body := a.encoded(s.accept)
	if plan.stops && a.whole.IsZero() {
		plan.close = true // it could not be used again
	}
	if a.bodiless() {
		plan.bare = false
	}
	var out []byte
	for range plan.interim {
		out = append(out, "HTTP/1.1 103 Early Hints\r\nX-Hint: hint\r\n\r\n"...)
	}
	first := len(out)
	out = fmt.Appendf(out, "HTTP/1.1 %d %s\r\nX-Id: %d\r\nX-Pad: %s\r\n", plan.status,
		http.StatusText(plan.status), a.x.id, letters[:plan.pad])
	if plan.gzip {
		out = append(out, "Content-Encoding: gzip\r\n"...)
	}
	if plan.close || plan.bare {
		out = append(out, "Connection: close\r\n"...)
	}
	chunked := plan.chunked && !a.bodiless()
	switch {
	case plan.status == 204 || plan.bare:
	case chunked:
		out = append(out, "Transfer-Encoding: chunked\r\nTrailer: X-After\r\n"...)
	default:
		out = fmt.Appendf(out, "Content-Length: %d\r\n", len(body))
	}
	out = append(out, "\r\n"...)
	a.x.w.judge.planned(a, len(out)-first)
	bodyAt := len(out) // decoded bytes of the body by their place in out
	count := func(n int) int { return min(max(0, n-bodyAt), len(body)) }
	switch {
	case a.bodiless():
		body = nil
	case chunked:
		var starts, sums []int
		for rest := body; len(rest) > 0; {
			n := min(len(rest), max(plan.piece, 16))
			out = fmt.Appendf(out, "%x\r\n", n)
			starts, sums = append(starts, len(out)), append(sums, len(body)-len(rest))
			out = append(append(out, rest[:n]...), "\r\n"...)
			rest = rest[n:]
		}
		out = append(out, "0\r\n"...)
		if plan.trailer {
			out = fmt.Appendf(out, "X-After: %d\r\n", a.x.id)
		}
		out = append(out, "\r\n"...)
		count = func(n int) (sum int) {
			for i, at := range starts {
				if n >= at {
					next := len(body)
					if i+1 < len(sums) {
						next = sums[i+1]
					}
					sum = sums[i] + min(n-at, next-sums[i])
				}
			}
			return sum
		}
	default:
		out = append(out, body...)
	}
	to := len(out)
	if plan.cut != "" {
		to = min(int(plan.cutAt*float64(len(out))), len(out)-1)
		if plan.cutAt == 1 {
			to = len(out) - 1
		}
		if plan.bare && plan.cut == "fin" && to >= bodyAt {
			plan.cut, to = "", len(out) // which is no cut
		}
	}
	s.writeOn(a, out[:to], 0, count)
}

// writeOn writes piece after piece.
func (s *h1Script) writeOn(a *attempt, out []byte, from int, count func(int) int) {
	if s.a != a || !s.c.gone.IsZero() {
		return
	}
	n := len(out) - from
	if a.plan.gap > 0 {
		n = min(n, max(a.plan.piece, len(out)/30))
	}
	if a.began.IsZero() && n > 0 {
		a.began = s.c.h.w.Now()
	}
	if s.c.top.write(out[from : from+n]); s.c.dead {
		a.fails("the connection stalls in the answer")
		return
	}
	a.sent = count(from + n)
	if from += n; from < len(out) {
		s.c.h.w.AfterFunc(a.plan.gap, func() { s.writeOn(a, out, from, count) })
		return
	}
	s.written(a)
}

func (s *h1Script) written(a *attempt) {
	c := s.c
	switch a.plan.cut {
	case "hang":
		a.fails("the answer stops behind %d bytes of the body", a.sent)
		return
	case "reset":
		a.fails("reset behind %d bytes of the body", a.sent)
		c.end(resetByPeer)
		c.base.Reset()
		return
	case "fin":
		a.fails("closed behind %d bytes of the body", a.sent)
		c.end(endedByPeer)
		c.top.close()
		c.close()
		return
	}
	a.answered = c.h.w.Now()
	a.x.note("peer: the answer is complete, with %d bytes", a.sent)
	if a.plan.close || a.plan.bare {
		if c.spent.IsZero() {
			c.spent = c.h.w.Now()
		}
		if a.plan.bare || a.whole.IsZero() || chance(c.h.w.rng, 0.6) {
			c.h.w.AfterFunc(c.h.w.quick(), func() {
				if a.whole.IsZero() {
					a.fails("closed without having read the request")
				}
				c.top.close()
				c.close()
			})
		}
		return
	}
	if a.plan.idleFor > 0 && a.whole.IsZero() {
		a.plan.idleFor = 0
	}
	if a.plan.idleFor > 0 {
		c.h.w.AfterFunc(a.plan.idleFor, func() {
			if c.gone.IsZero() && !c.dead && (s.a == a || s.a == nil) {
				c.spent = c.h.w.Now()
				c.end("the peer closed it while it was idle")
				c.top.close()
				c.close()
			}
		})
	}
	s.rest()
}

// rest is called when the request, the answer, or the caller's part may be over. When all of them
// are, the connection is free.
func (s *h1Script) rest() {
	a := s.a
	if a == nil || a.answered.IsZero() || a.whole.IsZero() || !a.x.isOver() || !s.c.gone.IsZero() {
		return
	}
	s.a = nil
	if s.closes {
		s.c.spent = s.c.h.w.Now()
	}
	if s.c.spent.IsZero() {
		s.c.free = s.c.h.w.Now()
	}
}

// lose is the end of the connection. why is empty if the client has ended it.
func (s *h1Script) lose(why string) {
	a := s.a
	if a == nil {
		return
	}
	switch {
	case why == broken || why != "" && (a.answered.IsZero() || a.whole.IsZero()):
		a.fails("%s", why)
		return
	case why != "":
		return
	}
	a.x.note("peer: the client has ended connection %d", s.c.n)
	a.x.w.judge.left(a)
}
