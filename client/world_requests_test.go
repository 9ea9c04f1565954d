package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/myriad-go/myriad/client"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// This file is the requests of a world, their bodies, contexts and callers.

// An asking is how a request is made.
type asking struct {
	method  string
	size    int    // of its body
	kind    string // of its body: "" none, "memory", "reader"
	length  bool   // it is known
	replay  bool   // GetBody is there
	failAt  int    // a byte of the body that cannot be read; -1: none
	hangAt  int    // a byte that never comes; -1: none
	piece   int
	gap     time.Duration // before each piece
	first   time.Duration // before the first one
	trailer string
	expect  bool
	keyed   bool // Idempotency-Key
	pad     int  // bytes in a field of the head
	close   bool // Request.Close
	chain   bool // at its end, in the callback, another one begins

	by     string // "RoundTrip", "Do and Read", "Do and OnBody"
	hooks  bool
	reads  string // "all", "slowly", "stops", "closes", "is closed": by another goroutine
	readAt int    // where it stops or closes
	buffer int
	pause  time.Duration

	deadline   time.Duration // of the context; 0: none
	cancel     time.Duration // when the context is cancelled; 0: never
	callCancel time.Duration // the same by Call.Cancel
}

func (w *world) drawAsking(h *host) asking {
	r, o := w.rng, w.o
	a := asking{method: pick(r, "GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "DELETE"), failAt: -1, hangAt: -1,
		by: pick(r, "RoundTrip", "Do and Read", "Do and OnBody"), hooks: chance(r, 0.7), reads: "all",
		buffer: 1 << (6 + r.IntN(10)), piece: 1 << (4 + r.IntN(13))}
	if o.crowd {
		a.by, a.method = pick(r, "Do and OnBody", "Do and OnBody", "RoundTrip"), "GET"
		a.drawTimes(r, o)
		return a
	}
	if a.method == "POST" || a.method == "PUT" || chance(r, max(o.uploads, 0.1)) {
		a.drawBody(r, o)
	}
	switch {
	case chance(r, 0.1):
		a.reads, a.pause = "slowly", between(r, 0, 5*ms)
		a.buffer = max(a.buffer, 4<<10)
	case chance(r, 0.1):
		a.reads, a.pause = pick(r, "stops", "closes", "is closed"), between(r, 0, 400*ms)
		a.readAt = r.IntN(1 << r.IntN(14))
	}
	if chance(r, 0.1) {
		a.pad = r.IntN(7000)
	}
	a.keyed = chance(r, 0.1)
	a.chain = a.by != "RoundTrip" && chance(r, 0.1)
	a.close = chance(r, 0.05)
	a.drawTimes(r, o)
	return a
}

func (a *asking) drawTimes(r *rand.Rand, o *options) {
	if chance(r, o.deadline) {
		a.deadline = pick(r, between(r, ms, 100*ms), 100*ms, 500*ms, between(r, 100*ms, 3000*ms))
	}
	switch {
	case !chance(r, 0.2) || o.crowd && chance(r, 0.7):
	case a.by != "RoundTrip" && chance(r, 0.5):
		a.callCancel = between(r, 1, 500*ms)
	default:
		a.cancel = between(r, 1, 500*ms)
	}
}

func (a *asking) drawBody(r *rand.Rand, o *options) {
	a.kind = pick(r, "memory", "reader", "reader")
	a.size = pick(r, 0, r.IntN(100), r.IntN(1<<r.IntN(18)))
	a.length, a.replay = chance(r, 0.5), chance(r, 0.5)
	if !a.length && chance(r, 0.3) {
		a.trailer = "trailer"
	}
	a.expect = chance(r, max(0.3, o.uploads))
	if a.kind == "memory" {
		return
	}
	if chance(r, 0.5) {
		a.gap = between(r, 0, 20*ms)
		a.piece = max(a.piece, a.size/30)
	}
	if chance(r, 0.4) {
		a.first = between(r, 0, 500*ms)
	}
	switch {
	case chance(r, 0.08):
		a.failAt = r.IntN(a.size + 1)
	case chance(r, 0.08):
		a.hangAt = r.IntN(a.size + 1)
	}
}

func (a asking) String() string {
	s := fmt.Sprintf("%s by %s", a.method, a.by)
	if a.kind != "" {
		s += fmt.Sprintf(", body of %d bytes, %s, length known %v, GetBody %v, first after %v, %d bytes each %v",
			a.size, a.kind, a.length, a.replay, a.first, a.piece, a.gap)
	}
	for _, f := range []struct {
		name  string
		value any
		on    bool
	}{{"fails at", a.failAt, a.failAt >= 0}, {"hangs at", a.hangAt, a.hangAt >= 0}, {"Expect", "", a.expect},
		{"trailer", "", a.trailer != ""}, {"pad", a.pad, a.pad > 0}, {"Request.Close", "", a.close},
		{"idempotency key", "", a.keyed},
		{a.reads, fmt.Sprint("at ", a.readAt, " for ", a.pause), a.reads != "all"},
		{"deadline", a.deadline, a.deadline > 0},
		{"cancelled after", a.cancel, a.cancel > 0}, {"Call.Cancel after", a.callCancel, a.callCancel > 0},
		{"hooks", "", a.hooks}} {
		if f.on {
			s += fmt.Sprintf(", %s %v", f.name, f.value)
		}
	}
	return s
}

// A request is one of a world's, with what has happened to it.
type request struct {
	asking
	w     *world
	id    int
	host  *host
	probe bool // it began after the faults had stopped

	attempts []*attempt
	lists    []int // sizes of answers' heads, as a limit counts them

	mu            sync.Mutex // results come on loops, on goroutines of the world, and on those of package context
	log           []string
	born          time.Time // zero: it has not begun
	call          *client.Call
	ctx           *simContext
	body          *bodyReader // the latest
	bodies        int         // that were made
	closed        int         // and closed
	readAt1       time.Time   // when a body was read first
	gotConn       time.Time
	wrote         time.Time
	conns         int // times that GotConn was called
	headers       int // times that WroteHeaders was
	waits         string
	heads         int // times that the result came
	ends          int // times that its body ended
	err           error
	bodyErr       error
	status        int
	overload      bool // it is an answer of web.Server, not of its handler
	got           int
	answerTrailer string
	endedBy       error // the context's error, or context.Canceled for Call.Cancel
	endedAt       time.Time
	early         bool // the caller closed the body before its end
	over          bool
	overAt        time.Time

	blocked   bool      // when it began, there was no room for it
	waitSince time.Time // the judge's
	reported  bool

	keptRequest weak.Pointer[http.Request]
	keptContext weak.Pointer[simContext]
	keptBody    weak.Pointer[bodyReader]
}

func (x *request) note(format string, args ...any) {
	at := x.w.since()
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.log) < 80 {
		x.log = append(x.log, fmt.Sprintf("%12v %s", at.Round(time.Microsecond), fmt.Sprintf(format, args...)))
	}
}

