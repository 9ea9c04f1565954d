package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/myriad-go/myriad/server/push/internal/strict"
	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"
)

// This file holds a session's subscriptions: those that the client asks for, those that the server
// makes for it, and how both end.

// Subscribe makes the client a subscriber of the channel. It calls announce with what the reply has
// to say, after the last publication that the client does not get, and before the first that it
// gets. announce must only queue the reply for the client. Subscribe may wait for the bus. An Error
// is the answer to the client; then announce has not been called.
func (s *Session) Subscribe(name string, w SubscribeCommand, announce func(Welcome)) error {
	r, err := s.reserve(name, 0)
	if err != nil {
		return err
	}
	admitted := false
	defer func() {
		if !admitted { // a hook may also have ended the goroutine
			r.Cancel()
		}
	}()
	if err := s.admit(name, &w); err != nil {
		return err
	}
	admitted = true
	r.SubscribeCommand = w
	return s.Join(r, announce)
}

// AdmitAll checks subscriptions to several channels, before one of them is made, and returns what
// to join with. Those that s has already are left out. The error is that of the first that s may
// not have. The channels that g names were granted by a token or by Hooks.Connect: they need no
// other token and no other hook, and others see there the info that g has.
func (s *Session) AdmitAll(names []string, g Grant) (wanted map[string]*Reservation, err error) {
	wanted = make(map[string]*Reservation)
	complete := false
	defer func() {
		if !complete { // a hook may also have ended the goroutine
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
		case err == answer.ErrAlreadySubscribed:
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
		if slices.Contains(g.Channels, name) {
			r.server = true
			if info := g.Infos[name]; info != nil {
				r.ShowInfo(info)
			}
		}
		err := s.MaySubscribeNow()
		if err == nil {
			err = s.admit(name, &r.SubscribeCommand)
		}
		if err != nil {
			return wanted, err
		}
	}
	complete = true
	return wanted, nil
}

// Join makes a subscription that was admitted. If the server has ended it meanwhile, the client is
// told of that behind the announcement.
func (s *Session) Join(r *Reservation, announce func(Welcome)) error {
	m, err := s.hub.channels.join(r, func(hello Welcome) {
		hello.Expires, hello.TTL, hello.Data = r.ttl > 0, r.ttl, r.answer
		announce(hello)
	})
	if err != nil {
		r.Cancel()
		return err
	}
	s.hub.channels.announce(m, true) // before settle, after which a leave may be announced
	s.settle(m)
	if r.settle() || s.hasLostRight(m) {
		s.end(m.ch.name, answer.UnsubscribedByServer)
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
	rules := s.hub.rules.Of(name)
	switch {
	case w.server || s.watcher && w.Token == "":
		return nil
	case !rules.AllowsName(name):
		return policy.ErrBadName
	case w.Token != "" && s.hub.tokens != nil:
		var err error
		w.grant, w.ttl, err = s.subscriptionGrant(name, w.Token)
		return err
	case rules.SubscribeHook && !rules.IsForUsers(name):
		return s.subscribeByHook(name, w)
	case s.NeedsToken(name):
		return policy.Denied(rules.ExplainSubscribe(name, s.access()))
	}
	return nil
}

// subscriptionGrant checks a token for a subscription.
func (s *Session) subscriptionGrant(name, token string) (g *memberGrant, ttl uint32, err error) {
	n := s.hub
	t, err := n.tokens.Subscription(token, s.User(), s.id.String(), name)
	switch {
	case errors.Is(err, errTokenExpired):
		return nil, 0, answer.ErrTokenExpired
	case errors.Is(err, errKeyNotYetKnown):
		s.CountRefusal(RefusedUnknownKey, err)
		return nil, 0, answer.ErrInternal
	case err != nil:
		return nil, 0, fmt.Errorf("%w: %w", answer.ErrPermissionDenied, err)
	}
	g = &memberGrant{info: t.Info, publish: t.Publish, renewed: s.AnswersPings()}
	if t.Ends.IsZero() {
		return g, 0, nil
	}
	g.expires = sinceEpoch(t.Ends.Add(n.timing.Refresh))
	return g, n.TTL(t.Ends), nil
}

// RefreshSubscription replaces the token of a subscription, and returns the seconds until it ends.
// A token that has expired ends the connection: its client comes back with another. To an answer
// with an error client libraries end the subscription for good.
func (s *Session) RefreshSubscription(name, token string) (ttl uint32, err error) {
	m := s.member(name)
	switch {
	case s.hub.tokens == nil:
		return 0, answer.ErrNotAvailable
	case m == nil || m.grant == nil:
		return 0, errNoTokenSubscription
	case token == "":
		return 0, answer.ErrBadRequest
	}
	g, ttl, err := s.subscriptionGrant(name, token)
	switch {
	case errors.Is(err, answer.ErrTokenExpired):
		return 0, errors.Join(answer.DisconnectSubscriptionExpired, errTokenExpired)
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
	s.members[i].grant.spared = false
	s.expireSubscription(s.members[i])
	return ttl, nil
}

var errNoTokenSubscription = policy.Denied("it has no subscription by a token")

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
		s.hub.channels.leave(m)
	}
}

// reserve makes a reservation, or returns why s cannot have a subscription to the channel, besides
// as many others. The caller passes the reservation to join, or cancels it.
func (s *Session) reserve(name string, others int) (*Reservation, error) {
	if err := s.hub.rules.Check(name); err != nil {
		return nil, err
	}
	h := s.hub.channels
	ch := h.acquire(name)
	r := ch.reserve(s)
	if r == nil {
		h.release(ch)
		return nil, answer.ErrAlreadySubscribed
	}
	// A subscription is in s.members before its reservation ends. So it is seen here, or was there.
	s.mu.Lock()
	known, full := s.find(name) >= 0, len(s.members)+others >= s.hub.limits.Channels
	s.mu.Unlock()
	switch {
	case known:
		r.Cancel()
		return nil, answer.ErrAlreadySubscribed
	case full:
		r.Cancel()
		return nil, answer.ErrLimitExceeded
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
	s.hub.channels.leave(m)
	return true
}

// end ends the subscription to the channel of that name, and sends the client the reason. If the
// client's form has no message for that, it ends the connection. A subscription that is being made
// ends when it is made. end returns false if there is none.
func (s *Session) end(name string, why answer.Unsubscription) bool {
	if !s.Unsubscribe(name) {
		if r := s.hub.channels.reserved(s, name); r != nil {
			r.end()
			return true
		}
		if !s.Unsubscribe(name) { // it was made meanwhile
			return false
		}
	}
	push := s.form().Unsubscribed(name, why)
	if push == nil {
		s.Disconnect(answer.DisconnectForced)
		return true
	}
	s.Tell(name, &Message{Payload: push})
	return true
}

// EndSubscription ends the subscription to the channel of that name, and tells the client, which
// does not subscribe again. It returns false if there is none.
func (s *Session) EndSubscription(name string) bool { return s.end(name, answer.UnsubscribedByServer) }

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
	s.hub.wheel.set(s, s.deadline())
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
			m.grant.expires = now + int64(s.hub.timing.Refresh) // if the hook does not answer
			s.expireSubscription(m)
			asked = append(asked, m)
		case m.grant.expires != 0 && now >= m.grant.expires && s.spareSubscription(m, now):
			s.expireSubscription(m)
		case m.grant.expires != 0 && now >= m.grant.expires:
			over = append(over, m.ch.name)
		default:
			s.expireSubscription(m)
		}
	}
	s.mu.Unlock()
	for _, name := range over {
		s.end(name, answer.UnsubscribedExpired)
	}
	if len(asked) > 0 {
		s.hub.clock.AfterFunc(0, func() { // a hook may block
			for _, m := range asked {
				m.refreshByHook()
			}
		})
	}
}

