//lint:file-ignore SA1019 Request.Cancel is deprecated, but programs and http.Client still set it

package client

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/h1"
)

// A Call is one request under way, through all of its attempts.
type Call struct {
	t        *Transport
	original *http.Request // the caller's
	req      *http.Request // with the body of the current attempt
	trace    *httptrace.ClientTrace
	addr     string // of the server, with its port
	proxy    *url.URL
	done     func(*http.Response, error) // nil: RoundTrip waits by parker
	parker   driver.Parker
	phase    atomic.Uint32

	// Guarded by Transport.mu.
	host       *host    // that the latest attempt is for
	dial       *dialing // that was begun for it
	waits      bool     // in its host's queue
	next, prev *Call    // there

	mu      sync.Mutex
	settled bool        // guarded by mu: the result is decided
	link    link        // guarded by mu: of the current attempt
	body    *body       // guarded by mu: of the response
	stop    func() bool // guarded by mu: ends the watch of the context

	refusals int         // attempts that an HTTP/2 server has not processed
	up       *upload     // of the current attempt
	gzip     bool        // the Transport has asked for it
	gotByte  atomic.Bool // of a response to the current attempt
	reused   bool        // the connection has been idle, or has carried another call
	response *http.Response
	err      error
	finished atomic.Bool
}

// Phase is how far the call has come. Any goroutine.
func (x *Call) Phase() Phase { return Phase(x.phase.Load()) }

// Cancel ends the call, as the end of its context does. Any goroutine.
func (x *Call) Cancel() { x.cancel(context.Canceled) }

// setPhase has no effect on a call that is over.
func (x *Call) setPhase(p Phase) {
	for {
		old := x.phase.Load()
		if old == uint32(Done) || old == uint32(p) {
			return
		}
		if x.phase.CompareAndSwap(old, uint32(p)) {
			x.t.figures.move(Phase(old), p)
			return
		}
	}
}

// prepare checks the request, with the errors of net/http, and finds out where it goes.
func (x *Call) prepare() (key hostKey, err error) {
	r := x.req
	switch {
	case r.URL == nil:
		return key, fmt.Errorf("client: nil Request.URL")
	case r.Header == nil:
		return key, fmt.Errorf("client: nil Request.Header")
	case r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return key, fmt.Errorf("client: unsupported protocol scheme %q: use http or https", r.URL.Scheme)
	case r.Method != "" && !h1.IsToken(r.Method):
		return key, fmt.Errorf("client: invalid method %q", r.Method)
	case r.URL.Host == "":
		return key, fmt.Errorf("client: no Host in request URL")
	case r.ContentLength != 0 && r.Body == nil:
		return key, fmt.Errorf("client: Request.ContentLength=%d with nil Body", r.ContentLength)
	}
	if err = checkFields("header", r.Header); err != nil {
		return key, err
	}
	if err = checkFields("trailer", r.Trailer); err != nil {
		return key, err
	}
	if x.t.Proxy != nil {
		if x.proxy, err = x.t.Proxy(r); err != nil {
			return key, err
		}
	}
	x.addr = canonicalAddr(r.URL)
	return keyFor(r, x.proxy, x.addr)
}

// checkFields leaves out the value, which may be a secret.
func checkFields(what string, fields http.Header) error {
	for name, values := range fields {
		if !h1.IsToken(name) {
			return fmt.Errorf("client: invalid %s field name %q", what, name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return fmt.Errorf("client: invalid %s field value for %q", what, name)
			}
		}
	}
	return nil
}

// watch has the call end with its context, or by Request.Cancel.
func (x *Call) watch() error {
	ctx := x.req.Context()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if ctx.Done() != nil {
		x.mu.Lock()
		x.stop = context.AfterFunc(ctx, func() { x.cancel(context.Cause(ctx)) })
		x.mu.Unlock()
	}
	if x.original.Cancel != nil {
		x.watchCancel(ctx)
	}
	return nil
}

// watchCancel is for the deprecated Request.Cancel. http.Client.Timeout sets it, but then the
// context has a deadline and CancelRequest is called, so no goroutine need wait for it.
func (x *Call) watchCancel(ctx context.Context) {
	t := x.t
	t.mu.Lock()
	if t.calls == nil {
		t.calls = map[*http.Request]*Call{}
	}
	t.calls[x.original] = x
	t.mu.Unlock()
	if _, bounded := ctx.Deadline(); bounded {
		return
	}
	over := make(chan struct{})
	x.mu.Lock()
	stop := x.stop
	x.stop = func() bool {
		close(over)
		return stop == nil || stop()
	}
	x.mu.Unlock()
	t.sys.Go(func() {
		select {
		case <-x.original.Cancel:
			x.cancel(errCanceled)
		case <-over:
		}
	})
}

