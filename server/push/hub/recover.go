package hub

import (
	"context"
	"errors"

	"github.com/myriad-go/myriad/server/push/bus"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"
)

// This file lets a client join a channel whose publications have positions. The client gets each
// publication after its own position once. The first come from the history, the next from the
// window that the channel received meanwhile, the rest from the channel.

// A SubscribeCommand is what a client requests when it subscribes.
type SubscribeCommand struct {
	Recover   bool
	Since     bus.Position
	Complete  bool              // refuse the subscription if not everything can be recovered
	Delta     bool              // the client can apply deltas
	Filter    *policy.TagFilter // selects publications; nil: all
	JoinLeave bool
	server    bool   // the server makes the subscription, which needs no token
	Token     string // for the subscription; usually ""
	Data      []byte // for a hook

	pushed       bool // notices, also where the rules have none
	unpositioned bool // the client gets no position, also where the rules have recovery

	grant *memberGrant // what the token grants; nil without one
	ttl   uint32       // seconds until the token ends
	// answer is data for the reply, from a hook.
	answer []byte
}

// ShowInfo makes others see info, which is JSON, of the client in the channel.
func (w *SubscribeCommand) ShowInfo(info []byte) { w.grant = &memberGrant{info: info} }

// A Welcome is the content of the reply to a new member.
type Welcome struct {
	Recoverable   bool
	At            bus.Position // the member gets the publications after it
	WasRecovering bool
	Recovered     bool
	Publications  []bus.Publication
	Delta         bool // publications may be deltas
	Data          []byte

	Expires bool   // the subscription ends in TTL seconds unless the client brings a new token
	TTL     uint32 // in seconds; 0 unless Expires
}

