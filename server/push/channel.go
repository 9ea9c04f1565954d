package push

import (
	"context"
	"sync"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// A channel is the Receiver of one channel's events on this node. Its users are its members and the
// sessions that are about to join.
type channel struct {
	hub   *hub
	name  string
	rules *Namespace
	users int // guarded by the shard's mu

	opening sync.Mutex // held while subscribing to the bus
	open    bool

	mu       sync.Mutex // also orders a new member among the publications
	members  []*member
	visible  int              // members without watchers
	notified int              // members that receive join and leave notices
	lags     map[*member]*lag // queues of slow members, usually nil: see slow.go

	// The fields below are for recovery: see recover.go.
	joining int           // sessions that are reading the history
	window  []Publication // publications received meanwhile
	missed  bool          // the window overflowed, or the bus has lost publications
}

// A member is one subscription of one session. The session's mu guards evicted, the channel's mu
// guards at.
type member struct {
	s     *session
	ch    *channel
	grant *memberGrant // of the subscription's token, usually nil
	at    int32        // its index in ch.members, or nowhere

	notices bool // receives join and leave notices
	evicted bool // the channel removed it, possibly before session.settle
}

const nowhere = -1 // it is no longer a member

// A memberGrant is what the token for a subscription allows.
type memberGrant struct {
	info    []byte // JSON, or nil
	publish bool
	// expires is the end of the token plus the time to renew it, in nanoseconds since 1970; 0:
	// never. The session's mu guards it.
	expires int64
}

func (m *member) info() ClientInfo {
	info := ClientInfo{Client: m.s.id.String(), User: m.s.user()}
	if m.s.identity != nil {
		info.ConnInfo = m.s.identity.info
	}
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
	n := ch.hub.node
	ctx, cancel := n.deadline(context.Background())
	defer cancel()
	err := n.bus.Subscribe(ctx, Topic{ch.name, ch.rules.retention()}, ch)
	ch.open = err == nil
	return err
}

// close unsubscribes from the bus. hub.release calls it after the last user has left.
func (ch *channel) close() {
	ch.opening.Lock()
	defer ch.opening.Unlock()
	if ch.open {
		ch.hub.node.bus.Unsubscribe(ch.name, ch)
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
	last := len(ch.members) - 1
	moved := ch.members[last]
	ch.members[m.at] = moved
	moved.at = m.at
	ch.members[last] = nil
	ch.members = shrunk(ch.members[:last])
	m.at = nowhere
	ch.uncount(m)
	if m.notices {
		ch.notified--
	}
	delete(ch.lags, m)
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
		ch.hub.occupied.Add(1)
	}
}

func (ch *channel) uncount(m *member) {
	if m.s.watcher {
		return
	}
	if ch.visible--; ch.visible == 0 {
		ch.hub.occupied.Add(-1)
	}
}

// frameBytes bounds one frame that carries several publications of one delivery.
const frameBytes = 32 << 10

// Receive sends the publications to every member in the member's encoding. The bus calls it, one
// call at a time.
func (ch *channel) Receive(_ string, list []Publication) {
	ch.mu.Lock()
	ch.keepWindow(list)
	var slow []*member
	for rest := list; len(rest) > 0; {
		n := ch.together(rest)
		slow = ch.spread(rest[:n], slow)
		rest = rest[n:]
	}
	ch.mu.Unlock()
	for _, m := range slow {
		m.s.tooSlow(ch.name, largest(list))
	}
}

// largest returns the size of the largest publication, in bytes.
func largest(list []Publication) (size int) {
	for i := range list {
		size = max(size, list[i].size())
	}
	return size
}

// together returns how many publications of list go into one frame. It is one if the slow policy
// may drop single publications.
func (ch *channel) together(list []Publication) int {
	if ch.rules.Slow != SlowDisconnect {
		return 1
	}
	bytes := 0
	for i, p := range list {
		bytes += envelope + p.size()
		if bytes > frameBytes && i > 0 {
			return i
		}
	}
	return len(list)
}

// spread sends list to all members, encoded once for each wire. It removes the members whose queue
// has no room, and appends them to slow. The caller holds ch.mu.
func (ch *channel) spread(list []Publication, slow []*member) []*member {
	e := encoder{name: ch.name, list: list}
	defer e.release()
	sent, from := int64(0), len(slow)
	if ch.rules.Slow == SlowDisconnect {
		for _, m := range ch.members {
			switch m.s.offer(e.message(m.s.wire)) {
			case offerTaken:
				sent += m.s.counted()
			case offerFull:
				slow = append(slow, m)
			}
		}
	} else {
		for _, m := range ch.members {
			sent += ch.offer(m, e.message(m.s.wire))
		}
	}
	sent *= int64(len(list))
	for _, m := range slow[from:] {
		ch.unlink(m)
	}
	ch.hub.node.count.messages.Add(uint64(sent))
	return slow
}

// An encoder encodes the message of each wire on first use.
type encoder struct {
	name string
	list []Publication
	made [wires]*message
}

func (e *encoder) message(w wire) *message {
	m := e.made[w]
	if m == nil {
		m = w.share(w.publications(e.name, e.list))
		e.made[w] = m
	}
	return m
}

func (e *encoder) release() {
	for _, m := range e.made {
		if m != nil {
			m.release()
		}
	}
}

// Notice sends the notice to the members that asked for notices.
func (ch *channel) Notice(_ string, n Notice) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.notified == 0 {
		return
	}
	push := centrifuge.AppendLeave
	if n.Joined {
		push = centrifuge.AppendJoin
	}
	e := wireCentrifuge.share(push(nil, ch.name, centrifuge.ClientInfo(n.ClientInfo)))
	defer e.release()
	for _, m := range ch.members {
		if m.notices && m.s.wire == wireCentrifuge {
			m.s.offer(e) // if its queue is full, the next publication handles that
		}
	}
}

// Present appends the members without watchers.
func (ch *channel) Present(_ string, to []ClientInfo) []ClientInfo {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, m := range ch.members {
		if !m.s.watcher {
			to = append(to, m.info())
		}
	}
	return to
}
