package hub

import (
	"context"
	"errors"
	"sync"

	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/policy"
)

// A channel is the Receiver of one channel's events on this node. Its users are its members and the
// sessions that are about to join.
type channel struct {
	all   *channels // of which it is one
	name  string
	rules *policy.Namespace
	users int // guarded by the shard's mu

	opening sync.Mutex // held while subscribing to the bus
	open    bool

	mu       sync.Mutex // also orders a new member among the publications
	members  memberList
	joining  reservations                        // of sessions that are about to join
	visible  int                                 // members without watchers
	notified int                                 // members that receive join and leave notices
	outboxes map[*member]*outbox.Outbox[payload] // of slow members, usually nil: see slow.go
	specials specialMembers
	window   Window // for sessions that are reading the history: see recover.go
}

// A member is one subscription of one session. The session's mu guards evicted, the channel's mu
// guards at.
type member struct {
	s     *Session
	ch    *channel
	grant *memberGrant // of the subscription's token, usually nil
	at    int32        // its index in ch.members.list, or nowhere

	notices bool // receives join and leave notices
	server  bool // the server has made the subscription
	special bool // it is in ch.specials
	evicted bool // the channel removed it, possibly before Session.settle
}

const nowhere = -1 // it is no longer a member

func (m *member) info() bus.ClientInfo {
	info := m.s.info()
	if m.grant != nil {
		info.ChanInfo = m.grant.info
	}
	return info
}

// connect subscribes the channel to the bus unless it is subscribed.
func (ch *channel) connect() error {
	ch.opening.Lock()
	defer ch.opening.Unlock()
	if ch.open {
		return nil
	}
	err := ch.all.bus.subscribe(bus.Topic{Name: ch.name, Keep: ch.rules.Retention()}, ch)
	ch.open = err == nil
	return err
}

// close unsubscribes from the bus. channels.release calls it after the last user has left.
func (ch *channel) close() {
	ch.opening.Lock()
	defer ch.opening.Unlock()
	if ch.open {
		ch.all.bus.unsubscribe(ch.name, ch)
		ch.open = false
	}
}

// A Reservation stands for a subscription from the first check until it is made. Between them the
// session may wait for a hook and for the bus. A session has one in a channel, so that it cannot
// become a member twice, and it can be ended like a subscription.
type Reservation struct {
	SubscribeCommand
	s     *Session
	ch    *channel
	ended bool // ch.mu guards it: the server has ended the subscription before it was made
}

// reservations are those of a channel. Usually there is one at a time, which needs no map.
type reservations struct {
	one  *Reservation
	more map[*Session]*Reservation // nil without any
}

// of returns the session's reservation, or nil.
func (l *reservations) of(s *Session) *Reservation {
	if l.one != nil && l.one.s == s {
		return l.one
	}
	return l.more[s]
}

func (l *reservations) add(r *Reservation) {
	if l.one == nil {
		l.one = r
		return
	}
	if l.more == nil {
		l.more = make(map[*Session]*Reservation)
	}
	l.more[r.s] = r
}

func (l *reservations) remove(r *Reservation) {
	if l.one == r {
		l.one = nil
		return
	}
	delete(l.more, r.s)
	if len(l.more) == 0 {
		l.more = nil // it keeps the room of the most that there were
	}
}

// reserve adds a reservation, or returns nil if the session has one. The caller has acquired ch.
func (ch *channel) reserve(s *Session) *Reservation {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.joining.of(s) != nil {
		return nil
	}
	r := &Reservation{s: s, ch: ch}
	ch.joining.add(r)
	return r
}

// settle ends the reservation of a subscription that was made. It reports whether the server has
// ended the subscription meanwhile.
func (r *Reservation) settle() (ended bool) {
	r.ch.mu.Lock()
	defer r.ch.mu.Unlock()
	r.ch.joining.remove(r)
	return r.ended
}

// Cancel ends the reservation of a subscription that is not made.
func (r *Reservation) Cancel() {
	r.settle()
	r.ch.all.release(r.ch)
}

// end ends the subscription when it is made.
func (r *Reservation) end() {
	r.ch.mu.Lock()
	defer r.ch.mu.Unlock()
	r.ended = true
}

// addMember makes s a member. If the publications have positions, the client gets each publication
// after its own position once.
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
	ch.specials.add(m, &w)
	announce(Welcome{WasRecovering: w.Recover, Delta: w.Delta})
	return m, nil
}

