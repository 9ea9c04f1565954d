package redis

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/bus"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/resp/wire"
)

// maxPatterns bounds the different patterns of one node, because each publication is compared with
// all of them. A pattern may be as long as a channel's name.
const maxPatterns = 1000

var errTooManyPatterns = fmt.Errorf("push: redis: there are more than %d different patterns", maxPatterns)

// patterns are the subscriptions of PSUBSCRIBE on a node. While there are any, they are a tap
// of the bus. They get the publications of a channel in its order, each of them once, and after the
// channel's own subscribers.
type patterns struct {
	used atomic.Bool  // there are any
	mu   sync.RWMutex // held for reading while publications are sent
	all  map[string]map[*client]*hub.Session
	stop func() // ends the tap; nil: there is none

	closed bool // the server has shut down: no tap begins
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
		if wire.Match(pattern, channel) {
			n += len(clients)
		}
	}
	return n
}

// join adds subscriptions of a client, and then calls joined. Its first publication comes after
// that. join returns false, and has added nothing, if there would be more than maxPatterns.
func (t *patterns) join(d *Door, k *client, s *hub.Session, list []string, joined func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	added := make(map[string]struct{})
	for _, pattern := range list {
		if t.all[pattern] == nil {
			added[pattern] = struct{}{}
		}
	}
	if len(t.all)+len(added) > maxPatterns {
		return false
	}
	if t.all == nil {
		t.all = make(map[string]map[*client]*hub.Session)
	}
	for _, pattern := range list {
		if t.all[pattern] == nil {
			t.all[pattern] = make(map[*client]*hub.Session)
		}
		t.all[pattern][k] = s
	}
	if t.stop == nil && len(t.all) > 0 && !t.closed {
		t.stop = d.hub.LocalBus().Tap(func(channel string, list []bus.Publication) { t.deliver(d, channel, list) })
		t.used.Store(true)
	}
	joined()
	return true
}

// drop ends subscriptions of a client. It gets nothing of them afterwards.
func (t *patterns) drop(k *client, list ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, pattern := range list {
		delete(t.all[pattern], k)
		if len(t.all[pattern]) == 0 {
			delete(t.all, pattern)
		}
	}
	if t.stop != nil && len(t.all) == 0 {
		t.stop()
		t.stop = nil
		t.used.Store(false)
	}
}

// end ends the tap, when the server has shut down.
func (t *patterns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop != nil {
		t.stop()
		t.stop = nil
	}
	t.closed = true
}

// deliver sends publications to the subscriptions that match their channel. A client that needs a
// token for the channel does not get them.
func (t *patterns) deliver(d *Door, channel string, list []bus.Publication) {
	if channel[0] == 0 {
		return // a log of a door, which is no channel
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for pattern, clients := range t.all {
		if !wire.Match(pattern, channel) {
			continue
		}
		for _, s := range clients {
			if s.NeedsToken(channel) || !s.MayName(channel) {
				continue
			}
			f := s.Form().(form)
			m := &hub.Message{Payload: f.matches(pattern, channel, list)}
			switch s.Offer(m) {
			case hub.OfferTaken:
				d.hub.CountMessages(len(list))
			case hub.OfferFull:
				s.TooSlow(channel, len(m.Payload))
			}
		}
	}
}

// subscribePatterns answers one push message for each pattern, in front of its first publication.
// The client gets all patterns, or none if that is above a limit.
func (d *Door) subscribePatterns(w *resp.Reply, c *resp.Command) {
	if d.hub.LocalBus() == nil {
		w.Error("ERR PSUBSCRIBE is not available on a cluster: subscribe to channels by name")
		return
	}
	k, s := d.client(c.Conn), d.session(c.Conn, false)
	w.Flush()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !d.joinPatterns(k, s, c) {
		d.fail(w, "redis psubscribe", answer.ErrLimitExceeded)
	}
}

// joinPatterns subscribes the client to the patterns of a command. The caller holds k.mu.
func (d *Door) joinPatterns(k *client, s *hub.Session, c *resp.Command) bool {
	var list []string
	fresh := make(map[string]struct{})
	for _, a := range c.Args[1:] {
		if len(a) > d.hub.Limits().ChannelName {
			return false
		}
		list = append(list, string(a))
		if _, known := k.patterns[string(a)]; !known {
			fresh[string(a)] = struct{}{}
		}
	}
	if len(k.patterns)+len(k.channels[0])+len(fresh) > d.hub.Limits().Channels {
		return false
	}
	if k.ended {
		return true // there is no client to answer
	}
	return d.patterns.join(d, k, s, list, func() {
		for _, a := range c.Args[1:] {
			k.patterns[string(a)] = struct{}{}
			k.noteSubscribed(c.Conn)
			// an error ends the connection
			_ = c.Conn.TryPush(buf.From(confirmation(c.Conn.Protocol(), "psubscribe", a, k.count(false))))
		}
	})
}

func (d *Door) unsubscribePatterns(w *resp.Reply, c *resp.Command) {
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
			d.patterns.drop(k, string(name))
		}
		k.mu.Lock()
		delete(k.patterns, string(name))
		k.noteSubscribed(c.Conn)
		count := k.count(false)
		k.mu.Unlock()
		d.confirm(w, "punsubscribe", name, count)
	}
}
