package push

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// A hub knows which sessions are subscribed to which channel on this node.
//
// Locks are taken in this order: a channel's opening, the bus's own, then a shard's or a channel's,
// then a session's. A Receive comes with a lock of the bus held, so it asks nothing of the bus. A
// shard's is held for look-ups only: whoever has to wait for the bus to subscribe to one channel,
// or to leave it, holds up nobody but those who want the same.
type hub struct {
	node      *node
	seed      maphash.Seed
	inhabited atomic.Int64 // channels with members that are counted
	shards    [hubShards]shard
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

// join makes s a member of the channel of that name. announce runs between the last publication
// that s does not get and the first that it does; it must only queue bytes for s. It may wait for
// the bus.
func (h *hub) join(s *session, name string, w wish, announce func(welcome)) (*member, error) {
	ch := h.acquire(name)
	m, err := ch.admit(s, w, announce)
	if err != nil {
		h.release(ch)
	}
	return m, err
}

// acquire returns the channel of that name, made if there was none. It stays until it has been
// released as often.
func (h *hub) acquire(name string) *channel {
	sh := h.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ch := sh.channels[name]
	if ch == nil {
		ch = &channel{hub: h, name: name, rules: h.node.rules.of(name)}
		sh.channels[name] = ch
	}
	ch.users++
	return ch
}

// forget takes one user from ch and reports whether it was the last: then somebody has to call
// close. Who comes for the same name meanwhile gets another channel.
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

// release must not be called from within Receive.
func (h *hub) release(ch *channel) {
	if h.forget(ch) {
		ch.close()
	}
}

// leave ends a membership: m's session gets nothing from the channel afterwards. The last one to
// leave takes the channel down. It must not be called from within Receive.
func (h *hub) leave(m *member) {
	m.ch.remove(m)
	h.node.announce(m, false)
	h.release(m.ch)
}

// channels returns how many channels have members that are counted.
func (h *hub) channels() int { return int(h.inhabited.Load()) }

// announce tells the subscribers of m's channel that it has come, or has gone, where the rules say
// so. If it fails, it is not repeated.
func (n *node) announce(m *member, joined bool) {
	if !m.ch.rules.JoinLeave || m.s.watcher {
		return
	}
	err := n.bus.Announce(context.Background(), m.ch.name, Notice{ClientInfo: m.info(), Joined: joined})
	if err != nil && !n.isDraining() {
		n.log.Warn("push: a notice was not taken", "channel", m.ch.name, "joined", joined, "error", err)
	}
}
