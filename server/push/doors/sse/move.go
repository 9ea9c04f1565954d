package sse

import (
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// This file is the door's part of clients that move to another process: their form.

// StateName implements hub.StreamMover.
func (*Door) StateName() string { return "sse/1" }

// StreamForms implements hub.StreamMover.
func (d *Door) StreamForms() []hub.Form { return d.Forms() }

// AppendClient implements hub.StreamMover.
func (*Door) AppendClient(dst []byte, s *hub.Session) (state []byte, ok bool) {
	f := s.Form().(form)
	return snapshot.AppendBool(snapshot.AppendBool(dst, f.named), f.numbered), true
}

// ThawClient implements hub.StreamMover.
func (*Door) ThawClient(state []byte) (c hub.ThawedClient, err error) {
	f := snapshot.NewFields(state)
	c.Form = form{named: f.Bool(), numbered: f.Bool()}
	return c, f.Done()
}

// ClientMoved implements hub.StreamMover.
func (*Door) ClientMoved(*hub.Session) {}