func (ch *channel) enter(m *member) {
	ch.members.add(m)
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
		q = bus.Query{Since: &w.Since, Limit: ch.all.limits.Recovered + 1}
	}
	past, err := ch.all.bus.readHistory(context.Background(), ch.name, q)

	ch.mu.Lock()
	defer ch.mu.Unlock()
	rest, missed := ch.window.Close()
	if err = errors.Join(err, missed); err != nil {
		return err
	}
	from := NewJoinPoint(past, rest)
	hello := from.welcome(w, ch.all.limits)
	if w.Complete && w.Recover && !hello.Recovered {
		return answer.ErrUnrecoverable
	}
	ch.enter(m)
	ch.specials.add(m, &w)
	hello.Delta = w.Delta
	hello.Publications = w.Filter.Select(hello.Publications)
	announce(hello)
	return nil
}

func (ch *channel) remove(m *member) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.unlink(m)
}

// unlink removes m. The caller holds ch.mu.
func (ch *channel) unlink(m *member) {
	if m.at == nowhere {
		return
	}
	ch.members.remove(m)
	ch.uncount(m)
	if m.notices {
		ch.notified--
	}
	delete(ch.outboxes, m)
	ch.specials.remove(m)
}

func (ch *channel) unlinkAll(list []*member) {
	for _, m := range list {
		ch.unlink(m)
	}
}

// size returns the number of members without watchers.
func (ch *channel) size() int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.visible
}

// count and uncount maintain ch.visible and the node's number of occupied channels. The caller
// holds ch.mu.
func (ch *channel) count(m *member) {
	if m.s.watcher {
		return
	}
	if ch.visible++; ch.visible == 1 {
		ch.all.figures.occupied.Add(1)
	}
}

func (ch *channel) uncount(m *member) {
	if m.s.watcher {
		return
	}
	if ch.visible--; ch.visible == 0 {
		ch.all.figures.occupied.Add(-1)
	}
}

// frameBytes bounds one frame that carries several publications of one delivery.
const frameBytes = 32 << 10

// Receive sends the publications to every member in the member's encoding. The bus calls it, one
// call at a time.
func (ch *channel) Receive(_ string, list []bus.Publication) {
	ch.mu.Lock()
	ch.window.Keep(list)
	slow := ch.spread(list)
	ch.mu.Unlock()
	for _, m := range slow {
		m.s.TooSlow(ch.name, largest(list))
	}
}

// largest returns the size of the largest publication, in bytes.
func largest(list []bus.Publication) (size int) {
	for i := range list {
		size = max(size, list[i].Size())
	}
	return size
}

// together returns how many publications of list go into one frame. It is one if the slow policy
// may drop single publications.
func (ch *channel) together(list []bus.Publication) int {
	if ch.rules.Slow != policy.SlowDisconnect {
		return 1
	}
	bytes := 0
	for i, p := range list {
		bytes += envelope + p.Size()
		if bytes > frameBytes && i > 0 {
			return i
		}
	}
	return len(list)
}

// spread sends list to all members, encoded once for each form. It returns the members whose queue
// has no room, which it has removed. The caller holds ch.mu, which spread releases between two
// slices of the members. Those who join meanwhile get nothing of list.
func (ch *channel) spread(list []bus.Publication) (slow []*member) {
	ch.members.sending = true
	end := len(ch.members.list)
	for rest := list; len(rest) > 0; {
		n := ch.together(rest)
		slow = ch.spreadTogether(rest[:n], end, slow)
		rest = rest[n:]
	}
	ch.members.endWalk()
	return slow
}

// memberSlice is how many members get a publication before others may use the channel.
const memberSlice = 256

// spreadTogether sends list as one message to the first members, up to end.
func (ch *channel) spreadTogether(list []bus.Publication, end int, slow []*member) []*member {
	e := encoder{forms: ch.all.forms, name: ch.name, list: list}
	defer e.release()
	sent, from := int64(0), len(slow)
	for begin := 0; begin < end; begin += memberSlice {
		if begin > 0 {
			ch.mu.Unlock()
			ch.mu.Lock()
		}
		var n int64
		n, slow = ch.offerAll(ch.members.list[begin:min(end, begin+memberSlice)], &e, slow)
		sent += n
	}
	ch.unlinkAll(slow[from:])
	ch.specials.keepBase(list)
	ch.all.figures.messages.Add(uint64(sent) * uint64(len(list)))
	return slow
}

