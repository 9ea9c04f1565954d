package membus

import (
	"container/list"
	"context"
	"sync"

	"github.com/myriad-go/myriad/server/push/bus"
)

// This file holds the histories of a Bus.

func (b *Bus) History(ctx context.Context, to bus.Topic, q bus.Query) (bus.History, error) {
	if err := ctx.Err(); err != nil {
		return bus.History{}, err
	}
	if to.Keep.Size <= 0 {
		return bus.History{}, bus.ErrNoHistory
	}
	for {
		t, err := b.usable(to.Name, true)
		if err == errFrozen {
			if err = b.waitThaw(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return bus.History{}, err
		}
		h, victims, ok := b.read(t, to.Keep, q)
		b.evict(victims)
		if ok {
			return h, nil
		}
	}
}

// read answers q from t's history, after it has delivered what waits, so that the receivers have
// everything up to Top. It is not ok if t was removed, or is frozen.
func (b *Bus) read(t *topic, keep bus.Retention, q bus.Query) (h bus.History, victims []*topic, ok bool) {
	t.order.Lock()
	defer t.order.Unlock()
	if !t.deliverAll(b) {
		return h, nil, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.removed || t.frozen {
		return h, nil, false
	}
	st := b.streamOf(t, keep)
	top := st.top
	for _, p := range t.waiting { // appended between the delivery and this
		if p.Epoch == st.epoch {
			top = p.Offset - 1
			break
		}
	}
	h = st.read(q, top, b.config.Clock.Now())
	if t.epoch == "" {
		t.epoch = h.Top.Epoch
	}
	return h, b.lru.touch(t, st.bytes), true
}

func (b *Bus) Forget(ctx context.Context, to bus.Topic) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if to.Keep.Size <= 0 {
		return bus.ErrNoHistory
	}
	for {
		t, err := b.usable(to.Name, false)
		if err == errFrozen {
			if err = b.waitThaw(ctx); err == nil {
				continue
			}
		}
		if t == nil || err != nil {
			return err
		}
		if b.forget(t) {
			return nil
		}
	}
}

// forget drops t's publications. It returns false, and drops nothing, if t is frozen.
func (b *Bus) forget(t *topic) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stream != nil && !t.frozen {
		t.stream.clear()
		b.lru.set(t, 0)
	}
	return !t.frozen
}

// streamOf returns the history of t, creating it if there is none with that Retention. The caller
// holds t.mu.
func (b *Bus) streamOf(t *topic, keep bus.Retention) *stream {
	if t.stream == nil || t.stream.keep != keep {
		t.stream = &stream{epoch: b.newEpoch(), keep: keep}
	}
	return t.stream
}

// expire removes the expired publications of one channel.
func (b *Bus) expire(t *topic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stream == nil {
		return
	}
	t.stream.expire(b.config.Clock.Now())
	b.lru.set(t, t.stream.bytes)
}

// evict removes the histories of the topics that the LRU has chosen. The caller holds no lock.
func (b *Bus) evict(victims []*topic) {
	for _, t := range victims {
		t.mu.Lock()
		if t.stream != nil {
			t.stream.clear()
			// a topic with receivers keeps its position, or its subscribers would seem to have
			// missed publications
			if !t.hasReceivers {
				t.stream = nil
			}
			b.lru.remove(t)
		}
		t.mu.Unlock()
		b.sweep(t)
	}
}

// An lru lists the topics that have a history in the order of their last use, and sums their bytes.
// Its limits are Config's.
type lru struct {
	mu       sync.Mutex
	topics   list.List // of *topic, the most recently used at the back
	bytes    int
	maxBytes int
	maxCount int
}

// An lruEntry is a topic's entry in the lru.
type lruEntry struct {
	at    *list.Element
	bytes int
}

func (s *lru) init(maxBytes, maxCount int) {
	s.topics.Init()
	s.maxBytes, s.maxCount = maxBytes, maxCount
}

// touch marks t as most recently used and records its bytes. It removes the topics that must lose
// their histories for it, and returns them. The caller holds t.mu, and the mu of no other topic.
func (s *lru) touch(t *topic, bytes int) (victims []*topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(t)
	s.topics.MoveToBack(t.entry.at)
	s.book(t, bytes)
	for (s.bytes > s.maxBytes || s.topics.Len() > s.maxCount) && s.topics.Len() > 1 {
		victim := s.topics.Front().Value.(*topic)
		s.take(victim)
		victims = append(victims, victim)
	}
	return victims
}

// set records t's bytes if t is in the list. The caller holds t.mu.
func (s *lru) set(t *topic, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.entry.at != nil {
		s.book(t, bytes)
	}
}

// remove takes t, whose history is empty or nil, off the list. touch adds it again. The caller
// holds t.mu.
func (s *lru) remove(t *topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(t)
}

// put, take and book are called under mu.
func (s *lru) put(t *topic) {
	if t.entry.at == nil {
		t.entry.at = s.topics.PushBack(t)
	}
}

func (s *lru) take(t *topic) {
	if t.entry.at != nil {
		s.topics.Remove(t.entry.at)
		t.entry.at = nil
	}
	s.book(t, 0)
}

func (s *lru) book(t *topic, bytes int) {
	s.bytes += bytes - t.entry.bytes
	t.entry.bytes = bytes
}

func (s *lru) all() []*topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*topic, 0, s.topics.Len())
	for e := s.topics.Front(); e != nil; e = e.Next() {
		list = append(list, e.Value.(*topic))
	}
	return list
}
