package push

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"hash/maphash"
	"io"
	"slices"
	"sync"
	"time"
)

// MemoryConfig bounds the histories of a memory bus. The zero value works.
type MemoryConfig struct {
	// HistoryBytes and HistoryChannels are those of Limits, with the same defaults.
	HistoryBytes, HistoryChannels int
	// Clock and Random are for simulation. Default: the system's. Random is what epochs are made
	// of, and is read under a lock.
	Clock  Clock
	Random io.Reader
}

// NewMemoryBus returns a Bus within this process. Publish calls the receivers itself and returns
// when all have returned, so it queues nothing; publications that wait for the same channel
// meanwhile are delivered together. Several nodes may share one. Histories end with the process.
func NewMemoryBus(c MemoryConfig) Bus {
	setDefault(&c.HistoryBytes, Limits{}.withDefaults().HistoryBytes)
	setDefault(&c.HistoryChannels, Limits{}.withDefaults().HistoryChannels)
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	b := &memoryBus{config: c, seed: maphash.MakeSeed()}
	for i := range b.shards {
		b.shards[i].topics = make(map[string]*topic)
	}
	b.shelf.init(c.HistoryBytes, c.HistoryChannels)
	return b
}

const memoryShards = 32

// Locks are taken in this order: a topic's order, a shard's, a topic's mu, the shelf's. Receivers
// are called with order held.
type memoryBus struct {
	config MemoryConfig
	seed   maphash.Seed
	shards [memoryShards]struct {
		mu     sync.Mutex // held for look-ups only, never while receivers run
		topics map[string]*topic
		closed bool
	}
	shelf shelf

	epochs sync.Mutex // guards config.Random

	timerMu   sync.Mutex
	stopTimer func() bool // nil: no sweep is planned
	closed    bool
}

// A topic is a channel that has receivers, or a history.
type topic struct {
	name string

	order     sync.Mutex // makes one order for all receivers, and is what Unsubscribe waits for
	receivers []Receiver
	delivered uint64        // how many of those that were published have been delivered
	batch     []Publication // the one that is being delivered

	mu        sync.Mutex
	gone      bool // removed from the map: whoever still holds it has to look again
	listened  bool // there are receivers
	published uint64
	waiting   []Publication // to be delivered by whoever holds order next
	stream    *stream       // nil: there is no history

	place place // the shelf's
}

func (b *memoryBus) Publish(ctx context.Context, channel string, p Publication, keep Retention) (Position, error) {
	if err := ctx.Err(); err != nil {
		return Position{}, err
	}
	for {
		t, err := b.topic(channel, keep.Size > 0)
		if t == nil {
			return Position{}, err
		}
		at, ticket, victims := b.append(t, p, keep)
		if ticket == 0 {
			continue
		}
		b.evict(victims)
		if !t.deliver(ticket) {
			return Position{}, ErrBusClosed
		}
		return at, nil
	}
}

// append gives p its place, in the history and among those that are to be delivered. The ticket is
// 0 if t has gone.
func (b *memoryBus) append(t *topic, p Publication, keep Retention) (at Position, ticket uint64, victims []*topic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return at, 0, nil
	}
	if keep.Size > 0 {
		st := b.streamOf(t)
		at = st.add(p, keep, b.config.Clock.Now())
		for st.bytes > b.config.HistoryBytes {
			st.drop()
		}
		p.Position = at
		victims = b.shelf.touch(t, st.bytes)
	}
	t.published++
	t.waiting = append(t.waiting, p)
	return at, t.published, victims
}

// deliver returns when the publication of that ticket has been delivered, by this call or by
// another for it, or false if the bus was closed before.
func (t *topic) deliver(ticket uint64) bool {
	t.order.Lock()
	defer t.order.Unlock()
	if t.delivered >= ticket {
		return true
	}
	t.mu.Lock()
	closed := t.gone
	t.batch, t.waiting = t.waiting, t.batch[:0]
	t.delivered = t.published
	t.mu.Unlock()
	if closed {
		return false
	}
	for _, r := range t.receivers {
		r.Receive(t.name, t.batch)
	}
	clear(t.batch)
	t.batch = shrunk(t.batch)
	return true
}

func (b *memoryBus) Subscribe(channel string, r Receiver) error {
	for {
		t, err := b.topic(channel, true)
		if err != nil {
			return err
		}
		done, err := t.listen(r)
		if done {
			return err
		}
	}
}