// offerAll sends a message to members. It appends those without room to slow.
func (ch *channel) offerAll(members []*member, e *encoder, slow []*member) (sent int64, _ []*member) {
	drops := ch.rules.Slow != policy.SlowDisconnect
	for _, m := range members {
		if m == nil {
			continue
		}
		var message *Message
		if !m.special {
			message = e.message(m.s.formID)
		} else if message = ch.specials.list[m].message(e, m.s.formID, ch.specials.base); message == nil {
			continue
		}
		if drops {
			sent += ch.offer(m, message)
		} else {
			switch m.s.Offer(message) {
			case OfferTaken:
				sent += m.s.counted()
			case OfferFull:
				slow = append(slow, m)
			}
		}
	}
	return sent, slow
}

// Notice sends the notice to the members that asked for notices.
func (ch *channel) Notice(_ string, n bus.Notice) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.notified == 0 {
		return
	}
	e := noticeEncoder{forms: ch.all.forms, name: ch.name, notice: n}
	defer e.release()
	for _, m := range ch.members.list {
		if m == nil || !m.notices {
			continue
		}
		if message := e.message(m.s.formID); message != nil {
			m.s.Tell(ch.name, message)
		}
	}
}

// Present appends the members that presence shows.
func (ch *channel) Present(_ string, to []bus.ClientInfo) []bus.ClientInfo {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, m := range ch.members.list {
		if m != nil && !m.absent() {
			to = append(to, m.info())
		}
	}
	return to
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
	gone := ch.members.list
	ch.members.list, ch.notified, ch.outboxes = nil, 0, nil
	ch.specials = specialMembers{}
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
	ch.all.log.Warn("push: the bus lost publications; subscribers have to recover", "channel",
		ch.name, "subscribers", len(gone))
	return told, others
}

// releaseLater removes users from within Lost. It closes the channel on another goroutine, because
// a receiver must not call the bus.
func (ch *channel) releaseLater(users int) {
	for range users {
		if ch.all.forget(ch) {
			ch.all.clock.AfterFunc(0, ch.close)
		}
	}
}

// A memberList is the members of a channel. The channel's mu guards it, but is released now and
// then while a publication is sent to the members. A member that leaves meanwhile becomes a hole. A
// member that joins stands behind the end of the walk, and does not get the publication.
type memberList struct {
	list    []*member
	sending bool // a publication walks the list: see channel.spread
	holes   int  // nil members, only while sending
}

func (l *memberList) add(m *member) {
	m.at = int32(len(l.list))
	l.list = append(l.list, m)
}

// remove removes m, which is in the list.
func (l *memberList) remove(m *member) {
	if l.sending {
		l.list[m.at] = nil
		l.holes++
	} else {
		last := len(l.list) - 1
		moved := l.list[last]
		l.list[m.at] = moved
		moved.at = m.at
		l.list[last] = nil
		l.list = shrunk(l.list[:last])
	}
	m.at = nowhere
}

// endWalk moves members to where others have left during the walk.
func (l *memberList) endWalk() {
	l.sending = false
	if l.holes == 0 {
		return
	}
	kept := l.list[:0]
	for _, m := range l.list {
		if m != nil {
			m.at = int32(len(kept))
			kept = append(kept, m)
		}
	}
	clear(l.list[len(kept):])
	l.list, l.holes = shrunk(kept), 0
}

// specialMembers are the members that do not get every publication as it is: they have a filter, or
// get deltas. The channel's mu guards them.
type specialMembers struct {
	list   map[*member]*special // usually nil
	deltas int                  // members that get deltas
	base   *bus.Publication     // the last publication, if deltas > 0
}

// add makes m special if w asks for it. m is a member.
func (l *specialMembers) add(m *member, w *SubscribeCommand) {
	if w.Filter == nil && !w.Delta {
		return
	}
	if l.list == nil {
		l.list = make(map[*member]*special)
	}
	l.list[m] = &special{filter: w.Filter, delta: w.Delta}
	m.special = true
	if w.Delta {
		l.deltas++
	}
}

func (l *specialMembers) remove(m *member) {
	if !m.special {
		return
	}
	if l.list[m].delta {
		l.deltas--
	}
	if l.deltas == 0 {
		l.base = nil
	}
	delete(l.list, m)
}

// keepBase keeps the last publication, if a member gets deltas to it.
func (l *specialMembers) keepBase(list []bus.Publication) {
	if l.deltas > 0 {
		last := list[len(list)-1]
		l.base = &last
	}
}

// grantsDelta reports whether w gets deltas: not if publications may be left out for the member,
// because a delta builds on the one before.
func (ch *channel) grantsDelta(s *Session, w *SubscribeCommand) bool {
	_, can := s.form().Form.(DeltaForm)
	return w.Delta && can && w.Filter == nil && ch.rules.Slow == policy.SlowDisconnect
}
