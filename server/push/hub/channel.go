package hub

import (
	"context"
	"sync"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/server/push/bus"
)

// A channel is the Receiver of one channel's events on this node. Its users are its members and the
// sessions that are about to join.
type channel struct {
	hub   *Hub
	name  string
	rules *policy.Namespace
	users int // guarded by the shard's mu

	opening sync.Mutex // held while subscribing to the bus
	open    bool

	mu       sync.Mutex // also orders a new member among the publications
	members  []*member
	joining  reservations                        // of sessions that are about to join
	sending  bool                                // Receive walks members: see spread
	holes    int                                 // nil members, only while sending
	visible  int                                 // members without watchers
	notified int                                 // members that receive join and leave notices
	outboxes map[*member]*outbox.Outbox[payload] // of slow members, usually nil: see slow.go

	specials map[*member]*special // usually nil: see special
	deltas   int                  // members that get deltas
	base     *bus.Publication     // the last publication, if deltas > 0

	window Window // for sessions that are reading the history: see recover.go
}

// A member is one subscription of one session. The session's mu guards evicted, the channel's mu
// guards at.
type member struct {
	s     *Session
	ch    *channel
	grant *memberGrant // of the subscription's token, usually nil
	at    int32        // its index in ch.members, or nowhere

	notices bool // receives join and leave notices
	server  bool // the server has made the subscription
	special bool // it is in ch.specials
	evicted bool // the channel removed it, possibly before Session.settle
}

const nowhere = -1 // it is no longer a member

// A memberGrant is what the token for a subscription allows.
type memberGrant struct {
	info    []byte // JSON, or nil
	publish bool
	hooked  bool // Hooks.Subscribe has allowed the subscription
	absent  bool // the member is left out of presence
	// announced says whether joins and leaves are announced; nil: as the channel's rules say.
	announced *bool
	// expires is the end of the token plus the time to renew it, in nanoseconds since 1970; 0:
	// never. The session's mu guards it.
	expires int64
}

func (m *member) info() bus.ClientInfo {
	info := m.s.info()
	if m.grant != nil {
		info.ChanInfo = m.grant.info
	}
	return info
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
	r.ch.hub.channels.release(r.ch)
}

// end ends the subscription when it is made.
func (r *Reservation) end() {
	r.ch.mu.Lock()
	defer r.ch.mu.Unlock()
	r.ended = true
}

// connect subscribes the channel to the bus unless it is subscribed.
func (ch *channel) connect() error {
	ch.opening.Lock()
	defer ch.opening.Unlock()
	if ch.open {
		return nil
	}
	n := ch.hub
	ctx, cancel := n.deadline(context.Background())
	defer cancel()
	err := n.bus.Subscribe(ctx, bus.Topic{Name: ch.name, Keep: ch.rules.Retention()}, ch)
	ch.open = err == nil
	return err
}

// close unsubscribes from the bus. hub.release calls it after the last user has left.
func (ch *channel) close() {
	ch.opening.Lock()
	defer ch.opening.Unlock()
	if ch.open {
		ch.hub.bus.Unsubscribe(ch.name, ch)
		ch.open = false
	}
}

// add makes m a member. The caller holds ch.mu.
func (ch *channel) add(m *member) {
	m.at = int32(len(ch.members))
	ch.members = append(ch.members, m)
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
	if ch.sending {
		ch.members[m.at] = nil
		ch.holes++
	} else {
		last := len(ch.members) - 1
		moved := ch.members[last]
		ch.members[m.at] = moved
		moved.at = m.at
		ch.members[last] = nil
		ch.members = shrunk(ch.members[:last])
	}
	m.at = nowhere
	ch.uncount(m)
	if m.notices {
		ch.notified--
	}
	delete(ch.outboxes, m)
	ch.leaveSpecial(m)
}

// size returns the number of members without watchers.
func (ch *channel) size() int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.visible
}

// count and uncount maintain ch.visible and the hub's number of occupied channels. The caller holds
// ch.mu.
func (ch *channel) count(m *member) {
	if m.s.watcher {
		return
	}
	if ch.visible++; ch.visible == 1 {
		ch.hub.channels.occupied.Add(1)
	}
}

