package push

import (
	"context"
	"errors"
)

// This file asks Hooks.SubRefresh about subscriptions that expire.

// A SubRefreshAnswer says whether a subscription goes on.
type SubRefreshAnswer struct {
	Expired  bool  // the subscription ends, as without the hook
	ExpireAt int64 // seconds since 1970; 0: never; a time that has passed is as Expired
}

// refreshedByHook reports whether a hook says what happens to m when it expires.
func (m *member) refreshedByHook() bool {
	return m.grant.hooked && m.ch.rules.SubRefreshHook && m.s.node.hooks.SubRefresh != nil
}

// refreshByHook asks whether the subscription goes on. If the hook fails, expireSubscriptions asks
// again after Timing.Refresh.
func (m *member) refreshByHook() {
	s, name := m.s, m.ch.name
	if s.IsClosing() || s.member(name) != m {
		return
	}
	a, err := s.node.hooks.SubRefresh(context.Background(), s.caller(), name)
	var why Disconnect
	switch {
	case errors.As(err, &why):
		s.hookFailed("sub_refresh", err)
		s.Disconnect(why)
	case err != nil:
		s.node.log.Error("push: a hook failed", "hook", "sub_refresh", "client", s.id.String(), "channel", name,
			"error", err)
	case a.Expired || s.node.isPast(a.ExpireAt):
		s.end(name, unsubscribedExpired)
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
