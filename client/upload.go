package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/flow"
	"github.com/myriad-go/myriad/internal/h1"
)

// This file sends a request: it finds out how the body is framed, reads and encodes it, and writes
// it behind the head.

const (
	// firstWrite is how much of a body in memory leaves in one write with the head.
	firstWrite = 64 << 10
	// probeTimeout is how long a request that usually has no body waits to find out whether it has
	// one, as in net/http.
	probeTimeout = 200 * time.Millisecond
	// keptHead is the size up to which a buffer of a head is used again.
	keptHead = 4 << 10
	// uploadSlice is how much of a body is read and written at a time.
	uploadSlice = 32 << 10
)

// An upload writes the request of one attempt. A body in memory is written by the caller's
// goroutine and by the loop. Any other body is read by a goroutine of its own, because its Read may
// block and the response may come first.
type upload struct {
	x  *Call
	pc *conn   // of HTTP/1
	st *stream // of HTTP/2
	*payload

	began   atomic.Bool // the connection has taken a byte
	wrote   atomic.Bool // and the last one
	stopped atomic.Bool
	whole   bool                  // it is written at once
	final   bool                  // pending has the end
	traced  bool                  // WroteHeaders was called; by one goroutine at a time
	readErr atomic.Pointer[error] // of the body

	mu      sync.Mutex // is held while the request is read, but for a body that may block
	buffer  *[]byte    // of the pool, which pending begins with
	pending []byte     // encoded, not taken yet
}

// begin writes the head, and what it can of the body. The caller has the connection. From the
// moment in which it shows the loop its call, the loop may take it away.
func (u *upload) begin() {
	pc, x := u.pc, u.x
	pc.up, pc.size = u, 0
	u.mu.Lock()
	if !u.probe {
		u.buffer = x.t.heads.Get().(*[]byte)
		u.pending = u.appendHead((*u.buffer)[:0])
	}
	switch {
	case u.body == nil:
		u.final, pc.size = true, len(u.pending)
	case u.memory && !u.expects:
		if u.fill(firstWrite); u.final {
			pc.size = len(u.pending)
		}
	}
	u.whole = pc.size > 0
	switch d := x.t.ResponseHeaderTimeout; {
	case u.probe:
		pc.waitFor(forBody, probeTimeout)
	case u.expects:
		pc.waitFor(forContinue, x.t.ExpectContinueTimeout)
	case u.whole && d > 0:
		pc.waitFor(forHead, d)
	}
	pc.x.Store(x)
	u.mu.Unlock()
	if x.isSettled() { // cancelled before it could be found here
		pc.drop(x, errCanceled)
		return
	}
	u.start()
}

// start is the part of begin that writes.
func (u *upload) start() {
	x := u.x
	switch {
	case u.body == nil || u.memory && !u.expects:
		u.pump()
	case u.expects:
		u.pumpHead()
		x.trace.wait100()
	default:
		x.t.sys.Go(u.stream)
	}
}

// write queues bytes, on HTTP/2 with the head before them and the end behind them.
func (u *upload) write(p []byte) error {
	if u.st == nil {
		_, err := u.pc.c.Write(p)
		return err
	}
	last := u.final && u.trailer == nil
	if err := u.st.Put(u.st.head, p, last); err != nil {
		if errors.Is(err, flow.ErrFull) {
			return myriad.ErrFull
		}
		return err
	}
	u.st.head = nil
	if u.final && !last {
		return u.st.End(u.trailer)
	}
	return nil
}

// pumpHead writes the head alone.
func (u *upload) pumpHead() {
	u.mu.Lock()
	head := u.pending
	u.buffer, u.pending = nil, nil
	u.mu.Unlock()
	u.traceHeaders()
	u.began.Store(true)
	if err := u.write(head); err != nil { // the queue of a connection between two requests takes a head
		u.began.Store(false)
		u.refused(err)
	}
}

// goAhead sends the body behind the head. On the loop.
func (u *upload) goAhead() {
	if u.memory {
		u.pump()
		return
	}
	u.x.t.sys.Go(u.stream)
}