func (x *request) isOver() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over
}

func (x *request) hasBody() bool { return x.kind != "" && x.size > 0 }

// ask adds a request that begins after d.
func (w *world) ask(h *host, d time.Duration, a asking) *request {
	x := &request{asking: a, w: w, id: len(w.requests), host: h}
	w.requests = append(w.requests, x)
	w.AfterFunc(d, x.begin)
	return x
}

// plain is a GET that nothing disturbs.
func plain() asking {
	return asking{method: "GET", failAt: -1, hangAt: -1, by: "Do and OnBody", hooks: true, reads: "all", buffer: 4096,
		piece: 1000}
}

// chained begins another request to the host of x at once, where x has ended: on a loop, perhaps.
func (w *world) chained(x *request) {
	w.chains.Lock()
	next := &request{asking: plain(), w: w, id: len(w.requests), host: x.host}
	w.requests = append(w.requests, next)
	w.chains.Unlock()
	next.begin()
}

// begin sends the request.
func (x *request) begin() {
	w := x.w
	blocked := x.probe && w.blocked(x.host)
	x.mu.Lock()
	x.born, x.blocked = w.Now(), blocked
	x.mu.Unlock()
	x.note("begins: %v", x.asking)
	req := x.make()
	if x.by == "RoundTrip" {
		w.Go(func() {
			x.waitIn("RoundTrip")
			res, err := w.o.tr.RoundTrip(req)
			x.waitIn("")
			if x.result(res, err) {
				x.read(res)
			}
		})
		return
	}
	x.waitIn("Do")
	call := w.o.tr.Do(req, x.done)
	x.mu.Lock()
	if !x.over {
		x.call = call
	}
	x.mu.Unlock()
	if x.callCancel > 0 {
		w.AfterFunc(x.callCancel, func() {
			x.ending(context.Canceled)
			call.Cancel()
		})
	}
}

