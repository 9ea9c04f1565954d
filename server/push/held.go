package push

import "sync"

// held keeps messages for sessions whose reply to connect is not complete. That reply also says
// what the server-side subscriptions have recovered, so it comes before their publications.
type held struct {
	mu   sync.Mutex // may be taken while a channel's lock is held
	list map[*Session]*heldMessages
}

type heldMessages struct {
	payloads [][]byte
	bytes    int // at most Limits.Queue
}

// Hold makes messages for the session wait until LetGo.
func (s *Session) Hold() {
	h := &s.node.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.list == nil {
		h.list = make(map[*Session]*heldMessages)
	}
	h.list[s] = new(heldMessages)
	s.flags.Or(isHolding)
}

// offerHeld is Offer for a session that holds.
func (s *Session) offerHeld(m *Message) Offered {
	h := &s.node.held
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting := h.list[s]
	switch {
	case waiting == nil: // let go meanwhile
		return s.offerNow(m)
	case waiting.bytes > 0 && waiting.bytes+len(m.Payload) > s.node.limits.Queue:
		return OfferFull
	}
	waiting.payloads = append(waiting.payloads, append([]byte(nil), m.Payload...))
	waiting.bytes += len(m.Payload)
	return OfferTaken
}

// LetGo sends first, then what has waited. It returns OfferFull if the client's queue has no room
// for all of it.
func (s *Session) LetGo(first []byte) Offered {
	h := &s.node.held
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting := h.list[s]
	if waiting == nil { // the session has ended
		return OfferGone
	}
	delete(h.list, s)
	defer s.flags.And(^uint32(isHolding))
	for _, payload := range append([][]byte{first}, waiting.payloads...) {
		if got := s.offerNow(&Message{Payload: payload}); got != OfferTaken {
			return got
		}
	}
	return OfferTaken
}

// drop forgets what waits for a session that has ended.
func (h *held) drop(s *Session) {
	if s.flags.Load()&isHolding == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.list, s)
}
