package client

import (
	"net/http"
	"net/textproto"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
	"github.com/myriad-go/myriad/internal/mux"
)

const (
	// maxRefusals is how often a request is sent again because the server has not processed it.
	maxRefusals = 7
	// firstDelay is how long the second of these attempts waits; each one that follows waits twice
	// as long. The first one begins at once.
	firstDelay = 100 * time.Millisecond
)

// A stream carries one attempt of a call on an HTTP/2 connection. Its methods without another word
// are the loop's.
type stream struct {
	mux.Stream
	m     *muxConn
	x     atomic.Pointer[Call] // whose attempt it is; nil: it was cancelled, or is over
	freed atomic.Bool          // it does not count as busy

	up   *upload
	head []byte // of the request, not taken yet; the upload's

	// The loop's.
	call     *Call // that was begun; nil behind Ended
	body     *body
	waits    wait
	wait     *streamWait // nil: none
	headed   bool        // the final head has come
	whole    bool        // and the end of the response
	declined bool        // its status has ended the upload
	interim  int         // bytes of interim responses
}

// begin sends the request.
func (st *stream) begin(x *Call) {
	up := &upload{x: x, st: st, payload: noPayload}
	reused := st.m.carried
	st.m.carried = true
	if !x.carried(st, up, reused) { // cancelled
		st.Cancel(h2.Cancel)
		return
	}
	defer x.release()
	err := up.frame()
	to, invalid := pseudoTarget(x.req)
	if err == nil {
		err = invalid
	}
	if err != nil {
		st.Cancel(h2.Cancel)
		x.fail(err)
		return
	}
	st.call, st.up = x, up
	x.setPhase(Sent)
	x.trace.gotConn(st.m.c, reused, reused, 0)
	switch {
	case x.isHead:
		st.WithoutBody()
	case x.isConnect:
		st.Tunnel()
	}
	if !up.probe {
		st.head = up.appendPairs(nil, to)
	}
	up.final = up.body == nil
	switch {
	case up.probe:
		st.m.wait(st, forBody, probeTimeout)
	case up.expects:
		st.m.wait(st, forContinue, x.t.ExpectContinueTimeout)
	}
	st.x.Store(x)
	if x.isSettled() {
		st.drop(x, errCanceled)
		return
	}
	up.start()
}

func (st *stream) more() { st.Notify() }

func (st *stream) read() { st.Notify() }

// drop resets the stream if it is the call's still. Any goroutine.
func (st *stream) drop(x *Call, _ error) {
	if st.x.CompareAndSwap(x, nil) {
		st.free()
		st.Cancel(h2.Cancel)
	}
}

// free has the connection count as idle before the caller knows that its call is over, so that
// CloseIdleConnections finds it. Any goroutine.
func (st *stream) free() {
	if !st.freed.Swap(true) {
		st.m.busy.Add(-1)
	}
}

// fail ends the call, or its body, because the request's body cannot be read. Any goroutine.
func (st *stream) fail(x *Call, err error) {
	st.drop(x, err)
	if x.settle(nil) {
		x.finish(nil, err)
		return
	}
	x.mu.Lock()
	b := x.body
	x.mu.Unlock()
	if b != nil {
		b.fail(x.wrap(err))
	}
	x.over(err)
}

// endWait ends the stream's wait, if there is one.
func (st *stream) endWait() {
	if st.wait != nil {
		st.wait.st = nil
		st.wait = nil
	}
	st.waits = forNothing
}

// expired is the end of the time that the stream's wait may last.
func (st *stream) expired() {
	waited, x := st.waits, st.x.Load()
	if waited != forContinue {
		st.endWait()
	}
	switch {
	case x == nil:
	case waited == forContinue:
		st.goAhead()
	case waited == forBody && !st.up.wrote.Load():
		st.up.probed()
	case waited == forHead && !st.headed:
		st.drop(x, errHeaderTimeout2)
		x.fail(errHeaderTimeout2)
	case waited == forUpload:
		st.drop(x, errAbandoned)
		x.over(errAbandoned)
	}
}

// goAhead sends the body of a request that has waited for 100 Continue.
func (st *stream) goAhead() {
	if st.waits == forContinue {
		st.endWait()
		st.up.goAhead()
	}
}

// Head is a response's head.
func (st *stream) Head(h *h2.Head, last bool) h2.Code {
	x := st.x.Load()
	if x == nil {
		return h2.Cancel
	}
	if !x.gotByte.Swap(true) {
		x.setPhase(Head)
		x.trace.gotFirstByte()
	}
	if h.TooLarge {
		return st.refuse(x, x.t.headTooLarge())
	}
	if h.Status < 200 {
		return st.takeInterim(x, h)
	}
	st.headed = true
	if h.Status > 299 {
		st.decline()
	} else {
		st.goAhead()
	}
	st.endWait()
	r := st.response(x, h)
	if last {
		r.Body = http.NoBody
		if r.ContentLength < 0 && !x.isHead {
			r.ContentLength = 0
		}
		if !x.settle(nil) {
			return h2.Cancel
		}
		st.responded(x)
		x.finish(r, nil)
		return h2.NoError
	}
	b := &body{exchange: st, call: x, response: r, throttling: throttling{credit: max(1, min(st.m.t.mux.Window,
		maxBodyBuffer)/2)}}
	r.Body = b
	decompress(x, r)
	if !x.settle(b) {
		return h2.Cancel
	}
	st.body = b
	x.finish(r, nil)
	return h2.NoError
}

