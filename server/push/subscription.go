package push

import (
	"slices"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file is a session's subscriptions.

// subscribe joins the channel of that name. announce queues what tells the client so: see hub.join.
// It may wait for the bus.
func (s *session) subscribe(name string, w wish, announce func(welcome)) error {
	if err := s.maySubscribe(name); err != nil {
		return err
	}
	m, err := s.node.hub.join(s, name, w, announce)
	if err != nil {
		return err
	}
	s.node.announce(m, true) // before it can be found, and its leaving announced
	s.settle(m)
	return nil
}

// settle puts m into the session's list, unless one of both has come to its end meanwhile.
func (s *session) settle(m *member) {
	s.mu.Lock()
	ended, orphaned := s.stage == stageEnded, m.orphaned
	if !ended && !orphaned {
		s.members = append(s.members, m)
		if m.grant != nil {
			s.expireSubscription(m)
		}
	}
	s.mu.Unlock()
	if orphaned {
		s.tellLost(m.ch.name)
	}
	if ended || orphaned {
		s.node.hub.leave(m)
	}
}

func (s *session) maySubscribe(name string) error {
	if !s.node.validChannel(name) {
		return centrifuge.ErrBadRequest
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(name) >= 0 {
		return centrifuge.ErrAlreadySubscribed
	}
	if len(s.members) >= s.node.limits.Channels {
		return centrifuge.ErrLimitExceeded
	}
	return nil
}

// unsubscribe leaves the channel of that name, and reports whether the session was a member.
func (s *session) unsubscribe(name string) bool {
	s.mu.Lock()
	var m *member
	if i := s.find(name); i >= 0 {
		m = s.members[i]
		s.drop(m)
	}
	s.mu.Unlock()
	if m == nil {
		return false
	}
	s.node.hub.leave(m)
	return true
}

// end ends the subscription to the channel of that name, and tells the client why. An SSE
// subscriber's stream ends.
func (s *session) end(name string, why centrifuge.Unsubscribed) bool {
	if !s.unsubscribe(name) {
		return false
	}
	if s.wire != wireCentrifuge {
		s.disconnect(centrifuge.ForceNoReconnect)
		return true
	}
	if s.offer(&message{payload: centrifuge.AppendUnsubscribe(nil, name, why)}) == offerFull {
		s.tooSlow("")
	}
	return true
}

// drop takes m out of the list, if it is there. The caller holds s.mu.
func (s *session) drop(m *member) bool {
	i := slices.Index(s.members, m)
	if i < 0 {
		return false
	}
	last := len(s.members) - 1
	s.members[i], s.members[last] = s.members[last], nil
	s.members = s.members[:last]
	return true
}

// find returns where the channel stands in s.members, or -1. A session has few. The caller holds
// s.mu.
func (s *session) find(name string) int {
	for i, m := range s.members {
		if m.ch.name == name {
			return i
		}
	}
	return -1
}

// member returns the session's subscription to the channel of that name, or nil.
func (s *session) member(name string) *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(name); i >= 0 {
		return s.members[i]
	}
	return nil
}

// expireSubscription has the session look at m when its token is over. The caller holds s.mu.
func (s *session) expireSubscription(m *member) {
	if m.grant.expires == 0 || s.who == nil {
		return
	}
	if s.who.subsEnd == 0 || m.grant.expires < s.who.subsEnd {
		s.who.subsEnd = m.grant.expires
	}
	s.node.wheel.set(s, s.deadline())
}

// expireSubscriptions ends those whose tokens are over.
func (s *session) expireSubscriptions(now int64) {
	var over []string
	s.mu.Lock()
	for _, m := range s.members {
		switch {
		case m.grant == nil:
		case m.grant.expires != 0 && now >= m.grant.expires:
			over = append(over, m.ch.name)
		default:
			s.expireSubscription(m)
		}
	}
	s.mu.Unlock()
	for _, name := range over {
		s.end(name, centrifuge.SubscriptionExpired)
	}
}
