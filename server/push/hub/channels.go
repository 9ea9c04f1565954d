package hub

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"github.com/myriad-go/myriad/server/push/bus"
)

// channels are those that have subscribers on this node.
//
// Locks are taken in this order: a channel's opening, the bus's own, then a shard's or a channel's,
// then a session's. The bus holds one of its locks while it calls Receive, so Receive must not call
// the bus. A shard's lock is held for look-ups only: a caller that waits for the bus to subscribe
// to a channel blocks only callers for the same channel.
type channels struct {
	*node
	bus     *busClient
	figures *figures
	forms   formTable
	seed    maphash.Seed
	shards  [channelShards]shard
}

const channelShards = 64

type shard struct {
	mu       sync.Mutex
	channels map[string]*channel
}

func newChannels(n *node, b *busClient, f *figures, forms formTable) *channels {
	c := &channels{node: n, bus: b, figures: f, forms: forms, seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].channels = make(map[string]*channel)
	}
	return c
}

func (c *channels) shard(name string) *shard {
	return &c.shards[maphash.String(c.seed, name)%channelShards]
}

// join makes a session a member of the channel that it has reserved. It calls announce after the
// last publication that the session does not get, and before the first that it gets. announce must
// only queue bytes for the session. join may wait for the bus.
func (c *channels) join(r *Reservation, announce func(Welcome)) (*member, error) {
	return r.ch.addMember(r.s, r.SubscribeCommand, announce)
}

// reserved returns the reservation that s has for the channel of that name, or nil.
func (c *channels) reserved(s *Session, name string) *Reservation {
	sh := c.shard(name)
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
func (c *channels) acquire(name string) *channel {
	sh := c.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ch := sh.channels[name]
	if ch == nil {
		ch = &channel{all: c, name: name, rules: c.rules.Of(name)}
		sh.channels[name] = ch
	}
	ch.users++
	return ch
}

// forget removes one user from ch and reports whether it was the last. If so, the caller must call
// ch.close; acquire returns a new channel for the name meanwhile.
func (c *channels) forget(ch *channel) (last bool) {
	sh := c.shard(ch.name)
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
func (c *channels) release(ch *channel) {
	if c.forget(ch) {
		ch.close()
	}
}

// leave ends a membership: m's session gets nothing from the channel afterwards. It must not be
// called from within Receive.
func (c *channels) leave(m *member) {
	m.ch.remove(m)
	c.announce(m, false)
	c.release(m.ch)
}

// leaveUnnoticed is leave for a membership that goes on in another process.
func (c *channels) leaveUnnoticed(m *member) {
	m.ch.remove(m)
	c.release(m.ch)
}

// announce tells the bus that m has joined or left, if that is to be announced.
func (c *channels) announce(m *member, joined bool) {
	if m.announced() && !m.s.watcher {
		c.bus.announce(m.ch.name, bus.Notice{ClientInfo: m.info(), Joined: joined})
	}
}

// subscriptions returns the number of members of all channels, other than watchers.
func (c *channels) subscriptions() (sum int) {
	for i := range c.shards {
		sh := &c.shards[i]
		sh.mu.Lock()
		for _, ch := range sh.channels {
			sum += ch.size()
		}
		sh.mu.Unlock()
	}
	return sum
}

// subscribers returns how many subscribers a channel has on this node.
func (c *channels) subscribers(name string) int {
	sh := c.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if ch := sh.channels[name]; ch != nil {
		return ch.size()
	}
	return 0
}

// matching returns at most `most` channels for whose names wanted returns true. It locks one shard
// at a time; joins and leaves in that shard wait meanwhile.
func (c *channels) matching(wanted func(name string) bool, most int) ChannelList {
	l := ChannelList{Channels: []ChannelInfo{}}
	for i := range c.shards {
		c.shards[i].list(wanted, &l)
		l.Trim(most)
	}
	return l
}

func (sh *shard) list(wanted func(name string) bool, l *ChannelList) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for name, ch := range sh.channels {
		if !wanted(name) {
			continue
		}
		size := ch.size()
		if size == 0 { // it has only watchers, or a client that is about to join
			continue
		}
		l.Total++
		l.Channels = append(l.Channels, ChannelInfo{name, size})
	}
}

// A ChannelList is channels that have subscribers, those with the most subscribers first.
type ChannelList struct {
	Total    int           `json:"total"` // that match, listed or not
	Channels []ChannelInfo `json:"channels"`
}

// A ChannelInfo is a channel that has subscribers.
type ChannelInfo struct {
	Name        string `json:"name"`
	Subscribers int    `json:"num_clients"` // on all nodes
}

// Trim keeps the first `most` channels.
func (l *ChannelList) Trim(most int) {
	slices.SortFunc(l.Channels, func(a, b ChannelInfo) int {
		return cmp.Or(cmp.Compare(b.Subscribers, a.Subscribers), strings.Compare(a.Name, b.Name))
	})
	l.Channels = l.Channels[:min(len(l.Channels), most)]
}
