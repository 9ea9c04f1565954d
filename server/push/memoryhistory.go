package push

import (
	"container/list"
	"context"
	"sync"
)

// This file is the histories of the memory bus.

func (b *memoryBus) History(ctx context.Context, channel string, q Query) (History, error) {
	if err := ctx.Err(); err != nil {
		return History{}, err
	}
	for {
		t, err := b.topic(channel, true)
		if err != nil {
			return History{}, err
		}
		h, victims, ok := b.read(t, q)
		b.evict(victims)
		if ok {
			return h, nil
		}
	}
}

// read is not ok if t has gone.
func (b *memoryBus) read(t *topic, q Query) (h History, victims []*topic, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return h, nil, false
	}
	st := b.streamOf(t)
	h = st.read(q, b.config.Clock.Now())
	return h, b.shelf.touch(t, st.bytes), true
}

func (b *memoryBus) Forget(ctx context.Context, channel string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t, err := b.topic(channel, false)
	if t == nil || err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stream != nil {
		t.stream.clear()
		b.shelf.set(t, 0)
	}
	return nil
}

// streamOf returns the history of t, begun if there was none. The caller holds t.mu.
func (b *memoryBus) streamOf(t *topic) *stream {
	if t.stream == nil {
		t.stream = &stream{epoch: b.newEpoch()}
	}
	return t.stream
}

// expire drops what is too old of one channel.
func (b *memoryBus) expire(t *topic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stream == nil {
		return
	}
	t.stream.expire(b.config.Clock.Now())
	b.shelf.set(t, t.stream.bytes)
}

// evict takes the histories of topics away, which the shelf has found to be too much. The caller
// holds no lock.
func (b *memoryBus) evict(victims []*topic) {
	for _, t := range victims {
		t.mu.Lock()
		if t.stream != nil {
			t.stream.clear()
			// else it keeps its position, or its subscribers would believe that they have missed
			// something
			if !t.listened {
				t.stream = nil
			}
			b.shelf.remove(t)
		}
		t.mu.Unlock()
		b.sweep(t)
	}
}

// A shelf knows which topics have a history, which was used last, and what all take. Its limits are
// MemoryConfig's.
type shelf struct {
	mu       sync.Mutex
	topics   list.List // of *topic, the one used last at the back
	bytes    int
	maxBytes int
	maxCount int
}

// place is where a topic stands on the shelf.
type place struct {
	at    *list.Element
	bytes int
}

func (s *shelf) init(maxBytes, maxCount int) {
	s.topics.Init()
	s.maxBytes, s.maxCount = maxBytes, maxCount
}

// touch makes t the one used last, and what it takes so many bytes. It returns those that have to
// lose their history for it, which are not on the shelf any more. The caller holds t.mu, and that
// of none of those.
func (s *shelf) touch(t *topic, bytes int) (victims []*topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(t)
	s.topics.MoveToBack(t.place.at)
	s.book(t, bytes)
	for (s.bytes > s.maxBytes || s.topics.Len() > s.maxCount) && s.topics.Len() > 1 {
		victim := s.topics.Front().Value.(*topic)
		s.take(victim)
		victims = append(victims, victim)
	}
	return victims
}

// set books what t takes, if it is on the shelf. The caller holds t.mu.
func (s *shelf) set(t *topic, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.place.at != nil {
		s.book(t, bytes)
	}
}

// remove takes t off, which has an empty history or none. One that is used again comes back. The
// caller holds t.mu.
func (s *shelf) remove(t *topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(t)
}

// put, take and book are called under mu.
func (s *shelf) put(t *topic) {
	if t.place.at == nil {
		t.place.at = s.topics.PushBack(t)
	}
}

func (s *shelf) take(t *topic) {
	if t.place.at != nil {
		s.topics.Remove(t.place.at)
		t.place.at = nil
	}
	s.book(t, 0)
}

func (s *shelf) book(t *topic, bytes int) {
	s.bytes += bytes - t.place.bytes
	t.place.bytes = bytes
}

func (s *shelf) all() []*topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*topic, 0, s.topics.Len())
	for e := s.topics.Front(); e != nil; e = e.Next() {
		list = append(list, e.Value.(*topic))
	}
	return list
}