// listen adds r, unless the topic has gone meanwhile: then it is not done.
func (t *topic) listen(r Receiver) (done bool, err error) {
	t.order.Lock()
	defer t.order.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.gone:
		return false, nil
	case slices.Contains(t.receivers, r):
		return true, ErrSubscribed
	}
	t.receivers = append(t.receivers, r)
	t.listened = true
	return true, nil
}

// topic returns that of channel, made if need be and asked for; else it may be nil, without an
// error.
func (b *memoryBus) topic(channel string, create bool) (*topic, error) {
	s := &b.shards[b.shard(channel)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrBusClosed
	}
	t := s.topics[channel]
	if t == nil && create {
		t = &topic{name: channel}
		s.topics[channel] = t
	}
	return t, nil
}

func (b *memoryBus) Unsubscribe(channel string, r Receiver) {
	t, err := b.topic(channel, false)
	if t == nil || err != nil {
		return
	}
	t.order.Lock()
	if i := slices.Index(t.receivers, r); i >= 0 {
		t.receivers = slices.Delete(t.receivers, i, i+1)
	}
	t.mu.Lock()
	t.listened = len(t.receivers) > 0
	var victims []*topic
	if !t.listened && t.stream != nil {
		victims = b.shelf.touch(t, t.stream.bytes) // its history may have been lost while it was listened to
	}
	t.mu.Unlock()
	t.order.Unlock()
	b.evict(victims)
	b.sweep(t)
}

// sweep removes a topic that has neither receivers nor a history, unless that has changed
// meanwhile.
func (b *memoryBus) sweep(t *topic) {
	s := &b.shards[b.shard(t.name)]
	s.mu.Lock()
	defer s.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listened || t.stream != nil || t.gone || len(t.waiting) > 0 {
		return
	}
	t.gone = true
	delete(s.topics, t.name)
}

func (b *memoryBus) Announce(ctx context.Context, channel string, n Notice) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.ask(channel, func(r Receiver) { r.Notice(channel, n) })
}

func (b *memoryBus) Present(ctx context.Context, channel string) (list []ClientInfo, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = b.ask(channel, func(r Receiver) { list = r.Present(channel, list) })
	return list, err
}

// ask calls f for every receiver of the channel.
func (b *memoryBus) ask(channel string, f func(Receiver)) error {
	t, err := b.topic(channel, false)
	if t == nil || err != nil {
		return err
	}
	t.order.Lock()
	defer t.order.Unlock()
	for _, r := range t.receivers {
		f(r)
	}
	return nil
}

func (b *memoryBus) Close() error {
	b.timerMu.Lock()
	b.closed = true
	if b.stopTimer != nil {
		b.stopTimer()
	}
	b.timerMu.Unlock()
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		topics := s.topics
		s.topics, s.closed = nil, true
		s.mu.Unlock()
		for _, t := range topics {
			t.close()
		}
	}
	return nil
}

// close waits for a Receive that is under way.
func (t *topic) close() {
	t.order.Lock()
	defer t.order.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.receivers, t.stream, t.gone, t.listened = nil, nil, true, false
}

func (b *memoryBus) shard(channel string) uint64 {
	return maphash.String(b.seed, channel) % memoryShards
}

// sweepEvery is how often publications that are too old are removed where nobody publishes or asks.
// Until then nobody sees them, but they take memory.
const sweepEvery = 10 * time.Second

// newEpoch names a life of a history. It also sees to it that old publications are swept from now
// on.
func (b *memoryBus) newEpoch() string {
	b.timerMu.Lock()
	if b.stopTimer == nil && !b.closed {
		b.stopTimer = b.config.Clock.AfterFunc(sweepEvery, b.sweepOld)
	}
	b.timerMu.Unlock()
	var id [4]byte
	b.epochs.Lock()
	defer b.epochs.Unlock()
	if _, err := io.ReadFull(b.config.Random, id[:]); err != nil {
		panic("push: no randomness for epochs: " + err.Error())
	}
	return hex.EncodeToString(id[:])
}

// sweepOld drops what is too old, and comes back later.
func (b *memoryBus) sweepOld() {
	for _, t := range b.shelf.all() {
		b.expire(t)
	}
	b.timerMu.Lock()
	defer b.timerMu.Unlock()
	if !b.closed {
		b.stopTimer = b.config.Clock.AfterFunc(sweepEvery, b.sweepOld)
	}
}
