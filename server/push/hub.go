package push

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A hub holds the channels that have subscribers on this node.
//
// Locks are taken in this order: a channel's opening, the bus's own, then a shard's or a channel's,
// then a session's. The bus holds one of its locks while it calls Receive, so Receive must not call
// the bus. A shard's lock is held for look-ups only: a caller that waits for the bus to subscribe
// to a channel blocks only callers for the same channel.
type hub struct {
	node     *node
	seed     maphash.Seed
	occupied atomic.Int64 // channels with members other than watchers
	shards   [hubShards]shard
}

const hubShards = 64

type shard struct {
	mu       sync.Mutex
	channels map[string]*channel
}

func newHub(n *node) *hub {
	h := &hub{node: n, seed: maphash.MakeSeed()}
	for i := range h.shards {
		h.shards[i].channels = make(map[string]*channel)
	}
	return h
}

func (h *hub) shard(name string) *shard { return &h.shards[maphash.String(h.seed, name)%hubShards] }

// join makes a session a member of the channel that it has reserved. It calls announce after the
// last publication that the session does not get, and before the first that it gets. announce must
// only queue bytes for the session. join may wait for the bus.
func (h *hub) join(r *Reservation, announce func(Welcome)) (*member, error) {
	return r.ch.addMember(r.s, r.SubscribeCommand, announce)
}

// reserved returns the reservation that s has for the channel of that name, or nil.
func (h *hub) reserved(s *Session, name string) *Reservation {
	sh := h.shard(name)
	sh.mu.Lock()
	ch := sh.channels[name]
	sh.mu.Unlock()
	if ch == nil {
		return nil
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.joining.of(s)
}

// acquire returns the channel of that name, creating it if necessary, and adds a user. The channel
// exists until release has been called for each user.
func (h *hub) acquire(name string) *channel {
	sh := h.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ch := sh.channels[name]
	if ch == nil {
		ch = &channel{hub: h, name: name, rules: h.node.rules.Of(name)}
		sh.channels[name] = ch
	}
	ch.users++
	return ch
}

// forget removes one user from ch and reports whether it was the last. If so, the caller must call
// ch.close; acquire returns a new channel for the name meanwhile.
func (h *hub) forget(ch *channel) (last bool) {
	sh := h.shard(ch.name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ch.users--
	if ch.users == 0 {
		delete(sh.channels, ch.name)
	}
	return ch.users == 0
}

// release removes one user from ch, and closes ch after the last. It must not be called from within
// Receive.
func (h *hub) release(ch *channel) {
	if h.forget(ch) {
		ch.close()
	}
}

// leave ends a membership: m's session gets nothing from the channel afterwards. It must not be
// called from within Receive.
func (h *hub) leave(m *member) {
	m.ch.remove(m)
	h.node.announce(m, false)
	h.release(m.ch)
}

// channels returns the number of channels with members other than watchers.
func (h *hub) channels() int { return int(h.occupied.Load()) }

// subscriptions returns the number of members of all channels, other than watchers.
func (h *hub) subscriptions() (sum int) {
	for i := range h.shards {
		sh := &h.shards[i]
		sh.mu.Lock()
		for _, ch := range sh.channels {
			sum += ch.size()
		}
		sh.mu.Unlock()
	}
	return sum
}

// announce sends a notice that m has joined or left, if that is to be announced. It does not retry.
func (n *node) announce(m *member, joined bool) {
	if !m.announced() || m.s.watcher {
		return
	}
	ctx, cancel := n.deadline(context.Background())
	defer cancel()
	err := n.bus.Announce(ctx, m.ch.name, bus.Notice{ClientInfo: m.info(), Joined: joined})
	if err != nil && !n.isDraining() {
		n.log.Warn("push: the bus refused a join or leave notice", "channel", m.ch.name, "joined", joined, "error", err)
	}
}

// subscribers returns how many subscribers a channel has on this node.
func (h *hub) subscribers(name string) int {
	sh := h.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if ch := sh.channels[name]; ch != nil {
		return ch.size()
	}
	return 0
}