// addMember makes s a member.
func (ch *channel) addMember(s *Session, w SubscribeCommand, announce func(Welcome)) (*member, error) {
	if err := ch.connect(); err != nil {
		return nil, err
	}
	w.Delta = ch.grantsDelta(s, &w)
	m := &member{s: s, ch: ch, grant: w.grant, server: w.server,
		notices: ch.rules.JoinLeave && (w.JoinLeave || ch.rules.PushJoinLeave) || w.pushed}
	if ch.rules.Recovery && !w.unpositioned {
		return m, ch.addAfterHistory(m, w, announce)
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.enter(m)
	ch.enterSpecial(m, &w)
	announce(Welcome{WasRecovering: w.Recover, Delta: w.Delta})
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
func (ch *channel) addAfterHistory(m *member, w SubscribeCommand, announce func(Welcome)) error {
	ch.mu.Lock()
	ch.window.Open()
	ch.mu.Unlock()
	q := bus.Query{}
	if w.Recover {
		q = bus.Query{Since: &w.Since, Limit: ch.hub.limits.Recovered + 1}
	}
	n := ch.hub
	ctx, cancel := n.deadline(context.Background())
	defer cancel()
	past, err := n.bus.History(ctx, n.Topic(ch.name), q)

	ch.mu.Lock()
	defer ch.mu.Unlock()
	rest, missed := ch.window.Close()
	if err = errors.Join(err, missed); err != nil {
		return err
	}
	from := NewJoinPoint(past, rest)
	hello := from.welcome(w, n.limits)
	if w.Complete && w.Recover && !hello.Recovered {
		return answer.ErrUnrecoverable
	}
	ch.enter(m)
	ch.enterSpecial(m, &w)
	hello.Delta = w.Delta
	hello.Publications = w.Filter.Select(hello.Publications)
	announce(hello)
	return nil
}

// A JoinPoint joins a history and the window that was received while it was read.
type JoinPoint struct {
	past bus.History
	Rest []bus.Publication // the part of the window after past
	at   bus.Position      // the end of both
}

// NewJoinPoint joins a history with window, the publications that were received while it was read,
// in their order.
func NewJoinPoint(past bus.History, window []bus.Publication) JoinPoint {
	from := JoinPoint{past: past, at: past.Top}
	for i, p := range window {
		if p.Epoch == past.Top.Epoch && p.Offset > past.Top.Offset {
			from.Rest = window[i:]
			from.at = from.Rest[len(from.Rest)-1].Position
			break
		}
	}
	return from
}

// welcome returns what a client with that request has missed. It sets Recovered if that is
// complete.
func (from *JoinPoint) welcome(w SubscribeCommand, limits Limits) Welcome {
	hello := Welcome{Recoverable: true, At: from.at, WasRecovering: w.Recover}
	if !w.Recover || w.Since.Epoch != "" && w.Since.Epoch != from.at.Epoch || !from.past.Complete {
		return hello
	}
	count, bytes := len(from.past.Publications)+len(from.Rest), 0
	for _, list := range [][]bus.Publication{from.past.Publications, from.Rest} {
		for _, p := range list {
			bytes += envelope + p.Size()
		}
	}
	if count > limits.Recovered || bytes > limits.Queue {
		return hello
	}
	hello.Recovered = true
	hello.Publications = append(from.past.Publications, from.Rest...)
	return hello
}

// Lost makes the members recover, because they may have missed publications, or because offsets
// begin again. The bus calls it.
func (ch *channel) Lost(string) {
	if !ch.rules.Recovery {
		return
	}
	ch.mu.Lock()
	ch.window.Lose()
	told, others := ch.evictMembers()
	ch.mu.Unlock()
	for _, m := range others {
		m.s.Disconnect(answer.DisconnectInsufficientState)
	}
	ch.releaseLater(told)
}

// evictMembers removes all members from the channel, because they have missed publications. It
// tells clients to subscribe again, and returns their number. It returns as others the members that
// cannot do that: the caller disconnects them, and they reconnect with their position. The caller
// holds ch.mu.
func (ch *channel) evictMembers() (told int, others []*member) {
	gone := ch.members
	ch.members, ch.notified, ch.outboxes = nil, 0, nil
	ch.specials, ch.deltas, ch.base = nil, 0, nil
	for _, m := range gone {
		m.at = nowhere
		ch.uncount(m)
		push := m.s.form().Unsubscribed(ch.name, answer.UnsubscribedInsufficient)
		if push == nil || m.server {
			others = append(others, m)
		} else if m.s.evict(m) {
			m.s.Tell(ch.name, &Message{Payload: push})
			told++
		}
	}
	ch.hub.log.Warn("push: the bus lost publications; subscribers have to recover", "channel",
		ch.name, "subscribers", len(gone))
	return told, others
}

// releaseLater removes users from within Lost. It closes the channel on another goroutine, because
// a receiver must not call the bus.
func (ch *channel) releaseLater(users int) {
	for range users {
		if ch.hub.channels.forget(ch) {
			ch.hub.clock.AfterFunc(0, ch.close)
		}
	}
}

// A Window keeps what a receiver receives while its joining clients read the history: it joins the
// history and the publications that follow. The owner's lock guards it. The zero value is closed.
type Window struct {
	readers int
	list    []bus.Publication
	missed  bool // the list overflowed, or the bus has lost publications
}

// windowLimit is how many publications may arrive while a history is read. Above it the
// subscription fails, and the client has to try again.
const windowLimit = 4096

var errWindow = errors.New("push: too much was published while the history was read: subscribe again")

// Open begins a read. It comes before the read of the history.
func (w *Window) Open() { w.readers++ }

// Close ends a read, and returns what was received since the first one that still runs began. It
// returns an error if something is missing.
func (w *Window) Close() (list []bus.Publication, err error) {
	list = w.list
	if w.missed {
		err = errors.Join(answer.ErrInternal, errWindow)
	}
	if w.readers--; w.readers == 0 {
		w.list, w.missed = nil, false
	}
	return list, err
}

// Keep adds what the receiver receives. Publications without a position are left out: a joining
// client need not get them, because its subscription begins after them.
func (w *Window) Keep(list []bus.Publication) {
	if w.readers == 0 || w.missed {
		return
	}
	if len(w.list)+len(list) > windowLimit {
		w.Lose()
		return
	}
	for _, p := range list {
		if p.Epoch != "" {
			w.list = append(w.list, p)
		}
	}
}

// Lose notes that the bus has lost publications.
func (w *Window) Lose() { w.list, w.missed = nil, w.readers > 0 }
