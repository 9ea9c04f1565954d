package web

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// A link is what requests, contexts and lanes know of a connection, whatever version of HTTP it
// speaks. Its fields are the loop's, except those that never change.
type link struct {
	c          *myriad.Conn
	lane       *lane
	from       *origin
	place      int32        // in lane.awake
	unreleased atomic.Int32 // exchanges that still know the link: see exchange.release
	state      uint8        // what ConnState was told last, an http.ConnState
	secure     bool         // the conn's layer is TLS, or from.base has an accepted of TLS
	greeted    bool         // ConnState was called for the conn before its handshake
	stopping   bool         // the engine shuts down
}

// A served connection is one on a lane's list: that of HTTP/1 or of HTTP/2. On the loop.
type served interface {
	known() *link
	// shut ends the connection in order: at once if it only waits, else after its answers.
	shut()
	// closeIdle closes the connection if it waits for a further request.
	closeIdle()
}

func (k *link) known() *link { return k }

func (k *link) setState(state http.ConnState) {
	if k.state == uint8(state) && state != http.StateNew {
		return
	}
	k.state = uint8(state)
	if f := k.lane.s.ConnState; f != nil {
		f(k.seen(), state)
	}
}

// seen is what ConnState is given.
func (k *link) seen() net.Conn {
	if a, ok := k.from.base.Value(acceptedKey{}).(*accepted); ok && a.seen != nil {
		return a.seen
	}
	return k.c
}

// tlsState is what a request's TLS field points to, nil without TLS.
func (k *link) tlsState() *tls.ConnectionState {
	if !k.secure {
		return nil
	}
	if state := tlsloop.SharedState(k.c); state != nil {
		return state
	}
	state := k.from.base.Value(acceptedKey{}).(*accepted).secure.ConnectionState()
	return &state
}

// leaving reports whether the connection ends with what it is doing.
func (k *link) leaving() bool { return k.stopping || k.lane.drained }

// date is what the Date field of an answer says that the loop itself gives.
func (k *link) date() string { return k.lane.st.clock.at(k.lane.loop.Now()).text }

// now is the loop's time.
func (k *link) now() moment { return k.lane.st.moment(k.lane.loop.Now()) }
