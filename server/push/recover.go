package push

import (
	"context"
	"errors"
	"slices"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file lets a client join a channel whose publications have positions. The client gets each
// publication after its own position once. The first come from the history, the next from the
// window that the channel received meanwhile, the rest from the channel. If the history is ahead of
// the channel, the member waits in channel.ahead until the channel has caught up.

// A subscribeRequest is what a client requests when it subscribes.
type subscribeRequest struct {
	recover bool
	since   Position
	notices bool
	grant   *memberGrant // nil without a token
}

// A welcome is the content of the reply to a new member.
type welcome struct {
	recoverable   bool
	at            Position // the member gets the publications after it
	wasRecovering bool
	recovered     bool
	publications  []Publication
}

// An aheadMember is a member that has publications which the channel has not received yet.
type aheadMember struct {
	m  *member
	at uint64 // offset of the last of them
}

// windowLimit is how many publications may arrive while a history is read. Above it the
// subscription fails, and the client has to try again.
const windowLimit = 4096

var errWindow = errors.New("push: too much was published while the history was read: subscribe again")

// addMember makes s a member.
func (ch *channel) addMember(s *session, w subscribeRequest, announce func(welcome)) (*member, error) {
	if err := ch.connect(); err != nil {
		return nil, err
	}
	m := &member{s: s, ch: ch, grant: w.grant, notices: w.notices && ch.rules.JoinLeave}
	if ch.rules.Recovery {
		return m, ch.addAfterHistory(m, w, announce)
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.enter(m)
	announce(welcome{wasRecovering: w.recover})
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
	ch.joining++
	ch.mu.Unlock()
	q := Query{}
	if w.recover {
		q = Query{Since: &w.since, Limit: ch.hub.node.limits.Recovered + 1}
	}
	past, err := ch.hub.node.bus.History(context.Background(), ch.name, q)

	ch.mu.Lock()
	defer ch.mu.Unlock()
	missed, window := ch.missed, ch.window
	ch.joining--
	if ch.joining == 0 {
		ch.window, ch.missed = nil, false
	}
	if err == nil && missed {
		err = errors.Join(centrifuge.ErrInternal, errWindow)
	}
	if err != nil {
		return err
	}
	if ch.last.Epoch == "" {
		ch.last = past.Top
	}
	from := newJoinPoint(past, window)
	ch.enterAt(m, from.at)
	announce(from.welcome(w, ch.hub.node.limits))
	return nil
}

// enterAt makes m a member that has all publications up to at.
func (ch *channel) enterAt(m *member, at Position) {
	ch.enter(m)
	if at.Epoch == ch.last.Epoch && at.Offset > ch.last.Offset {
		ch.members[m.at] = nil
		ch.members = ch.members[:m.at]
		m.at = inAhead
		ch.ahead = append(ch.ahead, aheadMember{m, at.Offset})
	}
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
	if !w.recover || w.since.Epoch != from.at.Epoch || w.since.Offset > from.at.Offset {
		return hello
	}
	count, bytes := len(from.past.Publications)+len(from.rest), 0
	for _, list := range [][]Publication{from.past.Publications, from.rest} {
		for _, p := range list {
			bytes += envelope + p.size()
		}
	}
	if uint64(count) != from.at.Offset-w.since.Offset || count > limits.Recovered || bytes > limits.Queue {
		return hello
	}
	hello.recovered = true
	hello.publications = append(from.past.Publications, from.rest...)
	return hello
}

// follow advances the channel's position. It returns the new publications of list, and whether
// publications before them were lost. The caller holds ch.mu.
func (ch *channel) follow(list []Publication) (fresh []Publication, lost bool) {
	if !ch.rules.Recovery {
		return list, false
	}
	list = newerThan(list, ch.last)
	for _, p := range list {
		if p.Epoch == "" {
			continue
		}
		lost = lost || ch.last.Epoch != "" && p.Position != (Position{ch.last.Offset + 1, ch.last.Epoch})
		ch.last = p.Position
	}
	if ch.joining > 0 && len(list) > 0 {
		ch.missed = ch.missed || lost || len(ch.window)+len(list) > windowLimit
		if !ch.missed {
			ch.window = appendPositioned(ch.window, list)
		}
	}
	return list, lost
}

// newerThan returns the publications of list after at, and those without a position, which are in
// no history. It does not change list.
func newerThan(list []Publication, at Position) []Publication {
	old := func(p Publication) bool { return p.Epoch != "" && p.Epoch == at.Epoch && p.Offset <= at.Offset }
	for len(list) > 0 && old(list[0]) {
		list = list[1:]
	}
	if slices.ContainsFunc(list, old) {
		list = slices.DeleteFunc(slices.Clone(list), old)
	}
	return list
}

// appendPositioned appends the publications of list that have a position. A joining client need not
// get the others, because its subscription begins after them.
func appendPositioned(window, list []Publication) []Publication {
	for _, p := range list {
		if p.Epoch != "" {
			window = append(window, p)
		}
	}
	return window
}

// spreadAhead sends the members that are ahead what they do not have yet. It moves members that are
// no longer ahead to ch.members.
func (ch *channel) spreadAhead(list []Publication, slow []*member) []*member {
	var behind []*member
	kept := ch.ahead[:0]
	for _, early := range ch.ahead {
		rest := newerThan(list, Position{early.at, ch.last.Epoch})
		m := early.m
		if len(rest) > 0 {
			ch.hub.node.count.messages.Add(uint64(m.s.counted()) * uint64(len(rest)))
			if m.s.offer(&message{payload: m.s.wire.publications(ch.name, rest)}) == offerFull {
				slow = append(slow, m)
			}
		}
		if ch.last.Offset < early.at {
			kept = append(kept, early)
			continue
		}
		behind = append(behind, m)
	}
	clear(ch.ahead[len(kept):])
	ch.ahead = kept
	for _, m := range behind {
		ch.add(m)
	}
	return slow
}

// evictMembers removes all members from the channel, because they have missed publications. It
// tells WebSocket clients to subscribe again, and returns their number. It returns the SSE members
// as others: the caller disconnects them, and they reconnect with their position. The caller holds
// ch.mu.
func (ch *channel) evictMembers() (told int, others []*member) {
	gone := ch.members
	for _, early := range ch.ahead {
		gone = append(gone, early.m)
	}
	ch.members, ch.ahead, ch.notified, ch.lags = nil, nil, 0, nil
	for _, m := range gone {
		m.at = nowhere
		ch.uncount(m)
		if m.s.wire != wireCentrifuge {
			others = append(others, m)
		} else if m.s.evict(m) {
			m.s.tellLost(ch.name)
			told++
		}
	}
	ch.hub.node.log.Warn("push: the bus lost publications; subscribers have to recover", "channel",
		ch.name, "subscribers", len(gone))
	return told, others
}

// releaseLater removes users from within Receive. It closes the channel on another goroutine,
// because Receive must not call the bus.
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

func (s *session) tellLost(name string) {
	s.offer(&message{payload: centrifuge.AppendUnsubscribe(nil, name, centrifuge.InsufficientState)})
}
