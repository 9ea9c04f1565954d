//lint:file-ignore SA1019 Request.Cancel is deprecated, but programs and http.Client still set it

package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/h1"
)

// A Call is one request under way, through all of its attempts.
//
// An attempt has an exchange: an HTTP/1 connection, or a stream of HTTP/2. The result of the call,
// a response or an error, is decided once (settle) and then delivered (finish). The call is over
// when nothing of it is under way any more: after an error, or when the response and the request
// have come to their ends.
//
// The caller's request is read between hold and release alone, but for its body: the caller is told
// the result behind that, because it may change the request then.
type Call struct {
	// Set before the call begins.
	t                         *Transport
	original                  *http.Request // the caller's
	trace                     trace
	addr                      string // of the server, with its port
	proxy                     *url.URL
	done                      func(*http.Response, error) // nil: RoundTrip waits by parker
	parker                    driver.Parker
	isHead, isConnect, closes bool // of the request, for what comes later

	phase atomic.Uint32
	queuing
	attempting
	ending

	finished atomic.Bool // RoundTrip may take response and err
}

// queuing is a call's place in the queue of its host. It is guarded by pool.mu.
type queuing struct {
	host       *host    // that the latest attempt is for
	dial       *dialing // that was begun for the call
	waits      bool     // it is in the queue
	next, prev *Call
	delay      *delay // behind a refusal
}

// attempting is what there is of the current attempt beside its exchange. What begins it writes the
// fields, before the connection knows of the call.
type attempting struct {
	req      *http.Request // with the attempt's body
	refusals uint8         // attempts that a server of HTTP/2 has not processed
	gzip     bool          // the Transport has asked for it
	reused   bool          // the connection has been idle, or has carried another call
	gotByte  atomic.Bool   // of a response
}

// ending is how far the call is on the way to its end. mu guards all of it; but response and err
// are the caller's when it has been told.
type ending struct {
	mu       sync.Mutex
	result   resultState
	request  requestState
	held     int32    // how often
	exchange exchange // of the current attempt
	up       *upload  // likewise
	body     *body    // of the response
	stop     func()   // ends the watch of the context and of Request.Cancel

	response *http.Response
	err      error
}

// A resultState is what is known of the call's result.
type resultState uint8

const (
	undecided resultState = iota
	decided               // by settle or cancel; the caller is told, or has been told
	late                  // it is known, and waits for release
)

// A requestState is whether the caller's request may still be read. It only rises.
type requestState uint8

const (
	readable requestState = iota
	unread                // its caller is about to be told an error
	over                  // Call.over was called
)

// An exchange carries one attempt of a call. Any goroutine may call its methods.
type exchange interface {
	more()                   // the body has room, or credit for the server
	read()                   // the body has been read to its end
	drop(x *Call, err error) // ends the exchange, if it is the call's still
}

// Phase is how far the call has come. Any goroutine.
func (x *Call) Phase() Phase { return Phase(x.phase.Load()) }

// Cancel ends the call, as the end of its context does. Any goroutine.
func (x *Call) Cancel() { x.cancel(context.Canceled) }

// roundTripBy has another RoundTripper serve the request. If that declines with
// http.ErrSkipAltProtocol, it may have read the body, so the Transport gets it anew where it can.
func (x *Call) roundTripBy(other http.RoundTripper) (*http.Response, error) {
	r, err := other.RoundTrip(x.original)
	if !errors.Is(err, http.ErrSkipAltProtocol) || x.original.GetBody == nil {
		return r, err
	}
	if fault := x.rewind(); fault != nil {
		return nil, fault
	}
	return nil, err
}

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

