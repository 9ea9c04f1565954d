package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/lifetime"
)

// ErrNotMyriad says that a ResponseWriter does not come from this package's Server, even behind its
// Unwrap methods.
var ErrNotMyriad = errors.New("web: the ResponseWriter is not from a web.Server")

// responseOf finds the response behind wrappers that have an Unwrap method, as gin's and chi's do.
func responseOf(w http.ResponseWriter) (*response, error) {
	for {
		switch v := w.(type) {
		case *given:
			return v.response()
		case *given2:
			return v.response()
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return nil, fmt.Errorf("%w: it is a %T", ErrNotMyriad, w)
		}
	}
}

// Upgrade ends HTTP on the connection. It sends head, a complete response head such as that of a
// 101, as it is. Then h gets the connection, and first the bytes that the client has already sent.
// The connection is h's when Upgrade returns, and may be written to from then on; h.Opened follows
// on the loop. It fails once an answer has begun, while the request's body is incomplete, and with
// ErrNotMyriad for a foreign ResponseWriter. Wrappers are looked through by their Unwrap method.
// With a PipelineDepth above 1 it waits until requests before this one have been answered.
//
// Middleware that records the status learns it by a call of WriteHeader on the outermost
// ResponseWriter, which the caller makes after Upgrade: it has no other effect.
func Upgrade(w http.ResponseWriter, head []byte, h myriad.Handler) error {
	r, err := responseOf(w)
	if err != nil {
		return err
	}
	return r.x.carrier.upgrade(head, h)
}

// Detached lets the response outlive its handler. The head, with the status and fields set so far,
// is sent at once. The handler returns, and the body is written to the Stream until Close, or until
// the client goes away (OnClose). It is how server-sent events and long polls are held. The
// server's WriteTimeout does not apply.
//
// Middleware sees the status by WriteHeader, as with any answer, but not what the Stream writes:
// middleware that compresses is bypassed. Detached fails with ErrNotMyriad for a foreign
// ResponseWriter, and if the answer has a Content-Length.
func Detached(w http.ResponseWriter) (*Stream, error) {
	r, err := responseOf(w)
	if err != nil {
		return nil, err
	}
	switch {
	case r.x.progress().taken():
		return nil, http.ErrHijacked
	case r.x.progress().over():
		return nil, errors.New("web: Detached twice, or after the handler has returned")
	}
	r.outlive(w)
	if r.extent.known() {
		return nil, errors.New("web: Detached with a Content-Length: its end is not known")
	}
	if err := r.x.carrier.outlive(); err != nil {
		return nil, fmt.Errorf("web: Detached: %w", err)
	}
	if err := r.flush(); err != nil {
		return nil, err
	}
	s := &Stream{sink: r.x.carrier.sink(), noBody: r.noBody || !bodyAllowed(r.status)}
	if values := ValuesOf(&r.x.given.request); values != nil {
		s.life = lifetime.Of(values)
	}
	r.detach(s)
	_ = r.inTime()                      // it loses what is late
	if err := r.lostErr(); err != nil { // it went before s could be told: nothing may follow the head
		s.cut = true
		s.lost(err)
		return nil, fmt.Errorf("web: Detached: %w", err)
	}
	return s, nil
}

// detach has s continue the answer.
func (w *response) detach(s *Stream) {
	w.mu.Lock()
	w.more().stream = s
	w.mu.Unlock()
	w.x.enter(detached)
}

// ownContextKey finds a requestContext behind the contexts that middleware has derived from it.
type ownContextKey struct{}

// ValuesOf returns a context with the values that middleware, Server.ConnContext and
// Server.BaseContext have set. It is for code that outlives the handler: the context does not end
// with the request. It is nil if there are none. It keeps what middleware has derived its context
// from, and with it the request: 1 to 3 kB. A foreign server's request has values always, unless
// its context is context.Background. Only the handler may call it.
func ValuesOf(r *http.Request) context.Context {
	ctx := r.Context()
	own, ours := ctx.Value(ownContextKey{}).(*requestContext)
	switch {
	case !ours && ctx == context.Background():
		return nil
	case !ours || ctx != own:
		return context.WithoutCancel(ctx)
	}
	if s := own.link.lane.s; s.BaseContext == nil && s.ConnContext == nil {
		return nil
	}
	return context.WithoutCancel(own.link.from.base)
}
