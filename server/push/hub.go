package push

import (
	"hash/maphash"
	"sync"
)

// A hub knows which sessions are subscribed to which channel on this node, and spreads what the Bus delivers.
//
// Locks are taken in this order: shard, then the bus's own, then channel. A Receive comes with a lock of the bus held, so it
// takes nothing but its channel's; whoever it finds too slow leaves the channel right there and the rest is cleaned up when
// its transport has ended.
type hub struct {
	bus    Bus
	count  *counters
	seed   maphash.Seed
	shards [hubShards]shard
}

const hubShards = 64

type shard struct {
	mu       sync.Mutex
	channels map[string]*channel
}

// A channel has at least one member, or is about to be removed. It is the Receiver of its publications.
type channel struct {
	hub     *hub
	name    string
	mu      sync.Mutex // also what orders a member's arrival among the publications
	members []*member
}

// A member is one subscription of one session. The session owns it; the channel owns at.
type member struct {
	s  *session
	ch *channel
	at int // where it stands in ch.members; nowhere when it has been removed
}

const nowhere = -1

func newHub(bus Bus, count *counters) *hub {
	h := &hub{bus: bus, count: count, seed: maphash.MakeSeed()}
	for i := range h.shards {
		h.shards[i].channels = make(map[string]*channel)
	}
	return h
}

func (h *hub) shard(name string) *shard { return &h.shards[maphash.String(h.seed, name)%hubShards] }

// join makes s a member of the channel of that name. announce runs between the last publication that s does not get and the
// first that it does; it must only queue bytes for s.
func (h *hub) join(s *session, name string, announce func()) (*member, error) {
	sh := h.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ch := sh.channels[name]
	if ch == nil {
		ch = &channel{hub: h, name: name}
		if err := h.bus.Subscribe(name, ch); err != nil {
			return nil, err
		}
		sh.channels[name] = ch
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	m := &member{s: s, ch: ch, at: len(ch.members)}
	ch.members = append(ch.members, m)
	announce()
	return m, nil
}

// leave ends a membership: m's session gets nothing from the channel afterwards. The last one to leave takes the channel down.
// It must not be called from Receive.
func (h *hub) leave(m *member) {
	sh := h.shard(m.ch.name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if m.ch.remove(m) > 0 || sh.channels[m.ch.name] != m.ch {
		return
	}
	h.bus.Unsubscribe(m.ch.name, m.ch)
	delete(sh.channels, m.ch.name)
}

// remove returns how many members are left.
func (ch *channel) remove(m *member) int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.unlink(m)
	return len(ch.members)
}

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
}

// Receive gives p to every member, in their own encoding. The bus calls it, one call at a time.
func (ch *channel) Receive(name string, p Publication) {
	slow := ch.spread(name, p)
	for _, m := range slow {
		m.s.tooSlow(name)
	}
}

// spread returns the members that have no room for p. They are members no longer.
func (ch *channel) spread(name string, p Publication) (slow []*member) {
	var encoded [wires]*message
	defer func() {
		for _, e := range encoded {
			if e != nil {
				e.release()
			}
		}
	}()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	sent := 0
	for _, m := range ch.members {
		e := encoded[m.s.wire]
		if e == nil {
			e = m.s.wire.publication(name, p)
			encoded[m.s.wire] = e
		}
		switch m.s.offer(e) {
		case offerTaken:
			sent++
		case offerFull:
			slow = append(slow, m)
		}
	}
	for _, m := range slow {
		ch.unlink(m)
	}
	ch.hub.count.messages.Add(uint64(sent))
	return slow
}

// channels returns how many channels have members.
func (h *hub) channels() int {
	n := 0
	for i := range h.shards {
		sh := &h.shards[i]
		sh.mu.Lock()
		n += len(sh.channels)
		sh.mu.Unlock()
	}
	return n
}
