package push

import (
	"errors"
	"fmt"
	"slices"
)

// This file holds a session's subscriptions.

// Subscribe makes the client a subscriber of the channel. It calls announce with what the reply has
// to say, after the last publication that the client does not get, and before the first that it
// gets. announce must only queue the reply for the client. Subscribe may wait for the bus. An Error
// is the answer to the client; then announce has not been called.
func (s *Session) Subscribe(name string, w SubscribeCommand, announce func(Welcome)) error {
	r, err := s.reserve(name, 0)
	if err != nil {
		return err
	}
	if err := s.admit(name, &w); err != nil {
		r.Cancel()
		return err
	}
	r.SubscribeCommand = w
	return s.Join(r, announce)
}

// AdmitAll checks subscriptions to several channels, before one of them is made, and returns what
// to join with. Those that s has already are left out. The error is that of the first that s may
// not have.
func (s *Session) AdmitAll(names []string) (wanted map[string]*Reservation, err error) {
	wanted = make(map[string]*Reservation)
	defer func() {
		if err != nil {
			for _, r := range wanted {
				r.Cancel()
			}
		}
	}()
	for _, name := range names {
		if _, twice := wanted[name]; twice {
			continue
		}
		switch r, err := s.reserve(name, len(wanted)); {
		case err == ErrAlreadySubscribed:
			continue
		case err != nil:
			return wanted, err
		default:
			wanted[name] = r
		}
	}
	for i, name := range names {
		r, isNew := wanted[name]
		if !isNew || slices.Contains(names[:i], name) {
			continue
		}
		err := s.MaySubscribeNow()
		if err == nil {
			err = s.admit(name, &r.SubscribeCommand)
		}
		if err != nil {
			return wanted, err
		}
	}
	return wanted, nil
}

// Join makes a subscription that was admitted. If the server has ended it meanwhile, the client is
// told of that behind the announcement.
func (s *Session) Join(r *Reservation, announce func(Welcome)) error {
	m, err := s.node.hub.join(r, func(hello Welcome) {
		hello.Expires, hello.TTL, hello.Data = r.ttl > 0, r.ttl, r.answer
		announce(hello)
	})
	if err != nil {
		r.Cancel()
		return err
	}
	s.node.announce(m, true) // before settle, after which a leave may be announced
	s.settle(m)
	if r.settle() || s.hasLostRight(m) {
		s.end(m.ch.name, unsubscribedByServer)
	}
	return nil
}

// hasLostRight reports whether the client had m by its capabilities alone, and they were replaced
// while m was made. setCapabilities has not seen m then.
func (s *Session) hasLostRight(m *member) bool {
	return s.identity != nil && s.identity.caps.Load() != nil && m.grant == nil && !m.server && s.NeedsToken(m.ch.name)
}

// admit checks the token for a subscription, if one is required or given, and sets what it grants.
func (s *Session) admit(name string, w *SubscribeCommand) error {
	rules := s.node.rules.of(name)
	switch {
	case w.server || s.watcher && w.Token == "":
		return nil
	case !rules.AllowsName(name):
		return errBadName
	case w.Token != "" && s.node.tokens != nil:
		var err error
		w.grant, w.ttl, err = s.subscriptionGrant(name, w.Token)
		return err
	case rules.SubscribeHook && !rules.IsForUsers(name):
		return s.subscribeByHook(name, w)
	case s.NeedsToken(name):
		return deniedFor(rules.explainSubscribe(name, s.access()))
	}
	return nil
}

// subscriptionGrant checks a token for a subscription.
func (s *Session) subscriptionGrant(name, token string) (g *memberGrant, ttl uint32, err error) {
	n := s.node
	t, err := n.tokens.Subscription(token, s.User(), s.id.String(), name)
	switch {
	case errors.Is(err, errTokenExpired):
		return nil, 0, ErrTokenExpired
	case errors.Is(err, errKeyNotYetKnown):
		s.Refused(RefusedUnknownKey, err)
		return nil, 0, ErrInternal
	case err != nil:
		return nil, 0, fmt.Errorf("%w: %w", ErrPermissionDenied, err)
	}
	g = &memberGrant{info: t.Info, publish: t.Publish}
	if t.Ends.IsZero() {
		return g, 0, nil
	}
	g.expires = sinceEpoch(t.Ends.Add(n.timing.Refresh))
	return g, n.ttl(t.Ends), nil
}

