package centrifuge

import (
	"slices"

	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// This file is the door's part of clients that move to another process: their form, and the secret
// that names their session in requests to /emulation.

// StateName implements hub.StreamMover.
func (*streams) StateName() string { return "centrifuge/1" }

// StreamForms implements hub.StreamMover.
func (*streams) StreamForms() []hub.Form {
	return slices.DeleteFunc(Door{}.Forms(), func(f hub.Form) bool { return f.(form).framing == inSocket })
}

// AppendClient implements hub.StreamMover.
func (c *streams) AppendClient(dst []byte, s *hub.Session) (state []byte, ok bool) {
	f, secret := s.Form().(form), ""
	if !f.uni {
		secret = s.SessionID()
	}
	if e := c.find(secret); e != nil && !e.isIdle() {
		return dst, false
	}
	dst = snapshot.AppendNumber(snapshot.AppendNumber(dst, uint64(f.codec)), uint64(f.framing))
	return snapshot.AppendText(snapshot.AppendBool(dst, f.uni), secret), true
}

// isIdle reports whether no command of the client runs. While the hub is frozen, none begins.
func (e *emulated) isIdle() bool {
	idle := e.running.TryLock()
	if idle {
		e.running.Unlock()
	}
	return idle
}

// ThawClient implements hub.StreamMover.
func (c *streams) ThawClient(state []byte) (client hub.ThawedClient, err error) {
	r := snapshot.NewFields(state)
	f := form{codec: centrifuge.Codec(r.NumberUpTo(uint64(centrifuge.Protobuf), "a codec")),
		framing: framing(r.NumberUpTo(uint64(inEvents), "a framing")), uni: r.Bool()}
	secret := r.Text()
	if !slices.Contains(c.StreamForms(), hub.Form(f)) || (secret == "") != f.uni {
		r.Fail("a client has a form that there is not")
	}
	if err := r.Done(); err != nil {
		return client, err
	}
	resume := func(s *hub.Session) (ended func(), err error) {
		c.add(secret, s)
		return func() {
			c.remove(secret)
			s.Ended()
		}, nil
	}
	return hub.ThawedClient{Form: f, Client: &hub.StreamClient{LastMessage: f.lastMessage, Secret: secret},
		Resume: resume}, nil
}

// ClientMoved implements hub.StreamMover.
func (c *streams) ClientMoved(s *hub.Session) { c.remove(s.SessionID()) }
