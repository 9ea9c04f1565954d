package push

import (
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/resp"
)

// maxPatterns bounds the different patterns of one node, because each publication is compared with
// all of them. A pattern may be as long as a channel's name.
const maxPatterns = 1000

// patterns are the subscriptions of PSUBSCRIBE on a node. They get what is published on this node,
// after the channel's own subscribers.
type patterns struct {
	used atomic.Bool // there are any: without them a publication does not look further
	mu   sync.RWMutex
	all  map[string]map[*redisClient]*session
}

// count returns how many patterns there are.
func (t *patterns) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.all)
}

// matching returns how many subscriptions match a channel.
func (t *patterns) matching(channel string) (n int) {
	if !t.used.Load() {
		return 0
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for pattern, clients := range t.all {
		if resp.Match(pattern, channel) {
			n += len(clients)
		}
	}
	return n
}

// join adds a subscription. It returns false at maxPatterns.
func (t *patterns) join(k *redisClient, s *session, pattern string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]map[*redisClient]*session{}
	}
	if t.all[pattern] == nil {
		if len(t.all) >= maxPatterns {
			return false
		}
		t.all[pattern] = map[*redisClient]*session{}
	}
	t.all[pattern][k] = s
	t.used.Store(true)
	return true
}

func (t *patterns) drop(k *redisClient, pattern string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all[pattern], k)
	if len(t.all[pattern]) == 0 {
		delete(t.all, pattern)
	}
	t.used.Store(len(t.all) > 0)
}

// leave drops all subscriptions of a client that has ended.
func (t *patterns) leave(k *redisClient) {
	k.mu.Lock()
	var mine []string
	for pattern := range k.patterns {
		mine = append(mine, pattern)
	}
	k.mu.Unlock()
	for _, pattern := range mine {
		t.drop(k, pattern)
	}
}

// deliver sends a publication to the subscriptions that match its channel. A client that needs a
// token for the channel does not get it.
func (t *patterns) deliver(n *node, channel string, p Publication) {
	type delivery struct {
		s       *session
		pattern string
	}
	var to []delivery
	t.mu.RLock()
	for pattern, clients := range t.all {
		if !resp.Match(pattern, channel) {
			continue
		}
		for _, s := range clients {
			to = append(to, delivery{s, pattern})
		}
	}
	t.mu.RUnlock()
	for _, one := range to {
		if one.s.needsToken(channel) || !one.s.mayName(channel) {
			continue
		}
		f := one.s.form().form.(redisForm)
		m := &message{payload: f.appendMatch(nil, one.pattern, channel, p)}
		switch one.s.offer(m) {
		case offerTaken:
			n.count.messages.Add(1)
		case offerFull:
			one.s.tooSlow(channel, len(m.payload))
		}
	}
}

func (d *redisServer) subscribePatterns(w *resp.Reply, c *resp.Command) {
	n := d.node
	if _, local := n.bus.(*memoryBus); !local {
		w.Error("ERR PSUBSCRIBE is not available on a cluster: subscribe to channels by name")
		return
	}
	k, s := d.client(c.Conn), d.session(c.Conn, false)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !d.joinPatterns(k, s, c.Args[1:]) {
		d.fail(w, "redis psubscribe", failLimitExceeded)
		return
	}
	for _, a := range c.Args[1:] {
		k.patterns[string(a)] = struct{}{}
		k.noteSubscribed(c.Conn)
		d.confirm(w, "psubscribe", a, k.count(false))
	}
}

// joinPatterns subscribes the client to all patterns, or to none if that is above a limit. The
// caller holds k.mu, and notes them.
func (d *redisServer) joinPatterns(k *redisClient, s *session, list [][]byte) bool {
	added := make(map[string]struct{})
	for _, a := range list {
		pattern := string(a)
		if _, known := k.patterns[pattern]; known {
			continue
		}
		if added[pattern] = struct{}{}; len(pattern) > d.node.limits.ChannelName ||
			len(k.patterns)+len(k.channels[0])+len(added) > d.node.limits.Channels ||
			!d.node.patterns.join(k, s, pattern) {
			for pattern := range added {
				d.node.patterns.drop(k, pattern)
			}
			return false
		}
	}
	return true
}

func (d *redisServer) unsubscribePatterns(w *resp.Reply, c *resp.Command) {
	k := d.client(c.Conn)
	k.mu.Lock()
	names := c.Args[1:]
	if len(names) == 0 {
		for pattern := range k.patterns {
			names = append(names, []byte(pattern))
		}
	}
	k.mu.Unlock()
	if len(names) == 0 {
		names = [][]byte{nil}
	}
	for _, name := range names {
		if name != nil {
			d.node.patterns.drop(k, string(name))
		}
		k.mu.Lock()
		delete(k.patterns, string(name))
		k.noteSubscribed(c.Conn)
		count := k.count(false)
		k.mu.Unlock()
		d.confirm(w, "punsubscribe", name, count)
	}
}
