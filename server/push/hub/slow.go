package hub

// This file handles slow subscribers in namespaces whose policy drops publications. Without such a
// policy a client that reads too slowly is disconnected, by Session.TooSlow in session.go.

import (
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/server/push/policy"
)

// A payload is an encoded publication that waits for slow members. All members of a form share it.
// No count of references is kept, so an outbox of them may be forgotten without End. A member that
// catches up gets copies: in its transport many of them share a block, which costs no allocation,
// while each reference to a shared message is a block of its own.
type payload []byte

// Len implements outbox.Message.
func (p payload) Len() int { return len(p) }

// Release implements outbox.Message.
func (payload) Release() {}

// These bound the bytes that a slow member's transport has queued before publications wait in the
// member's outbox. Only those in the outbox can be dropped. SlowLatestOnly has the lower bound,
// because what the transport has may already be outdated.
const (
	handed       = 64 << 10
	handedLatest = 16 << 10
)

func handedOver(ns *policy.Namespace) int {
	if ns.Slow == policy.SlowLatestOnly {
		return handedLatest
	}
	return handed
}

// outboxRules are for a namespace whose policy drops publications.
func outboxRules(ns *policy.Namespace, counts *outbox.Counts) outbox.Rules {
	r := outbox.Rules{Policy: outbox.DropOldest, Room: ns.SlowQueue, Counts: counts}
	if ns.Slow == policy.SlowLatestOnly {
		r.Policy = outbox.Latest
	}
	return r
}

// offer sends m a publication, or queues it in m's outbox. It returns how many messages to count as
// sent. The caller holds ch.mu.
func (ch *channel) offer(m *member, e *Message) int64 {
	o := ch.outboxes[m]
	if o == nil {
		if m.s.t.Queued() <= handedOver(ch.rules) {
			switch m.s.Offer(e) {
			case OfferTaken:
				return m.s.counted()
			case OfferGone:
				return 0
			}
		}
		o = new(outbox.Outbox[payload])
		if ch.outboxes == nil {
			ch.outboxes = make(map[*member]*outbox.Outbox[payload])
		}
		ch.outboxes[m] = o
		m.s.catchUpSoon()
	}
	before := o.Dropped()
	o.Put(e.Payload, outboxRules(ch.rules, &ch.all.figures.overflow))
	if before == 0 && o.Dropped() > 0 {
		ch.reportMissing(m, o)
	}
	ch.catchUp(m)
	return 0
}

// reportMissing tells operators that m misses publications from now on.
func (ch *channel) reportMissing(m *member, o *outbox.Outbox[payload]) {
	all, queued := ch.all, m.s.t.Queued()+o.Bytes()
	all.figures.droppers.add(SlowClient{At: all.clock.Now(), Client: m.s.id.String(), User: m.s.User(),
		Channel: ch.name, Queued: queued})
	all.log.Warn("push: a slow client misses publications", "client", m.s.id.String(), "user", m.s.User(),
		"channel", ch.name, "remote", m.s.t.Remote(), "policy", string(ch.rules.Slow), "queued_bytes", queued)
}

// catchUp sends what waits in m's outbox, as far as m's transport has room, and reports whether
// publications remain. The caller holds ch.mu.
func (ch *channel) catchUp(m *member) (left bool) {
	o := ch.outboxes[m]
	if o == nil {
		return false
	}
	for o.Waits() && m.s.t.Queued() <= handedOver(ch.rules) {
		switch m.s.Offer(&Message{Payload: o.First()}) {
		case OfferFull:
			return true
		case OfferGone:
			delete(ch.outboxes, m)
			return false
		}
		o.Sent()
		ch.all.figures.messages.Add(uint64(m.s.counted()))
	}
	if o.Waits() {
		return true
	}
	if o.Relieved() {
		ch.all.log.Info("push: a slow client has caught up", "client", m.s.id.String(), "channel", ch.name,
			"dropped", o.Dropped())
	}
	delete(ch.outboxes, m)
	return false
}
