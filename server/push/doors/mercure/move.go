package mercure

import (
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/mercure"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// This file is the door's part of subscribers that move to another process: what they want and may
// have, and what others are told of them.

// StateName implements hub.StreamMover.
func (*Hub) StateName() string { return "mercure/1" }

// StreamForms implements hub.StreamMover.
func (h *Hub) StreamForms() []hub.Form { return h.Forms() }

// AppendClient implements hub.StreamMover.
func (h *Hub) AppendClient(dst []byte, s *hub.Session) (state []byte, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	want := h.router.Interest(s)
	dst = snapshot.AppendTexts(dst, textsOf(want.Topics))
	dst = snapshot.AppendTexts(dst, textsOf(want.Allowed))
	return snapshot.AppendText(dst, h.payloads[s].payload), true
}

func textsOf(list []mercure.Selector) (texts []string) {
	for _, s := range list {
		texts = append(texts, s.String())
	}
	return texts
}

// ThawClient implements hub.StreamMover.
func (h *Hub) ThawClient(state []byte) (c hub.ThawedClient, err error) {
	f := snapshot.NewFields(state)
	topics, allowed, payload := f.Texts(), f.Texts(), f.Clone()
	if err := f.Done(); err != nil {
		return c, err
	}
	var want mercure.Interest
	if want.Topics, err = compileAll(topics, len(topics)); err != nil {
		return c, err
	}
	if want.Allowed, err = compileAll(allowed, len(allowed)); err != nil {
		return c, err
	}
	resume := func(s *hub.Session) (ended func(), err error) { return h.resume(s, want, payload) }
	return hub.ThawedClient{Form: form{}, Resume: resume}, nil
}

// resume makes s a subscriber again, which is not announced.
func (h *Hub) resume(s *hub.Session, want mercure.Interest, payload []byte) (ended func(), err error) {
	if err := h.connect(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	err = h.router.Join(s, want)
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	end := func() { h.leave(s) }
	if h.payloads != nil {
		end = h.listed(s, subscriber{topics: textsOf(want.Topics), payload: payload})
	}
	return func() {
		end()
		s.Ended()
	}, nil
}

// ClientMoved implements hub.StreamMover.
func (h *Hub) ClientMoved(s *hub.Session) { h.forget(s) }