// decline ends the upload without its body.
func (u *upload) decline() { u.close() }

// room is called on the loop when the connection's queue has room.
func (u *upload) room() {
	if u.memory || u.body == nil {
		u.pump()
	} else if u.parker != nil {
		u.parker.Unpark()
	}
}

// pump writes what does not block, until the connection's queue is full.
func (u *upload) pump() {
	if !u.x.hold() {
		return
	}
	defer u.x.release()
	u.mu.Lock()
	for !u.wrote.Load() && !u.stopped.Load() {
		if len(u.pending) == 0 && !u.final {
			u.fill(uploadSlice)
		}
		if u.readErr.Load() != nil {
			u.mu.Unlock()
			u.failed()
			return
		}
		if !u.began.Load() {
			u.traceHeaders()
		}
		if u.final && u.whole {
			u.wrote.Store(true) // a refusal can take that back before anything has come
		}
		before := u.began.Swap(true) // the server's reaction may be quicker than this goroutine
		if err := u.write(u.pending); err != nil {
			u.wrote.Store(false)
			u.began.Store(before)
			u.mu.Unlock()
			if !errors.Is(err, myriad.ErrFull) {
				u.refused(err)
			}
			return
		}
		u.pending = u.pending[:0]
		if u.final {
			u.recycle()
			u.mu.Unlock()
			u.done()
			return
		}
	}
	u.mu.Unlock()
}

// stream is the goroutine of a body that may block.
func (u *upload) stream() {
	buffer := make([]byte, uploadSlice)
	if u.probe {
		n, err := u.src.Read(buffer)
		if !u.x.hold() {
			return
		}
		u.mu.Lock()
		if !u.decided {
			u.decided = true
			if n == 0 && err == io.EOF {
				u.chunked, u.length, u.left = false, 0, 0
			}
			u.makeHead()
		}
		u.encode(buffer[:n], err)
		u.mu.Unlock()
		u.x.release()
	}
	if u.waits() {
		u.traceHeaders()
	}
	for !u.stopped.Load() {
		if u.readErr.Load() != nil {
			u.failed()
			return
		}
		if (u.waits() || u.st != nil && u.final) && !u.push() {
			return
		}
		if u.final {
			u.done()
			return
		}
		n, err := u.src.Read(buffer)
		if !u.x.hold() {
			return
		}
		u.mu.Lock()
		u.encode(buffer[:n], err)
		u.mu.Unlock()
		u.x.release()
	}
}

// waits reports whether there is something to write.
func (u *upload) waits() bool { return len(u.pending) > 0 || u.st != nil && u.st.head != nil }

// makeHead encodes the head that a probe has held back.
func (u *upload) makeHead() {
	if u.st != nil {
		to, _ := pseudoTarget(u.x.req) // it was checked when the stream began
		u.st.head = u.appendPairs(nil, to)
	} else {
		u.pending = u.appendHead(nil)
	}
}

// probed sends the head when the body's first Read has taken too long: there is a body. On the
// loop.
func (u *upload) probed() {
	if !u.x.hold() {
		return
	}
	defer u.x.release()
	u.mu.Lock()
	if u.decided {
		u.mu.Unlock()
		return
	}
	u.decided = true
	u.makeHead()
	head := u.pending
	u.pending = nil
	u.began.Store(true)
	err := u.write(head)
	u.traceHeaders()
	u.mu.Unlock()
	if err != nil { // the queue of a connection between two requests takes a head
		u.began.Store(false)
		u.refused(err)
	}
}

// push writes what is pending, and waits for room.
func (u *upload) push() bool {
	for !u.stopped.Load() {
		before := u.began.Swap(true)
		err := u.write(u.pending)
		if err != nil {
			u.began.Store(before)
		}
		switch {
		case err == nil:
			u.pending = u.pending[:0]
			return true
		case errors.Is(err, myriad.ErrFull):
			u.parker.Park()
		default:
			u.refused(err)
			return false
		}
	}
	return false
}