// spareSubscription is spareRefresh for the token of a subscription. The caller holds s.mu.
func (s *Session) spareSubscription(m *member, now int64) bool {
	refresh := int64(s.hub.timing.Refresh)
	if !m.grant.renewed || m.grant.spared || !s.hub.wheel.lateness.since(now-refresh) {
		return false
	}
	m.grant.spared, m.grant.expires = true, now+refresh
	return true
}

// setCapabilities replaces the client's capabilities, and ends the subscriptions that it had by the
// old ones alone.
func (s *Session) setCapabilities(caps policy.Capabilities) {
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
		s.end(name, answer.UnsubscribedByServer)
	}
}

// A ServerSubscription is a subscription that the server has made, as the client is told of it.
type ServerSubscription struct {
	Channel string
	Welcome Welcome
}

// SubscribeFirst makes the subscriptions that the client's token asks for, before the client has
// the reply to connect. The caller calls Session.Hold before, and Session.ReleaseHeld with the
// reply after it, also if SubscribeFirst fails. request returns what the client has asked for, such
// as the position after which it continues.
func (s *Session) SubscribeFirst(channels []string, request func(channel string) (SubscribeCommand, error)) (
	made []ServerSubscription, err error) {
	for _, name := range channels {
		w, err := request(name)
		if err != nil {
			return made, err
		}
		w.server = true
		err = s.Subscribe(name, w, func(hello Welcome) { made = append(made, ServerSubscription{name, hello}) })
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

// AlsoAsked returns given, and those of asked to which the client may subscribe without a token for
// the channel. The log has the others.
func (s *Session) AlsoAsked(given, asked []string) []string {
	for _, name := range asked {
		switch {
		case slices.Contains(given, name):
		case !s.MayName(name) || s.NeedsToken(name):
			why := s.hub.rules.Of(name).ExplainSubscribe(name, s.access())
			s.CountRefusal(RefusedPermission, fmt.Errorf("connect: %q: %w", name, policy.Denied(why)))
		default:
			given = append(given, name)
		}
	}
	return given
}

// SubscribeByServer subscribes a connected client, and tells it. It returns false if the client's
// form cannot say so, and an Error if the client is subscribed already or has too many channels.
func (s *Session) SubscribeByServer(name string, w SubscribeCommand) (told bool, err error) {
	if s.form().Subscribed(name, Welcome{}) == nil {
		return false, nil
	}
	w.server = true
	err = s.Subscribe(name, w, func(hello Welcome) {
		push := s.form().Subscribed(name, hello)
		s.Tell(name, &Message{Payload: push})
	})
	return err == nil, err
}

// refreshedByHook reports whether a hook says what happens to m when it expires.
func (m *member) refreshedByHook() bool {
	return m.grant.hooked && m.ch.rules.SubRefreshHook && m.s.hub.hooks.SubRefresh != nil
}

// refreshByHook asks whether the subscription goes on. If the hook fails, expireSubscriptions asks
// again after Timing.Refresh.
func (m *member) refreshByHook() {
	s, name := m.s, m.ch.name
	if s.IsClosing() || s.member(name) != m {
		return
	}
	a, err := s.hub.hooks.SubRefresh(context.Background(), s.caller(), name)
	if s.hub.BeginChange(context.Background()) != nil {
		return // as refreshByHook
	}
	defer s.hub.EndChange()
	var why answer.Disconnect
	switch {
	case errors.As(err, &why):
		s.hookFailed("sub_refresh", err)
		s.Disconnect(why)
	case err != nil:
		s.hub.log.Error("push: a hook failed", "hook", "sub_refresh", "client", s.id.String(), "channel", name,
			"error", err)
	case a.Expired || s.hub.isPast(a.ExpireAt):
		s.end(name, answer.UnsubscribedExpired)
	default:
		s.expireSubscriptionAt(m, a.ExpireAt)
	}
}

// expireSubscriptionAt sets when m expires, in seconds since 1970; 0: never.
func (s *Session) expireSubscriptionAt(m *member, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.grant.expires = 0; at != 0 {
		m.grant.expires = sinceEpoch(endOf(at))
	}
	if s.stage == stageConnected {
		s.expireSubscription(m)
	}
}

// announced reports whether the channel's subscribers are told when m joins and leaves.
func (m *member) announced() bool {
	if m.grant == nil {
		return m.ch.rules.JoinLeave
	}
	return or(m.grant.announced, m.ch.rules.JoinLeave)
}

// absent reports whether m is left out of presence.
func (m *member) absent() bool { return m.s.watcher || m.grant != nil && m.grant.absent }

// subscribeByHook asks whether the client may subscribe, and sets what the hook grants.
func (s *Session) subscribeByHook(name string, w *SubscribeCommand) error {
	a, err := s.hub.hooks.Subscribe(context.Background(), s.caller(), SubscribeRequest{name, w.Token, w.Data})
	if err != nil {
		return s.hookFailed("subscribe", err)
	}
	w.answer = a.Data
	w.grant = &memberGrant{info: strict.Compact(a.Info), publish: a.Publish, hooked: true}
	if end := endOf(a.ExpireAt); !end.IsZero() {
		w.grant.expires = sinceEpoch(end)
	}
	return nil
}

func (s *Session) access() policy.Access {
	if s.identity == nil {
		return policy.Access{}
	}
	a := policy.Access{User: s.identity.user, Channels: s.identity.channels}
	if caps := s.identity.caps.Load(); caps != nil {
		a.Caps = *caps
	}
	return a
}

// NeedsToken reports whether the client can subscribe only with a token for the channel, or by a
// hook.
func (s *Session) NeedsToken(name string) bool {
	rules := s.hub.rules.Of(name)
	return !s.watcher && !rules.IsOpen() && rules.NeedsToken(name, s.access())
}

// MayName reports whether the client may use the name.
func (s *Session) MayName(name string) bool {
	return s.hub.rules.Check(name) == nil && (s.watcher || s.hub.rules.Of(name).AllowsName(name))
}

// evict removes m from the session's list. It returns false if m is not in the list: the session
// has ended, or Session.settle has not run yet and will see m.evicted.
func (s *Session) evict(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.evicted = true
	return s.drop(m)
}

// tellLost asks the client to subscribe again and recover, or disconnects it if it cannot do that.
func (s *Session) tellLost(name string) {
	push := s.form().Unsubscribed(name, answer.UnsubscribedInsufficient)
	if push == nil {
		s.Disconnect(answer.DisconnectInsufficientState)
		return
	}
	s.Tell(name, &Message{Payload: push})
}

// catchUpSoon schedules the session's next tick soon. The caller holds a channel's lock.
func (s *Session) catchUpSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage == stageConnected && !s.lagging {
		s.lagging = true
		s.hub.wheel.set(s, s.deadline())
	}
}

// catchUp sends the session what its channels have queued for it. Its tick calls it.
func (s *Session) catchUp() {
	s.mu.Lock()
	members := append([]*member(nil), s.members...)
	s.lagging = false
	s.mu.Unlock()
	for _, m := range members {
		if m.ch.rules.Slow == policy.SlowDisconnect {
			continue
		}
		m.ch.mu.Lock()
		left := m.ch.catchUp(m)
		m.ch.mu.Unlock()
		if left {
			s.catchUpSoon()
		}
	}
}
