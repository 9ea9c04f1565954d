package push

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
)

// NewMemoryBus returns a Bus within this process. Publish calls the receivers itself and returns when all have returned, so it
// queues nothing. Several nodes may share one.
func NewMemoryBus() Bus {
	b := &memoryBus{seed: maphash.MakeSeed()}
	for i := range b.shards {
		b.shards[i].topics = make(map[string]*topic)
	}
	return b
}

const memoryShards = 32

type memoryBus struct {
	seed   maphash.Seed
	shards [memoryShards]struct {
		mu     sync.Mutex // held for look-ups only, never while receivers run
		topics map[string]*topic
		closed bool
	}
}

// A topic is a channel that has receivers. Its lock is what makes one order for all receivers, and what Unsubscribe waits for.
type topic struct {
	mu        sync.Mutex
	receivers []Receiver
	gone      bool // removed from the map: whoever still holds it has to look again
}

func (b *memoryBus) Publish(ctx context.Context, channel string, p Publication) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := &b.shards[b.shard(channel)]
	s.mu.Lock()
	t, closed := s.topics[channel], s.closed
	s.mu.Unlock()
	if closed {
		return ErrBusClosed
	}
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.receivers {
		r.Receive(channel, p)
	}
	return nil
}

func (b *memoryBus) Subscribe(channel string, r Receiver) error {
	for {
		t, err := b.topic(channel)
		if err != nil {
			return err
		}
		t.mu.Lock()
		switch {
		case t.gone:
			t.mu.Unlock()
			continue
		case slices.Contains(t.receivers, r):
			t.mu.Unlock()
			return ErrSubscribed
		}
		t.receivers = append(t.receivers, r)
		t.mu.Unlock()
		return nil
	}
}

// topic returns that of channel, made if there was none.
func (b *memoryBus) topic(channel string) (*topic, error) {
	s := &b.shards[b.shard(channel)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrBusClosed
	}
	t := s.topics[channel]
	if t == nil {
		t = new(topic)
		s.topics[channel] = t
	}
	return t, nil
}

func (b *memoryBus) Unsubscribe(channel string, r Receiver) {
	s := &b.shards[b.shard(channel)]
	s.mu.Lock()
	t := s.topics[channel]
	s.mu.Unlock()
	if t == nil {
		return
	}
	t.mu.Lock()
	t.remove(r)
	empty := len(t.receivers) == 0
	t.mu.Unlock()
	if empty {
		b.sweep(channel, t)
	}
}

func (t *topic) remove(r Receiver) {
	if i := slices.Index(t.receivers, r); i >= 0 {
		t.receivers = slices.Delete(t.receivers, i, i+1)
	}
}

// sweep removes a topic without receivers, unless somebody has subscribed since.
func (b *memoryBus) sweep(channel string, t *topic) {
	s := &b.shards[b.shard(channel)]
	s.mu.Lock()
	defer s.mu.Unlock()
	t.mu.Lock() // shard before topic; Publish never holds both
	defer t.mu.Unlock()
	if len(t.receivers) == 0 && !t.gone {
		t.gone = true
		delete(s.topics, channel)
	}
}

func (b *memoryBus) Close() error {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		topics := s.topics
		s.topics, s.closed = nil, true
		s.mu.Unlock()
		for _, t := range topics {
			t.mu.Lock() // waits for a Receive that is under way
			t.receivers, t.gone = nil, true
			t.mu.Unlock()
		}
	}
	return nil
}

func (b *memoryBus) shard(channel string) uint64 {
	return maphash.String(b.seed, channel) % memoryShards
}