// decline ends the upload, because the response's status says that the server does not want it. A
// status of 2xx does not say so: the server may answer while it reads. net/http has the same rule.
func (st *stream) decline() {
	if st.declined = !st.sent(); st.declined {
		st.up.stopFor(errAbandoned)
	}
}

// sent reports whether all of the request has left.
func (st *stream) sent() bool { return st.up.wrote.Load() && st.Queued() == 0 }

func (st *stream) refuse(x *Call, err error) h2.Code {
	st.x.Store(nil)
	x.fail(err)
	return h2.Cancel
}

// takeInterim is a response that another one follows.
func (st *stream) takeInterim(x *Call, h *h2.Head) h2.Code {
	if h.Status == http.StatusContinue {
		x.trace.got100()
		st.goAhead()
	}
	header := func() textproto.MIMEHeader { return textproto.MIMEHeader(headerOfPairs(h.Fields)) }
	if called, err := x.trace.got1xx(h.Status, header); err != nil {
		return st.refuse(x, err)
	} else if called {
		return h2.NoError
	}
	for _, f := range h.Fields {
		st.interim += len(f.Name) + len(f.Value) + 32
	}
	if st.interim += 42; st.interim > x.t.limits(0).HeadBytes {
		return st.refuse(x, ErrInterim)
	}
	return h2.NoError
}

func (st *stream) response(x *Call, h *h2.Head) *http.Response {
	r := &http.Response{StatusCode: h.Status, Status: strconv.Itoa(h.Status) + " " + http.StatusText(h.Status),
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: headerOfPairs(h.Fields), ContentLength: h.Length,
		Request: x.original, TLS: st.m.tls}
	announceTrailer(r)
	return r
}

func headerOfPairs(fields []hpack.Field) http.Header {
	h := make(http.Header, len(fields))
	for _, f := range fields {
		name := h1.CanonicalName([]byte(f.Name))
		h[name] = append(h[name], f.Value)
	}
	return h
}

// Data is a piece of the body.
func (st *stream) Data(p []byte, last bool) {
	if st.body == nil {
		return
	}
	if len(p) > 0 {
		st.body.add(p)
	}
	if last {
		st.end()
	}
}

// Trailers end the body.
func (st *stream) Trailers(fields []hpack.Field) {
	if st.body != nil {
		st.body.setTrailer(headerOfPairs(fields))
		st.end()
	}
}

// end is the orderly end of a response with a body.
func (st *stream) end() {
	st.responded(st.call)
	st.body.end()
}

// responded is called when the response is complete. A request that is still under way goes on
// until the response has been read to its end, and uploadGrace longer, as over HTTP/1.
func (st *stream) responded(x *Call) {
	st.whole = true
	switch {
	case st.sent():
		st.x.Store(nil)
		st.free()
		x.over(errAbandoned)
	case st.declined:
		st.drop(x, errAbandoned)
		x.over(errAbandoned)
	case st.body == nil || st.body.awaitRead():
		st.m.wait(st, forUpload, uploadGrace)
	}
}

// Credit is what the reader of the body has consumed. It is called after Notify, and so also when
// the response has been read to its end.
func (st *stream) Credit() int {
	if st.call != nil && st.whole && st.waits != forUpload && st.body != nil && st.body.isRead() {
		st.m.wait(st, forUpload, uploadGrace)
	}
	if st.body == nil {
		return 1 << 30 // no reader will come for it
	}
	return st.body.consumed()
}

// Room lets the upload go on. Behind its end the wait for the head begins: what the server's limits
// hold back does not count as the server's delay.
func (st *stream) Room() {
	switch d := st.m.t.ResponseHeaderTimeout; {
	case st.up == nil:
	case !st.Sent():
		st.up.room()
	case d > 0 && st.call != nil && !st.headed:
		st.m.wait(st, forHead, d)
	}
}

// Ended is the end of the stream. A request that the server has not processed is sent again (RFC
// 9113 section 8.7); no other one is, as with net/http.
func (st *stream) Ended(code h2.Code, err error) {
	call, x, b := st.call, st.x.Swap(nil), st.body
	st.call, st.body = nil, nil
	st.endWait()
	st.Release()
	st.free()
	if call != nil && !st.headed && !call.gotByte.Load() && x == nil {
		st.m.gaveUp()
	}
	defer st.m.serve()
	switch {
	case x == nil: // it was cancelled, or is over
	case b != nil:
		err = x.wrap(st.m.endError(err, true))
		b.fail(err)
		x.over(err)
	case st.headed: // it has its response; a server may reset the rest of the request
		x.over(errAbandoned)
	case code == h2.RefusedStream:
		x.refused(st.m.endError(err, false))
	default:
		x.fail(st.m.endError(err, false))
	}
}
