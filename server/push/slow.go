package push

// This file handles slow subscribers in namespaces whose policy drops publications.

// A lag is the queue of a slow member, in addition to its transport's. The channel owns it.
type lag struct {
	waiting [][]byte // encoded publications, oldest first
	bytes   int
	dropped int
}

// These bound the bytes that a slow member's transport has queued before publications wait in the
// lag. Only those in the lag can be dropped. SlowLatestOnly has the lower bound, because what the
// transport has may already be outdated.
const (
	handedOver       = 64 << 10
	handedOverLatest = 16 << 10
)

func (ns *Namespace) handedOver() int {
	if ns.Slow == SlowLatestOnly {
		return handedOverLatest
	}
	return handedOver
}

// offer sends m a publication, or queues it in m's lag. It returns how many messages to count as
// sent. The caller holds ch.mu.
func (ch *channel) offer(m *member, e *Message) int64 {
	l := ch.lags[m]
	if l == nil {
		if m.s.t.Queued() <= ch.rules.handedOver() {
			switch m.s.Offer(e) {
			case OfferTaken:
				return m.s.counted()
			case OfferGone:
				return 0
			}
		}
		l = new(lag)
		if ch.lags == nil {
			ch.lags = make(map[*member]*lag)
		}
		ch.lags[m] = l
		m.s.lags()
	}
	l.waiting = append(l.waiting, e.Payload)
	l.bytes += len(e.Payload)
	ch.cut(m, l)
	ch.catchUp(m)
	return 0
}

// cut drops the oldest publications above the policy's limit.
func (ch *channel) cut(m *member, l *lag) {
	n, before := ch.hub.node, l.dropped
	for len(l.waiting) > 1 && (ch.rules.Slow == SlowLatestOnly || l.bytes > ch.rules.SlowQueue) {
		l.pop()
		l.dropped++
	}
	n.count.dropped.Add(uint64(l.dropped - before))
	if before == 0 && l.dropped > 0 {
		queued := m.s.t.Queued() + l.bytes
		n.droppers.add(SlowClient{At: n.clock.Now(), Client: m.s.id.String(), User: m.s.User(), Channel: ch.name,
			Queued: queued})
		n.log.Warn("push: a slow client misses publications", "client", m.s.id.String(), "user", m.s.User(),
			"channel", ch.name, "remote", m.s.t.Remote(), "policy", string(ch.rules.Slow), "queued_bytes", queued)
	}
}

func (l *lag) pop() {
	l.bytes -= len(l.waiting[0])
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
}

// catchUp sends m's lag as far as m's transport has room, and reports whether publications remain.
// The caller holds ch.mu.
func (ch *channel) catchUp(m *member) (left bool) {
	l := ch.lags[m]
	if l == nil {
		return false
	}
	for len(l.waiting) > 0 && m.s.t.Queued() <= ch.rules.handedOver() {
		switch m.s.Offer(&Message{Payload: l.waiting[0]}) {
		case OfferFull:
			return true
		case OfferGone:
			delete(ch.lags, m)
			return false
		}
		l.pop()
		ch.hub.node.count.messages.Add(uint64(m.s.counted()))
	}
	if len(l.waiting) > 0 {
		return true
	}
	if l.dropped > 0 {
		ch.hub.node.log.Info("push: a slow client has caught up", "client", m.s.id.String(), "channel", ch.name,
			"dropped", l.dropped)
	}
	delete(ch.lags, m)
	return false
}

// lags schedules the session's next tick soon. The caller holds a channel's lock.
func (s *Session) lags() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage == stageConnected && !s.lagging {
		s.lagging = true
		s.node.wheel.set(s, s.deadline())
	}
}

// catchUp sends the session what its channels have queued for it. Its tick calls it.
func (s *Session) catchUp() {
	s.mu.Lock()
	members := append([]*member(nil), s.members...)
	s.lagging = false
	s.mu.Unlock()
	for _, m := range members {
		if m.ch.rules.Slow == SlowDisconnect {
			continue
		}
		m.ch.mu.Lock()
		left := m.ch.catchUp(m)
		m.ch.mu.Unlock()
		if left {
			s.lags()
		}
	}
}
