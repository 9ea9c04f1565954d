package web

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web/internal/exchange"
	"github.com/myriad-go/myriad/web/internal/http1"
)

// This file is how connections of a Server move to another process: package handover and
// docs/adr/0035.

// Thawer is what package handover gives a name, so that connections of s move. Those that speak
// HTTP/1 without TLS move while they wait for a request, hibernating ones too. They also move while
// their answer is a Stream with OnFreeze. Those with a running handler move when that has answered,
// if the hand-over waits for it. HTTP/2 and TLS stay. When the others have moved they are told to
// end: HTTP/2 gets a GOAWAY, and HTTP/1 over TLS closes behind its answers. Streams and WebSockets
// on them go on until Shutdown. Server.ConnState sees StateHijacked for a connection that has
// moved, and StateNew for one that has come. It fails as Listen does.
func (s *Server) Thawer() (myriad.Thawer, error) {
	if err := s.start(); err != nil {
		return nil, err
	}
	return (*thawer)(s), nil
}

// OnFreeze lets a Stream move to another process. freeze appends to dst what the program keeps for
// it; Server.ThawStream gets that in the other process. If the Stream has moved, moved is called in
// place of OnClose's function. Both run on the loop and must not block. A nil freeze withdraws it.
func (s *Stream) OnFreeze(freeze func(dst []byte) ([]byte, error), moved func()) {
	s.inner().OnFreeze(freeze, moved)
}

// Events is s as a stream of events, for Server.ThawStream: it goes on with its keep-alive. Its
// LastEventID is empty.
func (s *Stream) Events() *EventStream { return &EventStream{Stream: s} }

// A thawer is a Server as the engine sees it.
type thawer Server

// Formats implements myriad.Thawer.
func (*thawer) Formats() []string { return []string{http1.FrozenFormat} }

// Thaw implements myriad.Thawer.
func (t *thawer) Thaw(c *myriad.Conn, _ string, state []byte) (myriad.Handler, error) {
	s := (*Server)(t)
	if c.Loop().Engine() != s.state.Engine {
		return nil, errors.New("web: thaw a connection: Server.Engine is another one")
	}
	f := s.thawFront()
	ln := f.lane(c)
	link := exchange.Link{C: c, Lane: &ln.Lane, From: f.originOf(f.contextOf(c))}
	return ln.h1.Thaw(link, state, func(inner *exchange.Stream, value []byte) error {
		if s.ThawStream == nil {
			return errors.New("web: thaw a Stream: Server.ThawStream is nil")
		}
		return s.ThawStream((*Stream)(inner), value)
	})
}

// Leave implements myriad.Leaver.
func (t *thawer) Leave() {
	for _, ln := range (*Server)(t).state.lanes {
		ln.Loop.Post(ln.leave)
	}
}

// leave ends the connections that cannot move, and those that come.
func (ln *lane) leave() {
	ln.Moved = true
	for _, h := range slices.Clone(ln.Awake) {
		h.Finish()
	}
}

// thawFront is the front of connections that have come from another process.
func (s *Server) thawFront() *front {
	st := s.state
	st.thawOnce.Do(func() {
		st.thaws = newFront(s)
		st.thaws.setBase(acceptedElsewhere{})
	})
	return st.thaws
}

// acceptedElsewhere is the listener that BaseContext is given for connections that another process
// has accepted.
type acceptedElsewhere struct{}

// Accept fails.
func (acceptedElsewhere) Accept() (net.Conn, error) {
	return nil, fmt.Errorf("web: accept from another process: %w", myriad.ErrUnsupported)
}

// Close does nothing.
func (acceptedElsewhere) Close() error { return nil }

// Addr is no address.
func (acceptedElsewhere) Addr() net.Addr { return &net.TCPAddr{} }

// Thawer is that of hibernating connections, whose Waker a front is.
func (f *front) Thawer() myriad.Thawer { return (*thawer)(f.s) }
