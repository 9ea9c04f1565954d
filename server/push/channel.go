package push

import (
	"slices"
	"sync"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// A channel has users: members, and those about to become one. It is the Receiver of what happens
// in it.
type channel struct {
	hub   *hub
	name  string
	rules *Namespace
	users int // the shard's

	opening sync.Mutex // held while subscribing to the bus
	open    bool

	mu      sync.Mutex // also what orders a member's arrival among the publications
	members []*member
	visible int              // members that are counted: all but watchers
	curious int              // members that want to be told of others
	lags    map[*member]*lag // what waits for slow members; mostly nil: see slow.go

	// These are for recovery: see recover.go.
	last    Position // of the last publication that was received
	ahead   []early
	joining int           // how many read the history now
	window  []Publication // what was received meanwhile
	missed  bool          // the window was too small
}

// A member is one subscription of one session. The session owns it, and guards orphaned; the
// channel owns at.
type member struct {
	s     *session
	ch    *channel
	grant *memberGrant // what its token says; nil for most
	at    int32        // where it stands in ch.members, or one of the two below

	curious  bool // wants to hear of others
	orphaned bool // the channel gave it up before the session knew it
}

const (
	nowhere = -1 // it has been removed
	isAhead = -2 // it is in ch.ahead
)

// A memberGrant is what the token for a subscription gives.
type memberGrant struct {
	info    []byte // JSON, or nil
	publish bool
	// when the token, with the time to renew it, is over, in nanoseconds since the epoch; 0: never.
	// Guarded by the session's mu
	expires int64
}

func (m *member) info() ClientInfo {
	info := ClientInfo{Client: m.s.id.String(), User: m.s.user()}
	if m.s.who != nil {
		info.ConnInfo = m.s.who.info
	}
	if m.grant != nil {
		info.ChanInfo = m.grant.info
	}
	return info
}

// connect subscribes to the bus, once.
func (ch *channel) connect() error {
	ch.opening.Lock()
	defer ch.opening.Unlock()
	if ch.open {
		return nil
	}
	err := ch.hub.node.bus.Subscribe(ch.name, ch)
	ch.open = err == nil
	return err
}

// close is called when the last user has gone.
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

// unlink is called under ch.mu.
func (ch *channel) unlink(m *member) {
	switch m.at {
	case nowhere:
		return
	case isAhead:
		ch.ahead = slices.DeleteFunc(ch.ahead, func(e early) bool { return e.m == m })
	default:
		last := len(ch.members) - 1
		moved := ch.members[last]
		ch.members[m.at] = moved
		moved.at = m.at
		ch.members[last] = nil
		ch.members = shrunk(ch.members[:last])
	}
	m.at = nowhere
	ch.uncount(m)
	if m.curious {
		ch.curious--
	}
	delete(ch.lags, m)
}

// size returns how many members are counted.
func (ch *channel) size() int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.visible
}

// count and uncount keep the number of members, and the hub's of channels that have some. The
// caller holds ch.mu.
func (ch *channel) count(m *member) {
	if m.s.watcher {
		return
	}
	if ch.visible++; ch.visible == 1 {
		ch.hub.inhabited.Add(1)
	}
}

func (ch *channel) uncount(m *member) {
	if m.s.watcher {
		return
	}
	if ch.visible--; ch.visible == 0 {
		ch.hub.inhabited.Add(-1)
	}
}

// frameBytes is up to what size publications that come together go out in one frame.
const frameBytes = 32 << 10

// Receive gives the publications to every member, in their own encoding. The bus calls it, one call
// at a time.
func (ch *channel) Receive(_ string, list []Publication) {
	ch.mu.Lock()
	list, lost := ch.follow(list)
	var told int
	var others []*member
	if lost {
		told, others = ch.empty()
	}
	var slow []*member
	for len(list) > 0 {
		n := ch.together(list)
		slow = ch.spread(list[:n], slow)
		list = list[n:]
	}
	ch.mu.Unlock()
	for _, m := range slow {
		m.s.tooSlow(ch.name)
	}
	for _, m := range others {
		m.s.disconnect(centrifuge.Insufficient)
	}
	ch.giveUp(told)
}

// together returns how many publications of list go into one frame. Where single ones may be
// dropped it is one.
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

// spread gives list to all members, encoded once for each wire. It appends those that have no room
// for it to slow; they are members no longer. The caller holds ch.mu.
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
	if len(ch.ahead) > 0 {
		slow = ch.spreadAhead(list, slow)
	}
	for _, m := range slow[from:] {
		ch.unlink(m)
	}
	ch.hub.node.count.messages.Add(uint64(sent))
	return slow
}

// An encoder makes the message of each wire when it is first asked for.
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

// Notice tells the members that want to know who comes and goes.
func (ch *channel) Notice(_ string, n Notice) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.curious == 0 {
		return
	}
	push := centrifuge.AppendLeave
	if n.Joined {
		push = centrifuge.AppendJoin
	}
	e := wireCentrifuge.share(push(nil, ch.name, centrifuge.ClientInfo(n.ClientInfo)))
	defer e.release()
	tell := func(m *member) {
		if m.curious && m.s.wire == wireCentrifuge {
			m.s.offer(e) // who has no room for it is slow, and finds that out by a publication
		}
	}
	for _, m := range ch.members {
		tell(m)
	}
	for _, early := range ch.ahead {
		tell(early.m)
	}
}

// Present appends the members that are no watchers.
func (ch *channel) Present(_ string, to []ClientInfo) []ClientInfo {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, m := range ch.members {
		if !m.s.watcher {
			to = append(to, m.info())
		}
	}
	for _, early := range ch.ahead {
		if !early.m.s.watcher {
			to = append(to, early.m.info())
		}
	}
	return to
}