// RefreshSubscription replaces the token of a subscription, and returns the seconds until it ends.
// A token that has expired ends the connection: its client comes back with another. To an answer
// with an error client libraries end the subscription for good.
func (s *Session) RefreshSubscription(name, token string) (ttl uint32, err error) {
	m := s.member(name)
	switch {
	case s.node.tokens == nil:
		return 0, ErrNotAvailable
	case m == nil || m.grant == nil:
		return 0, errNoTokenSubscription
	case token == "":
		return 0, ErrBadRequest
	}
	g, ttl, err := s.subscriptionGrant(name, token)
	switch {
	case errors.Is(err, ErrTokenExpired):
		return 0, errors.Join(DisconnectSubscriptionExpired, errTokenExpired)
	case err != nil:
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(name)
	if i < 0 || s.members[i].grant == nil {
		return 0, errNoTokenSubscription
	}
	s.members[i].grant.expires, s.members[i].grant.publish = g.expires, g.publish
	s.expireSubscription(s.members[i])
	return ttl, nil
}

var errNoTokenSubscription = deniedFor("it has no subscription by a token")

// settle adds m to the session's list, unless the session has ended or m was evicted meanwhile.
func (s *Session) settle(m *member) {
	s.mu.Lock()
	ended, evicted := s.stage == stageEnded, m.evicted
	if !ended && !evicted {
		s.members = append(s.members, m)
		if m.grant != nil {
			s.expireSubscription(m)
		}
	}
	s.mu.Unlock()
	if evicted {
		s.tellLost(m.ch.name)
	}
	if ended || evicted {
		s.node.hub.leave(m)
	}
}

// reserve makes a reservation, or returns why s cannot have a subscription to the channel, besides
// as many others. The caller passes the reservation to join, or cancels it.
func (s *Session) reserve(name string, others int) (*Reservation, error) {
	if err := s.node.checkChannel(name); err != nil {
		return nil, err
	}
	h := s.node.hub
	ch := h.acquire(name)
	r := ch.reserve(s)
	if r == nil {
		h.release(ch)
		return nil, ErrAlreadySubscribed
	}
	// A subscription is in s.members before its reservation ends. So it is seen here, or was there.
	s.mu.Lock()
	known, full := s.find(name) >= 0, len(s.members)+others >= s.node.limits.Channels
	s.mu.Unlock()
	switch {
	case known:
		r.Cancel()
		return nil, ErrAlreadySubscribed
	case full:
		r.Cancel()
		return nil, ErrLimitExceeded
	}
	return r, nil
}

// Unsubscribe leaves the channel of that name. It returns false if the session was not a member.
func (s *Session) Unsubscribe(name string) bool {
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

// end ends the subscription to the channel of that name, and sends the client the reason. If the
// client's form has no message for that, it ends the connection. A subscription that is being made
// ends when it is made. end returns false if there is none.
func (s *Session) end(name string, why Unsubscription) bool {
	if !s.Unsubscribe(name) {
		if r := s.node.hub.reserved(s, name); r != nil {
			r.end()
			return true
		}
		if !s.Unsubscribe(name) { // it was made meanwhile
			return false
		}
	}
	push := s.form().Unsubscribed(name, why)
	if push == nil {
		s.Disconnect(DisconnectForced)
		return true
	}
	if s.Offer(&Message{Payload: push}) == OfferFull {
		s.TooSlow("", len(push))
	}
	return true
}

// drop removes m from the list and reports whether it was there. The caller holds s.mu.
func (s *Session) drop(m *member) bool {
	i := slices.Index(s.members, m)
	if i < 0 {
		return false
	}
	last := len(s.members) - 1
	s.members[i], s.members[last] = s.members[last], nil
	s.members = s.members[:last]
	return true
}

// find returns the channel's index in s.members, or -1. It searches linearly, because a session has
// few members. The caller holds s.mu.
func (s *Session) find(name string) int {
	for i, m := range s.members {
		if m.ch.name == name {
			return i
		}
	}
	return -1
}

// member returns the session's subscription to the channel of that name, or nil.
func (s *Session) member(name string) *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(name); i >= 0 {
		return s.members[i]
	}
	return nil
}

// expireSubscription schedules a tick for the expiry of m's token. The caller holds s.mu.
func (s *Session) expireSubscription(m *member) {
	if m.grant.expires == 0 || s.identity == nil {
		return
	}
	if s.identity.subsEnd == 0 || m.grant.expires < s.identity.subsEnd {
		s.identity.subsEnd = m.grant.expires
	}
	s.node.wheel.set(s, s.deadline())
}

// expireSubscriptions ends the subscriptions whose tokens have expired.
func (s *Session) expireSubscriptions(now int64) {
	var over []string
	var asked []*member
	s.mu.Lock()
	for _, m := range s.members {
		switch {
		case m.grant == nil:
		case m.grant.expires != 0 && now >= m.grant.expires && m.refreshedByHook():
			m.grant.expires = now + int64(s.node.timing.Refresh) // if the hook does not answer
			s.expireSubscription(m)
			asked = append(asked, m)
		case m.grant.expires != 0 && now >= m.grant.expires:
			over = append(over, m.ch.name)
		default:
			s.expireSubscription(m)
		}
	}
	s.mu.Unlock()
	for _, name := range over {
		s.end(name, unsubscribedExpired)
	}
	if len(asked) > 0 {
		s.node.clock.AfterFunc(0, func() { // a hook may block
			for _, m := range asked {
				m.refreshByHook()
			}
		})
	}
}

// setCapabilities replaces the client's capabilities, and ends the subscriptions that it had by the
// old ones alone.
func (s *Session) setCapabilities(caps capabilities) {
	if s.identity == nil || len(caps) == 0 && s.identity.caps.Load() == nil {
		return
	}
	s.identity.caps.Store(&caps)
	var lost []string
	s.mu.Lock()
	for _, m := range s.members {
		if m.grant == nil && !m.server && s.NeedsToken(m.ch.name) {
			lost = append(lost, m.ch.name)
		}
	}
	s.mu.Unlock()
	for _, name := range lost {
		s.end(name, unsubscribedByServer)
	}
}