// recycle gives the buffer back, unless it has grown. mu is held, or the goroutine is the only one
// that writes.
func (u *upload) recycle() {
	if u.buffer != nil && cap(u.pending) <= keptHead {
		*u.buffer = u.pending[:0]
		u.x.t.heads.Put(u.buffer)
	}
	u.buffer, u.pending = nil, nil
}

// done is the end of an upload. The loop goes on from there: with the wait for the head, or because
// the response is complete.
func (u *upload) done() {
	u.close()
	u.x.trace.wroteRequest(nil)
	u.wrote.Store(true)
	if u.st == nil && !u.whole {
		u.pc.c.Notify()
	}
}

// failed ends the call because its body cannot be read.
func (u *upload) failed() {
	err := *u.readErr.Load()
	u.close()
	u.x.trace.wroteRequest(err)
	if u.st != nil {
		u.st.fail(u.x, err)
		return
	}
	u.pc.c.Abort(err)
}

// refused is for a connection that is closed, or closing.
func (u *upload) refused(err error) {
	u.x.trace.wroteRequest(err)
	if u.pc != nil && u.pc.gone.Load() && u.pc.x.CompareAndSwap(u.x, nil) { // else Closed is still to come
		u.x.attemptFailed(closedError(u.pc.c, nil, false))
	}
}

// stopFor ends the upload from outside: its call is over, or tries again.
func (u *upload) stopFor(error) {
	u.stopped.Store(true)
	u.mu.Lock() // what reads the request holds it
	//lint:ignore SA2001 the end of that is waited for
	u.mu.Unlock()
	if u.parker == nil {
		u.close()
		return
	}
	u.parker.Unpark()
	if !u.closing.Load() {
		u.x.t.sys.Go(u.close) // it may block, and this may be the loop
	}
}

// close closes the request's body, once. A second caller does not wait for the first.
func (u *upload) close() {
	if u.body != nil && u.closing.CompareAndSwap(false, true) {
		_ = u.body.Close()
	}
}

// traceHeaders is called by what writes the head, which may have to try again.
func (u *upload) traceHeaders() {
	if !u.traced {
		u.traced = true
		u.x.trace.wroteHeaders()
	}
}

// A payload is the body of a request.
type payload struct {
	body    io.ReadCloser // nil: none
	src     io.Reader     // body, or what is wrapped in it
	length  int64         // -1: unknown
	memory  bool          // src does not block
	chunked bool
	probe   bool          // whether there is a body shows when it is read
	expects bool          // 100 Continue
	closing atomic.Bool   // body is closed, or is being closed
	parker  driver.Parker // of the goroutine

	left    int64  // guarded by upload.mu: of a body with a length
	decided bool   // guarded by upload.mu: of a probe, the head is made
	trailer []byte // of HTTP/2, encoded; with final
}

// noPayload is that of all requests without a body, most of them. It is not written to.
var noPayload = &payload{}

// frame finds out how the body is framed, as net/http does.
func (u *upload) frame() error {
	x, r := u.x, u.x.req
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	u.payload = &payload{body: r.Body, length: r.ContentLength}
	if u.src, u.memory = inMemory(r.Body); !u.memory {
		u.parker = x.t.sys.NewParker()
	}
	if u.length == 0 {
		u.length = -1
	}
	if u.st == nil && len(r.TransferEncoding) > 0 && r.TransferEncoding[0] == "chunked" {
		u.length = -1
	}
	u.left = u.length
	if u.length < 0 && x.method() != "CONNECT" {
		u.chunked = true
		if usuallyLacksBody(x.method()) && len(r.TransferEncoding) == 0 {
			if l, ok := u.src.(interface{ Len() int }); u.memory && ok && l.Len() == 0 {
				u.chunked, u.body, u.length = false, nil, 0
				return r.Body.Close()
			}
			u.probe = !u.memory
		}
	}
	if u.chunked || u.st != nil {
		for name := range r.Trailer {
			switch name = http.CanonicalHeaderKey(name); name {
			case "Transfer-Encoding", "Trailer", "Content-Length":
				return fmt.Errorf("%sinvalid Trailer key %q", u.scope(), name)
			}
		}
	}
	if u.st != nil {
		u.chunked = false // HTTP/2 frames bodies by itself
	}
	u.expects = x.t.ExpectContinueTimeout > 0 && !u.probe && expectsContinue(r)
	return nil
}