// make is the http.Request.
func (x *request) make() *http.Request {
	w := x.w
	base := context.Background()
	if x.hooks {
		base = httptrace.WithClientTrace(base, x.trace())
	}
	if x.deadline > 0 || x.cancel > 0 || x.hooks {
		ctx := &simContext{Context: base, x: x, done: make(chan struct{})}
		x.ctx = ctx
		x.keptContext = weak.Make(ctx)
		if base = ctx; x.deadline > 0 {
			ctx.deadline = w.Now().Add(x.deadline)
			ctx.stop = w.AfterFunc(x.deadline, func() { ctx.end(context.DeadlineExceeded) })
		}
		if x.cancel > 0 {
			w.AfterFunc(x.cancel, func() { x.endContext(context.Canceled) })
		}
	}
	req, err := http.NewRequestWithContext(base, x.method, x.host.url+"/"+strconv.Itoa(x.id), nil)
	if err != nil {
		panic(err)
	}
	x.keptRequest = weak.Make(req)
	switch x.kind {
	case "memory":
		x.memory(req)
	case "reader":
		req.Body = x.newBody()
		if x.replay {
			req.GetBody = func() (io.ReadCloser, error) { return x.newBody(), nil }
		}
	}
	if x.kind != "" {
		if req.ContentLength = int64(x.size); !x.length {
			req.ContentLength = -1
		}
		if x.size == 0 && x.length && x.kind == "memory" {
			req.Body = http.NoBody
		}
	}
	if x.trailer != "" {
		req.Trailer = http.Header{"X-After": {x.trailer}}
	}
	if x.expect {
		req.Header.Set("Expect", "100-continue")
	}
	if x.keyed {
		req.Header.Set("Idempotency-Key", "key")
	}
	if x.pad > 0 {
		req.Header.Set("X-Pad", string(letters[:x.pad]))
	}
	req.Close = x.close
	return req
}

// memory gives a request a body that does not block.
func (x *request) memory(req *http.Request) {
	p := text(x.id, 0, x.size)
	get := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(p)), nil }
	switch x.id % 3 {
	case 0:
		get = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(p))), nil }
	case 1:
		get = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewBuffer(bytes.Clone(p))), nil }
	}
	req.Body, _ = get()
	if x.replay {
		req.GetBody = get
	}
}

// replayable is net/http's rule for requests that a server may have seen.
func (x *request) replayable() bool {
	switch x.method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
	default:
		if !x.keyed {
			return false
		}
	}
	return x.rewindable()
}

func (x *request) rewindable() bool {
	return x.kind == "" || x.replay || x.kind == "memory" && x.size == 0 && x.length
}

// padInH2 is the name of X-Pad where the peer has not made it canonical.
var padInH2 = strings.ToLower("X-Pad")

// checkHead holds a head that came against what was asked.
func (x *request) checkHead(method string, h http.Header, length int64) {
	pad := h.Get("X-Pad") + strings.Join(h[padInH2], "")
	switch {
	case method != x.method:
		x.w.judge.broke(x, "request head", "the method is %q", method)
	case len(pad) != x.pad:
		x.w.judge.broke(x, "request head", "a field has %d bytes of %d", len(pad), x.pad)
	case x.kind != "" && x.length && x.size > 0 && length != int64(x.size):
		x.w.judge.broke(x, "request head", "Content-Length is %d, the body has %d", length, x.size)
	}
}

// trace notes what httptrace tells.
func (x *request) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			now := x.w.Now()
			x.mu.Lock()
			x.gotConn = now
			x.conns++
			first := x.conns == 1
			x.mu.Unlock()
			if first && i.Reused { // a new connection is for the request for which it was dialled
				x.w.judge.overtakes(x)
			}
			x.note("GotConn: reused %v, idle for %v", i.Reused, i.IdleTime)
		},
		WroteHeaders: func() {
			x.mu.Lock()
			x.headers++
			x.mu.Unlock()
			x.note("WroteHeaders")
		},
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			now := x.w.Now()
			x.mu.Lock()
			x.wrote = now
			x.mu.Unlock()
			x.note("WroteRequest: %v", i.Err)
		},
		PutIdleConn: func(err error) { x.note("PutIdleConn: %v", err) },
	}
}

// waitIn notes in which call the caller waits.
func (x *request) waitIn(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waits = what
}

// done is Do's callback.
func (x *request) done(res *http.Response, err error) {
	x.waitIn("")
	if !x.result(res, err) {
		return
	}
	if x.by == "Do and Read" {
		x.w.Go(func() { x.read(res) })
		return
	}
	x.waitIn("OnBody")
	onBody := client.OnBody(res, func(p []byte, err error) {
		x.take(p)
		if err == nil && x.reads == "closes" && !x.isOver() && x.gotten() >= x.readAt {
			x.closes(res.Body)
		}
		if err != nil {
			x.waitIn("")
			x.bodyEnd(err, res)
			res.Body.Close()
		}
	})
	if onBody != nil {
		x.w.judge.broke(x, "result", "OnBody: %v", onBody)
	}
}

