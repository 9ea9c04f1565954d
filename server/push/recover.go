package push

import (
	"context"
	"errors"
	"slices"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file is how a client comes into a channel whose publications have positions, so that it gets
// every one behind its own position once: from the history those up to the history's end, then from
// what the channel has received while the history was read, then from the channel. It may also be
// that the history is ahead of the channel: then the member waits in channel.ahead until the
// channel has received as much.

// A wish is what a client asks for when it subscribes.
type wish struct {
	recover bool
	since   Position
	notices bool
	grant   *memberGrant // nil: it has brought no token
}

// A welcome is what a new member is told.
type welcome struct {
	recoverable   bool
	at            Position // of the last publication that it has got, or will not get
	wasRecovering bool
	recovered     bool
	publications  []Publication
}

// An early is a member that has had publications which the channel has not received yet.
type early struct {
	m  *member
	at uint64 // the last of them
}

// windowLimit is how many publications may come while a history is read. More, and the client is
// told to try again.
const windowLimit = 4096

var errWindow = errors.New("push: too much was published while the history was read: subscribe again")

// admit makes s a member.
func (ch *channel) admit(s *session, w wish, announce func(welcome)) (*member, error) {
	if err := ch.connect(); err != nil {
		return nil, err
	}
	m := &member{s: s, ch: ch, grant: w.grant, curious: w.notices && ch.rules.JoinLeave}
	if ch.rules.Recovery {
		return m, ch.admitAt(m, w, announce)
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
	if m.curious {
		ch.curious++
	}
}

// admitAt makes m a member behind what the history has.
func (ch *channel) admitAt(m *member, w wish, announce func(welcome)) error {
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
	meet := newMeeting(past, window)
	ch.enterAt(m, meet.at)
	announce(meet.welcome(w, ch.hub.node.limits))
	return nil
}

// enterAt makes m a member that has everything up to at.
func (ch *channel) enterAt(m *member, at Position) {
	ch.enter(m)
	if at.Epoch == ch.last.Epoch && at.Offset > ch.last.Offset {
		ch.members[m.at] = nil
		ch.members = ch.members[:m.at]
		m.at = isAhead
		ch.ahead = append(ch.ahead, early{m, at.Offset})
	}
}

// A meeting is where a history and what was received meanwhile come together.
type meeting struct {
	past History
	rest []Publication // what was received behind it
	at   Position      // the end of both
}

func newMeeting(past History, window []Publication) meeting {
	meet := meeting{past: past, at: past.Top}
	for i, p := range window {
		if p.Epoch == past.Top.Epoch && p.Offset > past.Top.Offset {
			meet.rest = window[i:]
			meet.at = meet.rest[len(meet.rest)-1].Position
			break
		}
	}
	return meet
}

// welcome says what a client with that wish has missed, if that can be said.
func (meet *meeting) welcome(w wish, limits Limits) welcome {
	hello := welcome{recoverable: true, at: meet.at, wasRecovering: w.recover}
	if !w.recover || w.since.Epoch != meet.at.Epoch || w.since.Offset > meet.at.Offset {
		return hello
	}
	count, bytes := len(meet.past.Publications)+len(meet.rest), 0
	for _, list := range [][]Publication{meet.past.Publications, meet.rest} {
		for _, p := range list {
			bytes += envelope + p.size()
		}
	}
	if uint64(count) != meet.at.Offset-w.since.Offset || count > limits.Recovered || bytes > limits.Queue {
		return hello
	}
	hello.recovered = true
	hello.publications = append(meet.past.Publications, meet.rest...)
	return hello
}

// follow keeps the channel's position. It returns what of list is new, or that something before it
// has been lost. The caller holds ch.mu.
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

// newerThan returns the publications of list that stand behind at, and those without a position,
// which are in no history. It does not change list.
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

// appendPositioned appends those of list that have a position. A client that joins now is behind
// the others already.
func appendPositioned(window, list []Publication) []Publication {
	for _, p := range list {
		if p.Epoch != "" {
			window = append(window, p)
		}
	}
	return window
}

// spreadAhead gives members that are ahead what they do not have yet, and lets those go on as any
// other that are not ahead any more.
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

// empty takes all members out of the channel, because they have missed something. Those that can
// are told to subscribe again; the others, which only listen, are returned: they have to come back
// with their position. The caller holds ch.mu.
func (ch *channel) empty() (told int, others []*member) {
	gone := ch.members
	for _, early := range ch.ahead {
		gone = append(gone, early.m)
	}
	ch.members, ch.ahead, ch.curious, ch.lags = nil, nil, 0, nil
	for _, m := range gone {
		m.at = nowhere
		ch.uncount(m)
		if m.s.wire != wireCentrifuge {
			others = append(others, m)
		} else if m.s.lose(m) {
			m.s.tellLost(ch.name)
			told++
		}
	}
	ch.hub.node.log.Warn("push: publications were lost on their way here; subscribers are told to recover", "channel",
		ch.name, "subscribers", len(gone))
	return told, others
}

// giveUp takes users away from within Receive, so what needs the bus is done later.
func (ch *channel) giveUp(users int) {
	for range users {
		if ch.hub.forget(ch) {
			ch.hub.node.clock.AfterFunc(0, ch.close)
		}
	}
}

// lose takes m out of the session's list. It returns false if the session does not have it: then it
// has ended, or it is about to have it and will see that it is an orphan.
func (s *session) lose(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.orphaned = true
	return s.drop(m)
}

func (s *session) tellLost(name string) {
	s.offer(&message{payload: centrifuge.AppendUnsubscribe(nil, name, centrifuge.InsufficientState)})
}