func usuallyLacksBody(method string) bool {
	switch method {
	case "GET", "HEAD", "DELETE", "OPTIONS", "PROPFIND", "SEARCH":
		return true
	}
	return false
}

func expectsContinue(r *http.Request) bool {
	for _, v := range r.Header["Expect"] {
		for member := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(member), "100-continue") {
				return true
			}
		}
	}
	return false
}

var (
	nopCloser         = reflect.TypeOf(io.NopCloser(nil))
	nopCloserWriterTo = reflect.TypeOf(io.NopCloser(struct {
		io.Reader
		io.WriterTo
	}{}))
)

// inMemory looks into what http.NewRequest makes of a body.
func inMemory(body io.ReadCloser) (src io.Reader, memory bool) {
	src = body
	if t := reflect.TypeOf(body); t == nopCloser || t == nopCloserWriterTo {
		src = reflect.ValueOf(body).Field(0).Interface().(io.Reader)
	}
	switch src.(type) {
	case *bytes.Reader, *bytes.Buffer, *strings.Reader:
		return src, true
	}
	return body, false
}

// fill reads and encodes up to n bytes, and what ends the body.
func (u *upload) fill(n int) {
	if cap(u.pending)-len(u.pending) < 64 { // most bodies are small
		u.pending = append(make([]byte, 0, len(u.pending)+min(n, u.guess())+64), u.pending...)
	}
	p := make([]byte, min(n, u.guess()))
	read := 0
	err := error(nil)
	for read < len(p) && err == nil {
		var k int
		k, err = u.src.Read(p[read:])
		read += k
	}
	u.encode(p[:read], err)
}

// guess is how many bytes of a body in memory may be left.
func (u *upload) guess() int {
	if l, ok := u.src.(interface{ Len() int }); ok {
		return l.Len() + 1 // a Read of more than there is shows the end
	}
	return uploadSlice
}

// encode appends body bytes, and its end if err is io.EOF.
func (u *upload) encode(p []byte, err error) {
	if u.chunked {
		u.pending = h1.AppendChunk(u.pending, p)
	} else {
		if u.length >= 0 && int64(len(p)) > u.left {
			u.failWith(u.tooLong(len(p)))
			return
		}
		u.left -= int64(len(p))
		u.pending = append(u.pending, p...)
	}
	switch {
	case err == nil:
		return
	case err != io.EOF:
		u.failWith(err)
		return
	case u.length >= 0 && u.left > 0:
		u.failWith(fmt.Errorf("http: ContentLength=%d with Body length %d", u.length, u.length-u.left))
		return
	}
	u.final = true
	switch {
	case u.st != nil:
		u.trailer = appendTrailer(nil, u.x.req.Trailer)
	case u.chunked:
		u.pending = append(u.pending, h1.LastChunk...)
		u.pending = appendFields(u.pending, u.x.req.Trailer, noTrace, false)
		u.pending = append(u.pending, "\r\n"...)
	}
}

// tooLong is the error of a body of which n bytes have come while less were left. As in net/http it
// says how long the body is, which may be longer still.
func (u *upload) tooLong(n int) error {
	if u.st != nil {
		return errors.New("http2: request body larger than specified content length")
	}
	return fmt.Errorf("http: ContentLength=%d with Body length %d", u.length, u.length-u.left+int64(n))
}

// scope is how net/http begins the errors of a protocol.
func (u *upload) scope() string {
	if u.st != nil {
		return "http2: "
	}
	return ""
}

func (u *upload) failWith(err error) { u.readErr.CompareAndSwap(nil, &err) }
