package push

// This file is what happens to subscribers that do not keep up, where the namespace does not have
// them disconnected.

// A lag is what waits for a slow member besides what its transport has. The channel owns it.
type lag struct {
	waiting [][]byte // encoded publications, the oldest first
	bytes   int
	dropped int
}

// What a transport is given before publications wait here, where they can still be dropped. It is
// what such a member costs besides its lag. Where only the last one counts it is less, because what
// is on its way is old already.
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

// offer gives m a publication, or has it wait. It returns how many to count as sent. The caller
// holds ch.mu.
func (ch *channel) offer(m *member, e *message) int64 {
	l := ch.lags[m]
	if l == nil {
		if m.s.t.queued() <= ch.rules.handedOver() {
			switch m.s.offer(e) {
			case offerTaken:
				return m.s.counted()
			case offerGone:
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
	l.waiting = append(l.waiting, e.payload)
	l.bytes += len(e.payload)
	ch.cut(m, l)
	ch.catchUp(m)
	return 0
}

// cut drops what is too much.
func (ch *channel) cut(m *member, l *lag) {
	n, before := ch.hub.node, l.dropped
	for len(l.waiting) > 1 && (ch.rules.Slow == SlowLatestOnly || l.bytes > ch.rules.SlowQueue) {
		l.pop()
		l.dropped++
	}
	n.count.dropped.Add(uint64(l.dropped - before))
	if before == 0 && l.dropped > 0 {
		queued := m.s.t.queued() + l.bytes
		n.droppers.add(slowDisconnect{At: n.clock.Now(), Client: m.s.id.String(), User: m.s.user(), Channel: ch.name,
			Queued: queued})
		n.log.Warn("push: a slow client misses publications", "client", m.s.id.String(), "user", m.s.user(), "channel",
			ch.name,
			"policy", string(ch.rules.Slow), "queued_bytes", queued)
	}
}

func (l *lag) pop() {
	l.bytes -= len(l.waiting[0])
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
}

// catchUp gives m what waits for it, as far as its transport takes it, and reports whether
// something is left. The caller holds ch.mu.
func (ch *channel) catchUp(m *member) (left bool) {
	l := ch.lags[m]
	if l == nil {
		return false
	}
	for len(l.waiting) > 0 && m.s.t.queued() <= ch.rules.handedOver() {
		switch m.s.offer(&message{payload: l.waiting[0]}) {
		case offerFull:
			return true
		case offerGone:
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

// lags has the session's next tick come soon. It is called under a channel's lock.
func (s *session) lags() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage == stageConnected && !s.lagging {
		s.lagging = true
		s.node.wheel.set(s, s.deadline())
	}
}

// catchUp gives the session what waits for it in its channels. Its own tick calls it.
func (s *session) catchUp() {
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
