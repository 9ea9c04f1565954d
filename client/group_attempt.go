package client

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// An attempt is one sending of a request. A loop of the Transport ends it, or a turn.
type attempt struct {
	job    *job
	number int
	until  time.Time // its time is over; zero: it has no bound

	mu       sync.Mutex
	call     *Call                   // guarded by mu; nil: it was not sent yet
	release  context.CancelCauseFunc // guarded by mu: of a context of its own, or nil
	cause    error                   // guarded by mu: why the run ends it
	stream   io.Closer               // guarded by mu: the response's body
	over     bool                    // guarded by mu: what follows does not change any more
	response *http.Response
	body     []byte
	err      error
	final    bool // it is not tried again
}

// prepare makes the request and sends it, on a goroutine of its own, because it runs the user's
// code.
func (a *attempt) prepare() {
	returned := false
	defer func() {
		if !returned {
			a.job.run.fail(recover())
		}
	}()
	req, err := a.job.run.group.Retry.request(a.job.request, a.number)
	if err != nil {
		a.mu.Lock()
		if !a.over {
			a.final = true
		}
		a.mu.Unlock()
		a.finish(&Error{Queued, a.job.addr, err})
	} else {
		a.send(req)
	}
	returned = true
}

// send begins the call, unless the attempt has ended.
func (a *attempt) send(req *http.Request) {
	t := a.job.run.t
	a.mu.Lock()
	over := a.over
	if !over && t.other(req) != nil { // Call.Cancel does not reach it
		ctx, cancel := context.WithCancelCause(req.Context())
		a.release = cancel
		req = req.WithContext(ctx)
	}
	a.mu.Unlock()
	if over {
		closeBody(req)
		return
	}
	call := t.Do(req, a.answered)
	a.mu.Lock()
	a.call = call
	unwanted := a.cause != nil
	a.mu.Unlock()
	if unwanted {
		call.Cancel()
	}
}

// phase is how far the attempt has come. Any goroutine.
func (a *attempt) phase() Phase {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.call == nil {
		return Queued
	}
	return min(a.call.Phase(), Body) // its end is reported in a moment
}

// answered is called with the response's head, mostly on a loop.
func (a *attempt) answered(response *http.Response, err error) {
	if err != nil {
		ctx := a.job.request.Context()
		if _, named := err.(*Error); !named && ctx.Err() != nil {
			err = &Error{Queued, a.job.addr, err} // it ended before the call began
		}
		a.finish(err)
		return
	}
	a.mu.Lock()
	over := a.over
	if !over {
		a.response, a.stream = response, response.Body
	}
	a.mu.Unlock()
	if over {
		_ = response.Body.Close()
		return
	}
	err = OnBody(response, a.received)
	switch {
	case err == nil:
	case response.StatusCode == http.StatusSwitchingProtocols: // it has no place here
		a.finish(a.inBody(err))
	default: // of a RoundTripper of RegisterProtocol
		a.job.run.t.sys.Go(func() { a.read(response.Body) })
	}
}

// read passes a body on that OnBody does not.
func (a *attempt) read(body io.Reader) {
	p := make([]byte, 32<<10)
	for {
		n, err := body.Read(p)
		if n > 0 {
			a.received(p[:n], nil)
		}
		if err != nil {
			a.received(nil, err)
			return
		}
	}
}

// received is called with the body as it comes, and with its end.
func (a *attempt) received(p []byte, err error) {
	most := a.job.run.group.MaxBody
	a.mu.Lock()
	tooLarge := false
	if !a.over && most >= 0 {
		room := most - len(a.body)
		tooLarge = len(p) > room
		a.body = append(a.body, p[:min(len(p), room)]...)
	}
	a.mu.Unlock()
	switch {
	case tooLarge:
		a.finish(a.inBody(ErrGroupBody))
	case err == io.EOF:
		a.finish(nil)
	case err != nil:
		a.finish(a.inBody(err))
	}
}

// inBody says that err has come in the body.
func (a *attempt) inBody(err error) error {
	if e, named := err.(*Error); named {
		return &Error{Body, e.Addr, e.Err}
	}
	return &Error{Body, a.job.addr, err}
}

// end ends the attempt because of cause. Its outcome does not wait for the Transport.
func (a *attempt) end(cause error) {
	phase := a.phase()
	a.mu.Lock()
	if a.cause == nil {
		a.cause = cause
	}
	call, release := a.call, a.release
	a.mu.Unlock()
	if call != nil {
		call.Cancel() // which calls answered or received with the phase and the address
	}
	if release != nil {
		release(cause)
	}
	a.finish(&Error{phase, a.job.addr, cause})
}

// finish reports the end of the attempt, once.
func (a *attempt) finish(err error) {
	a.mu.Lock()
	if a.over {
		a.mu.Unlock()
		return
	}
	a.over = true
	if a.err = err; err != nil && a.cause != nil {
		e, named := err.(*Error)
		if !named {
			e = &Error{Queued, a.job.addr, nil}
		}
		a.err = &Error{e.Phase, e.Addr, a.cause}
	}
	stream, release := a.stream, a.release

	a.mu.Unlock()
	if stream != nil {
		_ = stream.Close()
	}
	if release != nil {
		release(nil)
	}
	r := a.job.run
	r.mu.Lock()
	r.shared.reports.attempts = append(r.shared.reports.attempts, a)
	r.mu.Unlock()
	r.wake()
}