func (ch *channel) uncount(m *member) {
	if m.s.watcher {
		return
	}
	if ch.visible--; ch.visible == 0 {
		ch.hub.channels.occupied.Add(-1)
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
	ch.sending = true
	end := len(ch.members)
	for rest := list; len(rest) > 0; {
		n := ch.together(rest)
		slow = ch.spreadTogether(rest[:n], end, slow)
		rest = rest[n:]
	}
	ch.sending = false
	ch.closeHoles()
	return slow
}

// memberSlice is how many members get a publication before others may use the channel.
const memberSlice = 256

// spreadTogether sends list as one message to the first members, up to end.
func (ch *channel) spreadTogether(list []bus.Publication, end int, slow []*member) []*member {
	e := encoder{hub: ch.hub, name: ch.name, list: list}
	defer e.release()
	sent, from := int64(0), len(slow)
	for begin := 0; begin < end; begin += memberSlice {
		if begin > 0 {
			ch.mu.Unlock()
			ch.mu.Lock()
		}
		var n int64
		n, slow = ch.offerAll(ch.members[begin:min(end, begin+memberSlice)], &e, slow)
		sent += n
	}
	ch.unlinkAll(slow[from:])
	ch.keepBase(list)
	ch.hub.count.messages.Add(uint64(sent) * uint64(len(list)))
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
		} else if message = e.specialMessage(ch, m); message == nil {
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

func (ch *channel) unlinkAll(list []*member) {
	for _, m := range list {
		ch.unlink(m)
	}
}

// closeHoles moves members to where others have left during spread.
func (ch *channel) closeHoles() {
	if ch.holes == 0 {
		return
	}
	kept := ch.members[:0]
	for _, m := range ch.members {
		if m != nil {
			m.at = int32(len(kept))
			kept = append(kept, m)
		}
	}
	clear(ch.members[len(kept):])
	ch.members, ch.holes = shrunk(kept), 0
}

// Notice sends the notice to the members that asked for notices.
func (ch *channel) Notice(_ string, n bus.Notice) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.notified == 0 {
		return
	}
	e := noticeEncoder{hub: ch.hub, name: ch.name, notice: n}
	defer e.release()
	for _, m := range ch.members {
		e.tell(m)
	}
}

// A noticeEncoder encodes the notice for each form on first use.
type noticeEncoder struct {
	hub    *Hub
	name   string
	notice bus.Notice
	made   [maxForms]*Message
}

// tell sends m the notice if it asked for notices.
func (e *noticeEncoder) tell(m *member) {
	if m == nil || !m.notices {
		return
	}
	made := e.made[m.s.formID]
	if made == nil {
		f := m.s.form()
		payload := f.Notice(e.name, e.notice)
		if payload == nil {
			return
		}
		made = &Message{payload, f.Share(payload)}
		e.made[m.s.formID] = made
	}
	m.s.Tell(e.name, made)
}

func (e *noticeEncoder) release() {
	for _, m := range e.made {
		if m != nil {
			m.Release()
		}
	}
}

// Present appends the members that presence shows.
func (ch *channel) Present(_ string, to []bus.ClientInfo) []bus.ClientInfo {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, m := range ch.members {
		if m != nil && !m.absent() {
			to = append(to, m.info())
		}
	}
	return to
}

// A special is what a channel knows of such a member. The channel's mu guards it.
type special struct {
	filter *policy.TagFilter // nil: all publications
	delta  bool              // publications are deltas to the one before, where that is shorter
	synced bool              // the member has the channel's last publication, which deltas build on
}

// A DeltaForm is a form whose clients can apply deltas.
type DeltaForm interface {
	Form
	// Deltas encodes list as one message. Each publication may be a delta to the one before it, the
	// first one to base; nil: it is sent whole.
	Deltas(channel string, list []bus.Publication, base *bus.Publication) []byte
}

// specialMessages are an encoder's messages for members that get deltas.
type specialMessages struct {
	deltas [maxForms]*Message // for those that have the channel's last publication
	wholes [maxForms]*Message // for the others: the first publication is whole
}

// enterSpecial makes m special if w asks for it. The caller holds ch.mu, and m is a member.
func (ch *channel) enterSpecial(m *member, w *SubscribeCommand) {
	if w.Filter == nil && !w.Delta {
		return
	}
	if ch.specials == nil {
		ch.specials = make(map[*member]*special)
	}
	ch.specials[m] = &special{filter: w.Filter, delta: w.Delta}
	m.special = true
	if w.Delta {
		ch.deltas++
	}
}

// leaveSpecial forgets m. The caller holds ch.mu.
func (ch *channel) leaveSpecial(m *member) {
	if !m.special {
		return
	}
	if ch.specials[m].delta {
		ch.deltas--
	}
	if ch.deltas == 0 {
		ch.base = nil
	}
	delete(ch.specials, m)
}

// keepBase keeps the last publication, if a member gets deltas to it. The caller holds ch.mu.
func (ch *channel) keepBase(list []bus.Publication) {
	if ch.deltas > 0 {
		last := list[len(list)-1]
		ch.base = &last
	}
}

// grantsDelta reports whether w gets deltas: not if publications may be left out for the member,
// because a delta builds on the one before.
func (ch *channel) grantsDelta(s *Session, w *SubscribeCommand) bool {
	_, can := s.form().Form.(DeltaForm)
	return w.Delta && can && w.Filter == nil && ch.rules.Slow == policy.SlowDisconnect
}

// specialMessage returns the message for a special member. nil: nothing is for it. The caller holds
// ch.mu.
func (e *encoder) specialMessage(ch *channel, m *member) *Message {
	sp := ch.specials[m]
	switch {
	case sp == nil: // it has left
		return nil
	case sp.delta:
		if e.special == nil {
			e.special = new(specialMessages)
		}
		made, base := &e.special.deltas[m.s.formID], ch.base
		if !sp.synced || base == nil {
			made, base = &e.special.wholes[m.s.formID], nil
		}
		sp.synced = true
		if *made == nil {
			f := m.s.form()
			payload := f.Form.(DeltaForm).Deltas(e.name, e.list, base)
			*made = &Message{payload, f.Share(payload)}
		}
		return *made
	}
	list := sp.filter.Select(e.list)
	switch len(list) {
	case 0:
		return nil
	case len(e.list):
		return e.message(m.s.formID)
	}
	return &Message{Payload: m.s.form().Publications(e.name, list)}
}
