package push

import (
	"context"
	"errors"
	"slices"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file holds the commands about one channel.

func (b *batch) subscribe(c *centrifuge.Command) error {
	s, ask := b.s, c.Subscribe
	if ask.Channel == "" {
		return errors.Join(centrifuge.BadRequest, errNoChannel)
	}
	g, ttl, err := s.subscriptionGrant(ask.Channel, ask.Token)
	if b.failed(c, err) {
		return nil
	}
	w := subscribeRequest{recover: ask.Recover,
		since:   Position(centrifuge.Position{Offset: ask.Offset, Epoch: ask.Epoch}),
		notices: ask.JoinLeave, grant: g}
	err = s.subscribe(ask.Channel, w, func(hello welcome) {
		b.welcome(c, hello, g != nil, ttl)
		b.flush()
	})
	b.failed(c, err)
	return nil
}

// welcome answers a subscribe command.
func (b *batch) welcome(c *centrifuge.Command, hello welcome, expires bool, ttl uint32) {
	result := centrifuge.SubscribeResult{
		Expires: expires, TTL: ttl, Recoverable: hello.recoverable, Position: centrifuge.Position(hello.at),
		WasRecovering: hello.wasRecovering, Recovered: hello.recovered,
	}
	if len(hello.publications) > 0 {
		result.Publications = listed(hello.publications)
	}
	b.out = centrifuge.AppendSubscribe(b.newLine(), c.ID, result)
}

// listed encodes publications for a reply.
func listed(list []Publication) []byte {
	size := 2
	shown := make([]centrifuge.Publication, len(list))
	for i := range list {
		shown[i] = list[i].forClients()
		size += envelope + list[i].size()
	}
	return centrifuge.AppendPublications(make([]byte, 0, size), shown)
}

// subscriptionGrant checks the token for a subscription, if one is required or given. Without a
// token it returns nil. The error is a reply to the client.
func (s *session) subscriptionGrant(name, token string) (g *memberGrant, ttl uint32, err error) {
	n := s.node
	switch {
	case n.tokens == nil: // newNamespaces has checked that none is required
		return nil, 0, nil
	case token == "" && n.rules.of(name).SubscribeToken && !slices.Contains(s.identity.channels, name):
		return nil, 0, centrifuge.ErrPermissionDenied
	case token == "":
		return nil, 0, nil
	}
	g, ends, err := n.tokens.verifySubscription(token, s.user(), s.id.String(), name)
	switch {
	case errors.Is(err, errTokenExpired):
		return nil, 0, centrifuge.ErrTokenExpired
	case err != nil:
		n.log.Info("push: refused the token for a subscription", "client", s.id.String(), "channel", name, "error", err)
		return nil, 0, centrifuge.ErrPermissionDenied
	}
	g.expires = sinceEpoch(ends.Add(n.timing.Refresh))
	return g, n.ttl(ends), nil
}

// mayPublish reports whether the rules of the channel let the client publish.
func (s *session) mayPublish(name string) bool {
	if s.node.denyClientPublish {
		return false
	}
	switch s.node.rules.of(name).Publish {
	case PublishClients:
		return true
	case PublishSubscribers:
		return s.member(name) != nil
	case PublishToken:
		m := s.member(name)
		return m != nil && m.grant != nil && m.grant.publish
	}
	return false
}

// subRefresh replaces the token of a subscription.
func (b *batch) subRefresh(c *centrifuge.Command) error {
	s, name := b.s, c.SubRefresh.Channel
	switch {
	case name == "":
		return errors.Join(centrifuge.BadRequest, errNoChannel)
	case s.node.tokens == nil:
		b.fail(c, centrifuge.ErrNotAvailable)
		return nil
	case c.SubRefresh.Token == "":
		b.fail(c, centrifuge.ErrBadRequest)
		return nil
	}
	g, ttl, err := s.subscriptionGrant(name, c.SubRefresh.Token)
	if b.failed(c, err) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(name)
	if i < 0 || s.members[i].grant == nil {
		b.fail(c, centrifuge.ErrPermissionDenied)
		return nil
	}
	s.members[i].grant.expires = g.expires
	s.expireSubscription(s.members[i])
	b.out = centrifuge.AppendSubRefresh(b.newLine(), c.ID, ttl)
	return nil
}

// history answers a subscriber with the channel's history.
func (b *batch) history(c *centrifuge.Command) error {
	s, ask := b.s, c.History
	if ask.Channel == "" {
		return errors.Join(centrifuge.BadRequest, errNoChannel)
	}
	if s.node.rules.of(ask.Channel).HistorySize == 0 {
		b.fail(c, centrifuge.ErrNotAvailable)
		return nil
	}
	if s.member(ask.Channel) == nil {
		b.fail(c, centrifuge.ErrPermissionDenied)
		return nil
	}
	h, err := s.node.history(context.Background(), ask.Channel, Query{Since: (*Position)(ask.Since),
		Limit: int(ask.Limit), Reverse: ask.Reverse})
	if !b.failed(c, err) {
		b.out = centrifuge.AppendHistory(b.newLine(), c.ID, listed(h.Publications), centrifuge.Position(h.Top))
	}
	return nil
}

// history reads as much as Limits allow. A position of another epoch is an error for the client.
func (n *node) history(ctx context.Context, name string, q Query) (History, error) {
	if q.Limit < 0 || q.Limit > n.limits.Recovered {
		q.Limit = n.limits.Recovered
	}
	ctx, cancel := n.deadline(ctx)
	defer cancel()
	h, err := n.bus.History(ctx, n.topic(name), q)
	if err != nil {
		return h, err
	}
	if q.Since != nil && q.Since.Epoch != "" && q.Since.Epoch != h.Top.Epoch {
		return h, centrifuge.ErrUnrecoverablePosition
	}
	bytes := 0
	for i, p := range h.Publications {
		bytes += envelope + p.size()
		if bytes > n.limits.Queue && i > 0 {
			h.Publications = h.Publications[:i]
			break
		}
	}
	return h, nil
}

// presence answers a subscriber with the channel's subscribers.
func (b *batch) presence(c *centrifuge.Command, name string) error {
	s := b.s
	if name == "" {
		return errors.Join(centrifuge.BadRequest, errNoChannel)
	}
	if !s.node.rules.of(name).Presence {
		b.fail(c, centrifuge.ErrNotAvailable)
		return nil
	}
	if s.member(name) == nil {
		b.fail(c, centrifuge.ErrPermissionDenied)
		return nil
	}
	there, err := s.node.present(context.Background(), name, c.PresenceStats != nil)
	switch {
	case b.failed(c, err):
	case c.PresenceStats != nil:
		b.out = centrifuge.AppendPresenceStats(b.newLine(), c.ID, there.Count, there.Users)
	default:
		b.out = centrifuge.AppendPresence(b.newLine(), c.ID, infos(there.Clients))
	}
	return nil
}

// present returns the clients of a channel on all nodes, or their numbers only. More clients than
// Limits.Present are an error for the client.
func (n *node) present(ctx context.Context, name string, numbers bool) (Presence, error) {
	limit := n.limits.Present
	if numbers {
		limit = 0
	}
	ctx, cancel := n.deadline(ctx)
	defer cancel()
	there, err := n.bus.Present(ctx, name, limit)
	if err == nil && !numbers && there.Count > limit {
		err = centrifuge.ErrLimitExceeded
	}
	if len(there.Missing) > 0 {
		n.log.Warn("push: nodes did not answer who is present", "channel", name, "nodes", there.Missing)
	}
	return there, err
}

func infos(list []ClientInfo) []centrifuge.ClientInfo {
	shown := make([]centrifuge.ClientInfo, len(list))
	for i, info := range list {
		shown[i] = centrifuge.ClientInfo(info)
	}
	return shown
}
