package push

import (
	"context"
	"errors"
)

// This file lets a client join a channel whose publications have positions. The client gets each
// publication after its own position once. The first come from the history, the next from the
// window that the channel received meanwhile, the rest from the channel.

// A subscribeRequest is what a client requests when it subscribes.
type subscribeRequest struct {
	recover  bool
	since    Position
	complete bool       // refuse the subscription if not everything can be recovered
	delta    bool       // the client can apply deltas
	filter   *tagFilter // selects publications; nil: all
	notices  bool
	server   bool   // the server makes the subscription, which needs no token
	token    string // for the subscription; usually ""
	data     []byte // for a hook

	pushed       bool // notices, also where the rules have none
	unpositioned bool // the client gets no position, also where the rules have recovery

	grant *memberGrant // what the token grants; nil without one
	ttl   uint32       // seconds until the token ends
	// answer is data for the reply, from a hook.
	answer []byte
}

// showInfo makes others see info, which is JSON, of the client in the channel.
func (w *subscribeRequest) showInfo(info []byte) { w.grant = &memberGrant{info: info} }

// A welcome is the content of the reply to a new member.
type welcome struct {
	recoverable   bool
	at            Position // the member gets the publications after it
	wasRecovering bool
	recovered     bool
	publications  []Publication
	delta         bool // publications may be deltas
	data          []byte

	expires bool // the subscription ends in ttl seconds unless the client brings a new token
	ttl     uint32
}

// addMember makes s a member.
func (ch *channel) addMember(s *session, w subscribeRequest, announce func(welcome)) (*member, error) {
	if err := ch.connect(); err != nil {
		return nil, err
	}
	w.delta = ch.grantsDelta(s, &w)
	m := &member{s: s, ch: ch, grant: w.grant, server: w.server,
		notices: ch.rules.JoinLeave && (w.notices || ch.rules.PushJoinLeave) || w.pushed}
	if ch.rules.Recovery && !w.unpositioned {
		return m, ch.addAfterHistory(m, w, announce)
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.enter(m)
	ch.enterSpecial(m, &w)
	announce(welcome{wasRecovering: w.recover, delta: w.delta})
	return m, nil
}

func (ch *channel) enter(m *member) {
	ch.add(m)
	ch.count(m)
	if m.notices {
		ch.notified++
	}
}

// addAfterHistory makes m a member that continues where the history ends.
func (ch *channel) addAfterHistory(m *member, w subscribeRequest, announce func(welcome)) error {
	ch.mu.Lock()
	ch.window.open()
	ch.mu.Unlock()
	q := Query{}
	if w.recover {
		q = Query{Since: &w.since, Limit: ch.hub.node.limits.Recovered + 1}
	}
	n := ch.hub.node
	ctx, cancel := n.deadline(context.Background())
	defer cancel()
	past, err := n.bus.History(ctx, n.topic(ch.name), q)

	ch.mu.Lock()
	defer ch.mu.Unlock()
	rest, missed := ch.window.close()
	if err = errors.Join(err, missed); err != nil {
		return err
	}
	from := newJoinPoint(past, rest)
	hello := from.welcome(w, n.limits)
	if w.complete && w.recover && !hello.recovered {
		return failUnrecoverable
	}
	ch.enter(m)
	ch.enterSpecial(m, &w)
	hello.delta = w.delta
	hello.publications = w.filter.selected(hello.publications)
	announce(hello)
	return nil
}

// A joinPoint joins a history and the window that was received while it was read.
type joinPoint struct {
	past History
	rest []Publication // the part of the window after past
	at   Position      // the end of both
}

func newJoinPoint(past History, window []Publication) joinPoint {
	from := joinPoint{past: past, at: past.Top}
	for i, p := range window {
		if p.Epoch == past.Top.Epoch && p.Offset > past.Top.Offset {
			from.rest = window[i:]
			from.at = from.rest[len(from.rest)-1].Position
			break
		}
	}
	return from
}

// welcome returns what a client with that request has missed. It sets recovered if that is
// complete.
func (from *joinPoint) welcome(w subscribeRequest, limits Limits) welcome {
	hello := welcome{recoverable: true, at: from.at, wasRecovering: w.recover}
	if !w.recover || w.since.Epoch != "" && w.since.Epoch != from.at.Epoch || !from.past.Complete {
		return hello
	}
	count, bytes := len(from.past.Publications)+len(from.rest), 0
	for _, list := range [][]Publication{from.past.Publications, from.rest} {
		for _, p := range list {
			bytes += envelope + p.Size()
		}
	}
	if count > limits.Recovered || bytes > limits.Queue {
		return hello
	}
	hello.recovered = true
	hello.publications = append(from.past.Publications, from.rest...)
	return hello
}

// Lost makes the members recover, because they may have missed publications, or because offsets
// begin again. The bus calls it.
func (ch *channel) Lost(string) {
	if !ch.rules.Recovery {
		return
	}
	ch.mu.Lock()
	ch.window.lose()
	told, others := ch.evictMembers()
	ch.mu.Unlock()
	for _, m := range others {
		m.s.disconnect(endInsufficient)
	}
	ch.releaseLater(told)
}

// evictMembers removes all members from the channel, because they have missed publications. It
// tells clients to subscribe again, and returns their number. It returns as others the members that
// cannot do that: the caller disconnects them, and they reconnect with their position. The caller
// holds ch.mu.
func (ch *channel) evictMembers() (told int, others []*member) {
	gone := ch.members
	ch.members, ch.notified, ch.lags = nil, 0, nil
	ch.specials, ch.deltas, ch.base = nil, 0, nil
	for _, m := range gone {
		m.at = nowhere
		ch.uncount(m)
		push := m.s.form().unsubscribed(ch.name, unsubscribedInsufficient)
		if push == nil || m.server {
			others = append(others, m)
		} else if m.s.evict(m) {
			m.s.offer(&message{payload: push})
			told++
		}
	}
	ch.hub.node.log.Warn("push: the bus lost publications; subscribers have to recover", "channel",
		ch.name, "subscribers", len(gone))
	return told, others
}

// releaseLater removes users from within Lost. It closes the channel on another goroutine, because
// a receiver must not call the bus.
func (ch *channel) releaseLater(users int) {
	for range users {
		if ch.hub.forget(ch) {
			ch.hub.node.clock.AfterFunc(0, ch.close)
		}
	}
}

// evict removes m from the session's list. It returns false if m is not in the list: the session
// has ended, or session.settle has not run yet and will see m.evicted.
func (s *session) evict(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.evicted = true
	return s.drop(m)
}

// tellLost asks the client to subscribe again and recover, or disconnects it if it cannot do that.
func (s *session) tellLost(name string) {
	push := s.form().unsubscribed(name, unsubscribedInsufficient)
	if push == nil {
		s.disconnect(endInsufficient)
		return
	}
	s.offer(&message{payload: push})
}