// prepare checks the request, with the errors of net/http word by word, and finds out where it
// goes.
func (x *Call) prepare() (key hostKey, err error) {
	r := x.req
	switch {
	case r.URL == nil:
		return key, fmt.Errorf("http: nil Request.URL")
	case r.Header == nil:
		return key, fmt.Errorf("http: nil Request.Header")
	case r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return key, fmt.Errorf("unsupported protocol scheme %q", r.URL.Scheme)
	case r.Method != "" && !h1.IsToken(r.Method):
		return key, fmt.Errorf("net/http: invalid method %q", r.Method)
	case r.URL.Host == "":
		return key, fmt.Errorf("http: no Host in request URL")
	case r.ContentLength != 0 && r.Body == nil:
		return key, fmt.Errorf("http: Request.ContentLength=%d with nil Body", r.ContentLength)
	case hasControl(r.URL.Opaque) || hasControl(r.URL.RawQuery): // all else of a URL is escaped
		return key, errors.New("net/http: can't write control character in Request.URL")
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
	x.isHead, x.isConnect, x.closes = r.Method == "HEAD", r.Method == "CONNECT", wantsClose(r)
	if x.proxy != nil && !socks(x.proxy) && (hostOf(r) == "" || !httpguts.ValidHostHeader(x.addr)) {
		return key, errors.New("http: invalid Host header") // it would be in the target of the request
	}
	return keyFor(r, x.proxy, x.addr)
}

// hasControl reports whether s has a character that a line of HTTP/1 must not have.
func hasControl(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}

// checkFields leaves out the value, which may be a secret.
func checkFields(what string, fields http.Header) error {
	for name, values := range fields {
		if !h1.IsToken(name) {
			return fmt.Errorf("net/http: invalid %s field name %q", what, name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return fmt.Errorf("net/http: invalid %s field value for %q", what, name)
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
		stop := context.AfterFunc(ctx, func() { x.cancel(context.Cause(ctx)) })
		x.stop = func() { stop() }
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
	_, bounded := ctx.Deadline()
	x.mu.Lock()
	if x.request == over { // its context has ended since it is watched
		x.mu.Unlock()
		return
	}
	ended := make(chan struct{})
	stop := x.stop
	x.stop = func() {
		close(ended)
		x.t.forgetCancel(x.original)
		if stop != nil {
			stop()
		}
	}
	x.t.noteCancel(x)
	x.mu.Unlock()
	if bounded {
		return
	}
	x.t.sys.Go(func() {
		select {
		case <-x.original.Cancel:
			x.cancel(x.canceled())
		case <-ended:
		}
	})
}

// canceled is the error of a request that Request.Cancel ends.
func (x *Call) canceled() error {
	if p := x.Phase(); p == Queued || p == Dialing {
		return errCanceledEarly
	}
	return errCanceled
}

// cancel ends the call with err, wherever it is: also its body, and the rest of its request, until
// both have come to their ends. Any goroutine.
func (x *Call) cancel(err error) {
	x.mu.Lock()
	before, e, b := x.result, x.exchange, x.body
	x.result = max(before, decided)
	x.mu.Unlock()
	switch {
	case before == undecided && e == nil:
		x.t.pool.withdraw(x)
		x.finish(nil, err)
	case before == undecided:
		e.drop(x, err)
		x.finish(nil, err)
	case e != nil:
		told := x.wrap(err)
		e.drop(x, err)
		x.over(err)
		if b != nil {
			b.fail(told)
		}
	}
}

// fail ends the call with err, unless its result is decided.
func (x *Call) fail(err error) {
	if x.settle(nil) {
		x.finish(nil, err)
	}
}

// settle decides the result of the call: a response with body b, or without one, or an error. It
// returns false if that is decided already.
func (x *Call) settle(b *body) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.result != undecided {
		return false
	}
	x.result, x.body = decided, b
	return true
}

func (x *Call) isSettled() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.result != undecided
}

// isRead reports whether the caller has come to the end of the response.
func (x *Call) isRead() bool {
	x.mu.Lock()
	b := x.body
	x.mu.Unlock()
	return b == nil || b.isRead()
}

// wrap gives an error of Do's its phase. Those of RoundTrip are as in net/http.
func (x *Call) wrap(err error) error {
	if x.done == nil {
		return err
	}
	addr := x.addr
	p := x.Phase()
	if p == Dialing && x.proxy != nil {
		addr = canonicalAddr(x.proxy)
	}
	return &Error{p, addr, err}
}

// hold has the result wait until release, so that the request can be read. It returns false if the
// caller may have the request back.
func (x *Call) hold() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.request != readable {
		return false
	}
	x.held++
	return true
}

// release ends hold, and delivers the result if that waits.
func (x *Call) release() {
	x.mu.Lock()
	x.held--
	if x.result != late || x.held > 0 {
		x.mu.Unlock()
		return
	}
	x.result = decided
	x.conclude(x.response, x.err)
}

// carried is hold for an attempt that e carries. It returns false if the call is settled.
func (x *Call) carried(e exchange, up *upload, reused bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.result != undecided {
		return false
	}
	x.held++
	x.exchange, x.up, x.reused = e, up, reused
	return true
}

// finish ends the call with a result. It is called once, by what has settled the call.
func (x *Call) finish(r *http.Response, err error) {
	x.mu.Lock()
	if x.held > 0 {
		x.result, x.response, x.err = late, r, err
		x.mu.Unlock()
		return
	}
	x.conclude(r, err)
}

// conclude delivers the result. It is called with mu, which it releases.
func (x *Call) conclude(r *http.Response, err error) {
	if err != nil {
		x.request = max(x.request, unread)
	}
	x.mu.Unlock()
	if err != nil {
		err = x.wrap(err)
		x.over(err)
	} else {
		x.setPhase(Body)
	}
	x.deliver(r, err)
}

// deliver gives the result to the caller.
func (x *Call) deliver(r *http.Response, err error) {
	if x.done != nil {
		x.done(r, err)
		return
	}
	x.response, x.err = r, err
	x.finished.Store(true)
	x.parker.Unpark()
}

// over ends what is left of the call: the rest of its request, and the watch of its context. Any
// goroutine, any number of times.
func (x *Call) over(err error) {
	x.mu.Lock()
	stop, up, again := x.stop, x.up, x.request == over
	x.stop, x.exchange, x.request = nil, nil, over
	x.mu.Unlock()
	if up != nil {
		up.stopFor(err)
	} else if !again {
		closeBody(x.req)
	}
	if stop != nil {
		stop()
	}
	if old := Phase(x.phase.Swap(uint32(Done))); old != Done {
		x.t.figures.remove(old)
	}
}

// attemptFailed tries again on another connection, or ends the call with err. Any goroutine that
// has taken the call from the attempt's exchange. These are the rules of net/http: a server that is
// too slow is not asked twice.
func (x *Call) attemptFailed(err error) {
	if !x.hold() {
		return
	}
	defer x.release()
	again := x.reused && err != error(errHeaderTimeout) && !x.gotByte.Load() && x.up.readErr.Load() == nil &&
		(x.replayable() || x.rewindable() && !x.up.began.Load()) && !x.isSettled()
	if again {
		x.again()
		return
	}
	x.fail(err)
}

// refused is attemptFailed for a server of HTTP/2 that has not processed the request, whatever its
// method (RFC 9113 section 8.7).
func (x *Call) refused(err error) {
	if !x.hold() {
		return
	}
	defer x.release()
	switch {
	case x.refusals == maxRefusals || x.gotByte.Load() || x.isSettled():
		x.fail(err)
	case !x.rewindable():
		x.fail(fmt.Errorf("http2: Transport: cannot retry err [%w] after Request.Body was written; "+
			"define Request.GetBody to avoid this error", err))
	default:
		x.refusals++
		x.again()
	}
}

// again begins another attempt. The first one behind a refusal begins at once, those that follow
// later and later.
func (x *Call) again() {
	switch err := x.rewind(); {
	case err != nil:
		x.fail(err)
	case x.refusals < 2:
		x.t.pool.acquire(x, x.host.key)
	default:
		x.t.pool.delay(x, int(x.refusals)-2)
	}
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
	if x.up != nil {
		x.up.stopFor(errAbandoned)
	} else {
		closeBody(x.req)
	}
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
	x.exchange, x.up = nil, nil
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

// wantsGzip is net/http's rule: not for HEAD, nor for a part, nor if the caller has a wish of its
// own. Do is left out, whose caller may not be able to wait in a Read.
func (x *Call) wantsGzip() bool {
	h := x.req.Header
	return !x.t.DisableCompression && x.done == nil && first(h["Accept-Encoding"]) == "" && first(h["Range"]) == "" &&
		x.req.Method != "HEAD"
}