// cancel ends the call with err, wherever it is: also its body, until that has come to its end. Any
// goroutine.
func (x *Call) cancel(err error) {
	x.mu.Lock()
	settled, l, b := x.settled, x.link, x.body
	x.settled = true
	x.mu.Unlock()
	switch {
	case settled && b != nil:
		b.giveUp(x.wrap(err))
	case settled:
	case l == nil:
		x.t.dequeue(x)
		x.finish(nil, x.wrap(err))
	default:
		err = x.wrap(err)
		l.drop(x, err)
		x.finish(nil, err)
	}
}

// drop ends the connection if it is the call's still. Any goroutine.
func (pc *conn) drop(x *Call, err error) {
	switch {
	case !pc.x.CompareAndSwap(x, nil):
	case x.method() == "CONNECT" && err == errBodyClosed: // what was written into the tunnel is sent
		_ = pc.c.Close()
	default:
		pc.c.Abort(err)
	}
}

func (pc *conn) more() { pc.c.Notify() }

// fail ends the call with err, unless its result is decided.
func (x *Call) fail(err error) {
	if x.settle(nil) {
		x.finish(nil, x.wrap(err))
	}
}

// wrap names the phase.
func (x *Call) wrap(err error) error {
	addr := x.addr
	if p := x.Phase(); p == Dialing && x.proxy != nil {
		addr = canonicalAddr(x.proxy)
	}
	return &Error{x.Phase(), addr, err}
}

// settle decides the result of the call: a response with body b, or without one, or an error. It
// returns false if that is decided already.
func (x *Call) settle(b *body) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.settled {
		return false
	}
	x.settled, x.body = true, b
	return true
}

// finish passes the result on. It is called once.
func (x *Call) finish(r *http.Response, err error) {
	switch {
	case err != nil:
		x.abandonUpload(err)
		x.over()
	case r.Body == http.NoBody:
		x.over()
	default:
		x.setPhase(Body)
	}
	if x.done != nil {
		x.done(r, err)
		return
	}
	x.response, x.err = r, err
	x.finished.Store(true)
	x.parker.Unpark()
}

// over ends the watch of the context: nothing of the call is left that it could end.
func (x *Call) over() {
	x.mu.Lock()
	stop := x.stop
	x.stop = nil
	x.mu.Unlock()
	if stop != nil {
		stop()
	}
	if x.original.Cancel != nil {
		x.t.mu.Lock()
		delete(x.t.calls, x.original)
		x.t.mu.Unlock()
	}
	if old := Phase(x.phase.Swap(uint32(Done))); old != Done {
		x.t.figures.remove(old)
	}
}

// abandonUpload closes the request's body.
func (x *Call) abandonUpload(err error) {
	x.mu.Lock()
	up := x.up
	x.mu.Unlock()
	if up != nil {
		up.stopFor(err)
		return
	}
	closeBody(x.req)
}

// replayable reports whether the request may be sent again although the server may have seen it:
// net/http's rule (RFC 9110 section 9.2.2).
func (x *Call) replayable() bool {
	r := x.req
	if !x.rewindable() {
		return false
	}
	switch r.Method {
	case "", "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return len(r.Header["Idempotency-Key"]) > 0 || len(r.Header["X-Idempotency-Key"]) > 0
}

// rewindable reports whether the body can be had again.
func (x *Call) rewindable() bool {
	r := x.original
	return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
}

// rewind gives the next attempt a body of its own.
func (x *Call) rewind() error {
	x.abandonUpload(errServerClosed)
	if r := x.original; r.Body != nil && r.Body != http.NoBody {
		b, err := r.GetBody()
		if err != nil {
			return err
		}
		again := *r
		again.Body = b
		x.req = &again
	}
	x.mu.Lock()
	x.link, x.up = nil, nil
	x.mu.Unlock()
	x.gotByte.Store(false)
	return nil
}

// method is the request's, which may be left out.
func (x *Call) method() string {
	if x.req.Method == "" {
		return "GET"
	}
	return x.req.Method
}

// upgrades reports whether the request asks for another protocol.
func upgrades(r *http.Request) bool {
	for _, v := range r.Header["Connection"] {
		for option := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(option), "upgrade") && len(r.Header["Upgrade"]) > 0 {
				return true
			}
		}
	}
	return false
}
