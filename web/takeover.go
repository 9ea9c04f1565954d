package web

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/myriad-go/myriad"
)

// ErrNotMyriad says that a ResponseWriter does not come from this package's Server, even behind its
// Unwrap methods.
var ErrNotMyriad = errors.New("web: the ResponseWriter is not from a web.Server")

// A takeover is how a connection leaves HTTP: to another handler on the loop, or out of the engine.
type takeover struct {
	handler myriad.Handler                              // upgrade
	done    func(nc net.Conn, unread []byte, err error) // hijack
	nc      net.Conn                                    // what Hijack has returned
}

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

// takeBack undoes an upgrade of a connection that has gone, unless the new handler has been told
// already.
func (x *exchange) takeBack() bool {
	return x.endTakeover().handler != nil
}

// endTakeover returns the takeover, if the new owner has not been told yet, and leaves it empty.
func (x *exchange) endTakeover() (t takeover) {
	x.out.mu.Lock()
	defer x.out.mu.Unlock()
	if s := x.out.seldom; s != nil {
		t, s.takeover = s.takeover, takeover{}
	}
	return t
}

func (x *exchange) take(t takeover) error {
	x.out.mu.Lock()
	defer x.out.mu.Unlock()
	if x.ending().taken() {
		return http.ErrHijacked
	}
	x.out.more().takeover = t
	if t.handler != nil {
		x.setEnding(upgraded)
	} else {
		x.setEnding(hijacked)
	}
	return nil
}

// hijacked is the connection if it has been hijacked, or nil.
func (x *exchange) hijacked() net.Conn {
	if x.ending() != hijacked {
		return nil
	}
	x.out.mu.Lock()
	defer x.out.mu.Unlock()
	return x.out.seldom.takeover.nc
}

// takeoverLost is called when the connection is lost before the loop could give it away: the caller
// of the takeover gets the error.
func (x *exchange) takeoverLost(c *myriad.Conn, err error) {
	switch t := x.endTakeover(); {
	case t.handler != nil:
		t.handler.Opened(c)
		t.handler.Closed(c, err)
	case t.done != nil:
		t.done(nil, nil, err)
	}
}