// result takes what RoundTrip returned, or Do called with. It reports whether a body follows.
func (x *request) result(res *http.Response, err error) bool {
	x.note("result: %v, error %v", statusOf(res), err)
	x.mu.Lock()
	x.heads++
	x.err = err
	if err == nil {
		x.status = res.StatusCode
	}
	x.mu.Unlock()
	if err != nil {
		x.finish()
		return false
	}
	if x.reads == "is closed" {
		x.w.AfterFunc(x.pause, func() { x.closes(res.Body) })
	}
	id := res.Header.Get("X-Id")
	x.overload = x.host.served && res.StatusCode == http.StatusServiceUnavailable && id == ""
	if id != strconv.Itoa(x.id) && !x.overload {
		x.w.judge.broke(x, "result", "it has the answer to request %q", id)
	}
	return true
}

func statusOf(res *http.Response) any {
	if res == nil {
		return nil
	}
	return res.StatusCode
}

// read reads a body as the asking says.
func (x *request) read(res *http.Response) {
	w, body := x.w, res.Body
	p, stopped := make([]byte, x.buffer), false
	parker := w.NewParker()
	for {
		x.waitIn("Read")
		n, err := body.Read(p)
		x.waitIn("")
		x.take(p[:n])
		if err != nil {
			x.bodyEnd(err, res)
			body.Close()
			return
		}
		switch {
		case x.reads == "slowly":
			parker.ParkFor(x.pause + 1)
		case x.reads == "stops" && x.gotten() >= x.readAt && !stopped:
			stopped = true
			x.note("reads no more for %v", x.pause)
			parker.ParkFor(x.pause + 1)
		case x.reads == "closes" && x.gotten() >= x.readAt:
			x.closes(body)
			return
		}
	}
}

func (x *request) gotten() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.got
}

// closes ends the body early.
func (x *request) closes(body io.Closer) {
	if x.isOver() {
		return
	}
	x.note("closes the body behind %d bytes", x.gotten())
	x.mu.Lock()
	x.early = true
	x.mu.Unlock()
	body.Close()
	x.finish()
}

// take is a piece of the answer's body.
func (x *request) take(p []byte) {
	x.mu.Lock()
	at := x.got
	x.got += len(p)
	x.mu.Unlock()
	if !x.overload && !bytes.Equal(p, text(answerID(x.id), at, len(p))) {
		x.w.judge.broke(x, "answer body", "bytes %d to %d are wrong", at, at+len(p))
	}
}

func (x *request) bodyEnd(err error, res *http.Response) {
	if err == io.EOF {
		x.mu.Lock()
		x.answerTrailer = res.Trailer.Get("X-After")
		x.mu.Unlock()
	}
	x.note("the body ends behind %d bytes: %v", x.gotten(), err)
	x.mu.Lock()
	x.ends++
	x.bodyErr = err
	x.mu.Unlock()
	x.finish()
}

// finish is the end of the request for its caller.
func (x *request) finish() {
	now := x.w.Now()
	x.mu.Lock()
	first := !x.over
	defer func() {
		if first && x.chain && !x.w.stopped {
			x.w.chained(x)
		}
	}()
	defer x.mu.Unlock()
	if first {
		x.over, x.overAt = true, now
		if x.ctx != nil && x.ctx.stop != nil {
			x.ctx.stop()
		}
	}
	x.ctx, x.call = nil, nil
	if x.body != nil {
		x.keptBody = weak.Make(x.body)
	}
	x.body = nil
}

// ending notes that the caller ends the request, which must be over a moment later.
func (x *request) ending(err error) {
	now := x.w.Now()
	x.mu.Lock()
	first := x.endedBy == nil && !x.over
	if first {
		x.endedBy, x.endedAt = err, now
	}
	x.mu.Unlock()
	if !first {
		return
	}
	x.note("ends: %v", err)
	x.w.AfterFunc(x.w.tolerance(), func() {
		x.mu.Lock()
		late := !x.over && x.waits != ""
		where := x.waits
		x.mu.Unlock()
		if late {
			x.w.judge.broke(x, "own end", "it still waits in %s %v after %v", where, x.w.tolerance(), err)
		}
	})
}

// endContext ends the request's context, if it has one.
func (x *request) endContext(err error) {
	x.mu.Lock()
	ctx, call := x.ctx, x.call
	x.mu.Unlock()
	switch {
	case ctx != nil:
		ctx.end(err)
	case call != nil:
		x.ending(err)
		call.Cancel()
	}
}

// since is how long the world has lasted.
func (w *world) since() time.Duration { return w.Now().Sub(sim.Epoch) }
