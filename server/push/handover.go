package push

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/handover"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/web"
)

// This file is a server's part in a handover.Program.

// stateFormat names what State writes, in the hello of package handover. What it has in detail is
// in StateParts.
const stateFormat = "push/1"

// freezePatience bounds how long a hand-over waits for calls that run.
const freezePatience = time.Second

// AddTo adds the server to p, with its WebSockets, its state, and the connections of front, which
// serves it. It sets front.ThawStream. Both processes call it before handover.Give or
// handover.Take. Of the old one PrepareMove is called then.
func (s *Server) AddTo(p *handover.Program, front *web.Server, name string) error {
	front.ThawStream = s.thawStream
	t, err := front.Thawer()
	if err != nil {
		return err
	}
	if p.Servers == nil {
		p.Servers = make(map[string]myriad.Thawer)
	}
	p.Servers["web "+name] = t
	for name, t := range s.hub.Thawers() {
		p.Servers[name] = t
	}
	if p.States == nil {
		p.States = make(map[string]handover.State)
	}
	p.States["push"] = handoverState{s}
	return nil
}

// PrepareMove makes the long responses of clients ones that can move, right before handover.Give.
// With false it undoes that, after Give has failed.
func (s *Server) PrepareMove(on bool) { s.hub.OfferStreams(on) }

// thawStream goes on with a client of another process that reads one long response.
func (s *Server) thawStream(stream *web.Stream, state []byte) error {
	return s.hub.ThawStream(hub.StreamOf(stream), state)
}

// A handoverState is a server as package handover sees it.
type handoverState struct{ s *Server }

// Formats implements handover.State.
func (handoverState) Formats() []string { return []string{stateFormat} }

// Freeze implements handover.State.
func (h handoverState) Freeze(w io.Writer) error {
	if err := h.freeze(); err != nil {
		return err
	}
	if err := h.s.WriteState(w); err != nil {
		h.s.Thaw()
		return err
	}
	return nil
}

func (h handoverState) freeze() error {
	ctx, cancel := h.s.hub.Within(context.Background(), freezePatience)
	defer cancel()
	if err := h.s.Freeze(ctx); err != nil {
		return fmt.Errorf("push: calls run that do not end within %v: %w", freezePatience, err)
	}
	return nil
}

// Thaw implements handover.State.
func (h handoverState) Thaw(_ string, r io.Reader) error {
	if err := h.freeze(); err != nil {
		return err
	}
	if err := h.s.ReadState(r); err != nil {
		h.s.Leave()
		return err
	}
	return nil
}

// GoOn implements handover.State.
func (h handoverState) GoOn() { h.s.Thaw() }

// Moved implements handover.State.
func (h handoverState) Moved() { h.s.Leave() }
