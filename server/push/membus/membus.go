// Package membus is a bus for servers of one process. A push server without Config.Bus makes one of
// its own. A program that has several servers with the same channels makes one for all of them, and
// closes it after them:
//
//	shared := membus.New(membus.Config{})
//	first, err := push.New(push.Config{Bus: shared, Doors: doors.All(doors.Config{})})
//	second, err := push.New(push.Config{Bus: shared, Doors: doors.All(doors.Config{})})
//	…
//	err = errors.Join(first.Shutdown(ctx), second.Shutdown(ctx), shared.Close())
//
// membus.go delivers publications to receivers, history.go keeps the histories of channels within
// their limits, stream.go is the history of one channel. freeze.go stops a bus, and state.go writes
// all that it has for the bus of another process.
package membus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/receipts"
)

// Config bounds the histories of a Bus. The zero value works.
type Config struct {
	HistoryBytes    int // of all histories together; the least recently used go first. Default: 256 MB
	HistoryChannels int // channels with a history; likewise. Default: 100,000
	IdempotencyKeys int // publications whose ID is remembered; the oldest are forgotten first. Default: 100,000
	// Clock and Random are for simulation. Default: the system's. Epochs are read from Random,
	// under a lock.
	Clock  Clock
	Random io.Reader
}

// The defaults of a Config, which are those of push.Limits.
const (
	DefaultHistoryBytes    = 256 << 20
	DefaultHistoryChannels = 100_000
	DefaultIdempotencyKeys = 100_000
)

func (c Config) withDefaults() Config {
	for _, limit := range []struct {
		field *int
		value int
	}{
		{&c.HistoryBytes, DefaultHistoryBytes},
		{&c.HistoryChannels, DefaultHistoryChannels},
		{&c.IdempotencyKeys, DefaultIdempotencyKeys},
	} {
		if *limit.field <= 0 {
			*limit.field = limit.value
		}
	}
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	return c
}

// New returns a bus. Publish calls the receivers and returns when they have returned, so the bus
// has no queue. Publications that wait for the same channel are delivered together. Several nodes
// may share a bus: their Shutdown leaves it open, and its maker closes it when all have ended.
// Histories end with the process.
func New(c Config) *Bus {
	c = c.withDefaults()
	b := &Bus{config: c, seed: maphash.MakeSeed()}
	b.receipts.Most = c.IdempotencyKeys
	for i := range b.shards {
		b.shards[i].topics = make(map[string]*topic)
	}
	b.lru.init(c.HistoryBytes, c.HistoryChannels)
	return b
}

const shards = 32

// A Bus is a bus.Local: it implements the contract of bus.Bus within this process, and can be
// tapped.
//
// Locks are taken in this order: a topic's order, a shard's, a topic's mu, the lru's. Receivers are
// called with order held.
type Bus struct {
	config Config
	seed   maphash.Seed
	shards [shards]struct {
		mu     sync.Mutex // held for look-ups only, never while receivers run
		topics map[string]*topic
		closed bool
		frozen bool // its topics are: see Freeze
	}
	lru    lru
	frozen freeze

	// taps are called with all publications, as the receivers of a topic that each of them has.
	// tapsMu is held to change the list.
	taps   atomic.Pointer[[]*tap]
	tapsMu sync.Mutex

	receipts receipts.Table[bus.Position]

	epochs sync.Mutex // guards config.Random

	askMu     sync.Mutex
	served    map[string][]*service
	askClosed bool

	timerMu   sync.Mutex
	stopTimer func() bool // nil: no sweep is planned
	closed    bool
}

// A topic is a channel that has receivers, or a history.
type topic struct {
	name string

	order     sync.Mutex // held while receivers run: gives all of them one order, and makes Unsubscribe wait
	receivers []bus.Receiver
	delivered uint64            // number of publications delivered
	epoch     string            // of the last one delivered that has a position, or of a history that was read
	batch     []bus.Publication // publications being delivered

	mu           sync.Mutex
	removed      bool // no longer in the map: look up the channel again
	frozen       bool // nothing is published or read: look up the channel again
	tapped       bool // taps run with its publications: sweep leaves it, so that they keep their order
	hasReceivers bool // receivers is not empty, or expected is set
	expected     bool // the receivers that it had in another process have not come yet: see Restore
	published    uint64
	waiting      []bus.Publication // the next holder of order delivers them
	stream       *stream           // nil without a history

	entry lruEntry // belongs to the lru
}

func (b *Bus) Publish(ctx context.Context, t bus.Topic, p bus.Publication) (bus.Position, error) {
	if p.ID != "" {
		b.startSweeps()
	}
	for {
		at, err := b.publishOnce(ctx, t, p)
		if err != errFrozen {
			return at, err
		}
		if err := b.waitThaw(ctx); err != nil {
			return bus.Position{}, err
		}
	}
}

// publishOnce returns errFrozen if the bus is frozen. Then it has published nothing.
func (b *Bus) publishOnce(ctx context.Context, t bus.Topic, p bus.Publication) (bus.Position, error) {
	if p.ID == "" {
		return b.publish(ctx, t, p)
	}
	return b.receipts.Once(ctx, t.Name, p.ID, b.config.Clock.Now, func() (bus.Position, error) {
		return b.publish(ctx, t, p)
	})
}

func (b *Bus) publish(ctx context.Context, to bus.Topic, p bus.Publication) (bus.Position, error) {
	if err := ctx.Err(); err != nil {
		return bus.Position{}, err
	}
	if p.Version != nil && to.Keep.Size <= 0 {
		return bus.Position{}, bus.ErrNoHistory
	}
	tapped := len(b.tapped()) > 0
	for {
		t, err := b.usable(to.Name, to.Keep.Size > 0 || tapped)
		if t == nil {
			return bus.Position{}, err
		}
		at, ticket, victims, dropped := b.append(t, p, to.Keep)
		if dropped == errRemoved {
			continue
		}
		b.evict(victims)
		if !t.deliver(ticket, b) {
			return bus.Position{}, bus.ErrClosed
		}
		if tapped {
			b.sweep(t)
		}
		return at, dropped
	}
}

// A tap is called with the publications of a topic, after its receivers.
type tap struct {
	receive func(channel string, list []bus.Publication)
}

// tapped returns the taps.
func (b *Bus) tapped() []*tap {
	if list := b.taps.Load(); list != nil {
		return *list
	}
	return nil
}

// Tap has f called with the publications of all channels, as bus.Local says.
func (b *Bus) Tap(f func(channel string, list []bus.Publication)) (stop func()) {
	t := &tap{f}
	b.tapsMu.Lock()
	defer b.tapsMu.Unlock()
	list := append(slices.Clone(b.tapped()), t)
	b.taps.Store(&list)
	return func() { b.removeTap(t) }
}

// removeTap undoes Tap. A publication that has begun may still reach t.
func (b *Bus) removeTap(t *tap) {
	b.tapsMu.Lock()
	defer b.tapsMu.Unlock()
	list := slices.DeleteFunc(slices.Clone(b.tapped()), func(other *tap) bool { return other == t })
	b.taps.Store(&list)
}

// errRemoved says that a topic was removed, or is frozen: look up the channel again.
var errRemoved = errors.New("membus: the topic was removed")

// append adds p to the history and to the publications that wait for delivery. dropped is
// errRemoved, or bus.ErrOutdated; then ticket is that of the last publication.
func (b *Bus) append(t *topic, p bus.Publication, keep bus.Retention) (at bus.Position, ticket uint64, victims []*topic,
	dropped error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.removed || t.frozen {
		return at, 0, nil, errRemoved
	}
	p.Position = bus.Position{}
	if keep.Size > 0 {
		st := b.streamOf(t, keep)
		if p.Version != nil && !p.Version.After(st.last) {
			return bus.Position{Offset: st.top, Epoch: st.epoch}, t.published, nil, bus.ErrOutdated
		}
		at = st.add(p, b.config.Clock.Now())
		for st.bytes > b.config.HistoryBytes {
			st.drop()
		}
		p.Position = at
		victims = b.lru.touch(t, st.bytes)
	}
	t.published++
	p.Version = nil
	t.waiting = append(t.waiting, p)
	return at, t.published, victims, nil
}

// deliver returns true when the publication with that ticket has been delivered, by this call or
// another. It returns false if the bus was closed before.
func (t *topic) deliver(ticket uint64, b *Bus) bool {
	t.order.Lock()
	defer t.order.Unlock()
	return t.delivered >= ticket || t.deliverAll(b)
}

// deliverAll delivers everything that waits. It returns false if the bus was closed. The caller
// holds order.
func (t *topic) deliverAll(b *Bus) bool {
	t.mu.Lock()
	closed := t.removed
	t.batch, t.waiting = t.waiting, t.batch[:0]
	t.delivered = t.published
	taps := b.tapped() // one that was added before a publication gets it
	t.tapped = len(taps) > 0
	t.mu.Unlock()
	if closed {
		return false
	}
	list := t.batch
	for i, p := range list {
		if p.Epoch == "" || p.Epoch == t.epoch {
			continue
		}
		if t.epoch != "" { // a Publish with another Retention has begun it
			t.receive(list[:i])
			list = t.batch[i:]
			for _, r := range t.receivers {
				r.Lost(t.name)
			}
		}
		t.epoch = p.Epoch
	}
	t.receive(list)
	for _, one := range taps {
		if len(t.batch) > 0 {
			one.receive(t.name, t.batch)
		}
	}
	if len(taps) > 0 {
		t.mu.Lock()
		t.tapped = false
		t.mu.Unlock()
	}
	clear(t.batch)
	if size := cap(t.batch); size > 64 && len(t.batch) <= size/4 { // after a burst
		t.batch = make([]bus.Publication, 0, size/2)
	}
	return true
}

func (t *topic) receive(list []bus.Publication) {
	if len(list) == 0 {
		return
	}
	for _, r := range t.receivers {
		r.Receive(t.name, list)
	}
}

func (b *Bus) Subscribe(ctx context.Context, to bus.Topic, r bus.Receiver) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		t, err := b.topic(to.Name, true)
		if err != nil {
			return err
		}
		done, err := t.listen(r)
		if done {
			return err
		}
	}
}

// listen adds r. It is not done if the topic was removed meanwhile.
func (t *topic) listen(r bus.Receiver) (done bool, err error) {
	t.order.Lock()
	defer t.order.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.removed:
		return false, nil
	case slices.Contains(t.receivers, r):
		return true, bus.ErrSubscribed
	}
	t.receivers = append(t.receivers, r)
	t.hasReceivers, t.expected = true, false
	return true, nil
}

// topic returns the topic of channel, which may be frozen. If there is none, it creates one, or
// without create returns nil and no error.
func (b *Bus) topic(channel string, create bool) (*topic, error) {
	return b.find(channel, create, true)
}

// usable is topic for calls that wait while the bus is frozen: it returns errFrozen then.
func (b *Bus) usable(channel string, create bool) (*topic, error) {
	return b.find(channel, create, false)
}

func (b *Bus) find(channel string, create, frozen bool) (*topic, error) {
	s := &b.shards[b.shard(channel)]
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, bus.ErrClosed
	case s.frozen && !frozen:
		return nil, errFrozen
	}
	t := s.topics[channel]
	if t == nil && create {
		t = &topic{name: channel, frozen: s.frozen}
		s.topics[channel] = t
	}
	return t, nil
}

func (b *Bus) Unsubscribe(channel string, r bus.Receiver) {
	t, err := b.topic(channel, false)
	if t == nil || err != nil {
		return
	}
	t.order.Lock()
	if i := slices.Index(t.receivers, r); i >= 0 {
		t.receivers = slices.Delete(t.receivers, i, i+1)
	}
	t.mu.Lock()
	t.hasReceivers = len(t.receivers) > 0
	t.mu.Unlock()
	t.order.Unlock()
	b.keepPosition(t)
}

// keepPosition keeps the history of a topic that has lost its receivers, or removes the topic.
func (b *Bus) keepPosition(t *topic) {
	t.mu.Lock()
	var victims []*topic
	if !t.hasReceivers && t.stream != nil {
		victims = b.lru.touch(t, t.stream.bytes) // the LRU may have evicted its history while it had receivers
	}
	t.mu.Unlock()
	b.evict(victims)
	b.sweep(t)
}

// sweep removes a topic that has neither receivers nor a history nor waiting publications.
func (b *Bus) sweep(t *topic) {
	s := &b.shards[b.shard(t.name)]
	s.mu.Lock()
	defer s.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hasReceivers || t.stream != nil || t.removed || t.tapped || len(t.waiting) > 0 {
		return
	}
	t.removed = true
	delete(s.topics, t.name)
}

func (b *Bus) Announce(ctx context.Context, channel string, n bus.Notice) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := b.tell(channel, func(r bus.Receiver) { r.Notice(channel, n) })
	if err == errFrozen { // a notice may be lost, and its caller may be a loop, which cannot wait
		return nil
	}
	return err
}

func (b *Bus) Present(ctx context.Context, channel string, limit int) (bus.Presence, error) {
	if err := ctx.Err(); err != nil {
		return bus.Presence{}, err
	}
	for {
		var list []bus.ClientInfo
		err := b.tell(channel, func(r bus.Receiver) { list = r.Present(channel, list) })
		if err != errFrozen {
			return presenceOf(list, limit), err
		}
		if err := b.waitThaw(ctx); err != nil {
			return bus.Presence{}, err
		}
	}
}

// presenceOf returns the numbers of a complete list, and its first clients.
func presenceOf(list []bus.ClientInfo, limit int) bus.Presence {
	users := make(map[string]struct{})
	for _, info := range list {
		users[info.User] = struct{}{}
	}
	return bus.Presence{Clients: list[:min(limit, len(list))], Count: len(list), Users: len(users)}
}

// A service answers questions of one kind for one node.
type service struct{ answer func(body []byte) []byte }

func (b *Bus) Serve(kind string, f func(body []byte) []byte) (stop func()) {
	b.askMu.Lock()
	defer b.askMu.Unlock()
	if b.served == nil {
		b.served = make(map[string][]*service)
	}
	one := &service{f}
	b.served[kind] = append(b.served[kind], one)
	return func() {
		b.askMu.Lock()
		defer b.askMu.Unlock()
		// a copy, because Ask may be walking the list
		b.served[kind] = slices.DeleteFunc(slices.Clone(b.served[kind]), func(s *service) bool { return s == one })
	}
}

func (b *Bus) Ask(ctx context.Context, kind string, body []byte, each func(answer []byte)) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.askMu.Lock()
	served, closed := b.served[kind], b.askClosed
	b.askMu.Unlock()
	if closed {
		return nil, bus.ErrClosed
	}
	for _, s := range served {
		each(s.answer(body))
	}
	return nil, nil
}

func (b *Bus) State() bus.State { return bus.State{} }

// tell calls f for every receiver of the channel. It returns errFrozen if the bus is frozen.
func (b *Bus) tell(channel string, f func(bus.Receiver)) error {
	t, err := b.usable(channel, false)
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

func (b *Bus) Close() error {
	b.timerMu.Lock()
	b.closed = true
	if b.stopTimer != nil {
		b.stopTimer()
	}
	b.timerMu.Unlock()
	b.askMu.Lock()
	b.askClosed = true
	b.askMu.Unlock()
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
	b.frozen.end() // calls that wait find that the bus is closed
	return nil
}

// close waits for a running Receive, then removes receivers and history.
func (t *topic) close() {
	t.order.Lock()
	defer t.order.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.receivers, t.stream, t.removed, t.hasReceivers = nil, nil, true, false
}

func (b *Bus) shard(channel string) uint64 {
	return maphash.String(b.seed, channel) % shards
}

// sweepEvery is how often expired publications are removed from idle channels, and expired ids.
// Before that no query returns them, but they take memory.
const sweepEvery = 10 * time.Second

// startSweeps starts the sweeps of what is old, at the first use.
func (b *Bus) startSweeps() {
	b.timerMu.Lock()
	defer b.timerMu.Unlock()
	if b.stopTimer == nil && !b.closed {
		b.stopTimer = b.config.Clock.AfterFunc(sweepEvery, b.sweepOld)
	}
}

// newEpoch returns a random name for an epoch. The caller sweeps from now on.
func (b *Bus) newEpoch() string {
	b.startSweeps()
	var id [4]byte
	b.epochs.Lock()
	defer b.epochs.Unlock()
	if _, err := io.ReadFull(b.config.Random, id[:]); err != nil {
		panic("push: no randomness for epochs: " + err.Error())
	}
	return hex.EncodeToString(id[:])
}

// sweepOld removes expired publications and ids, and schedules itself again.
func (b *Bus) sweepOld() {
	b.receipts.Sweep(b.config.Clock.Now())
	for _, t := range b.lru.all() {
		b.expire(t)
	}
	b.timerMu.Lock()
	defer b.timerMu.Unlock()
	if !b.closed {
		b.stopTimer = b.config.Clock.AfterFunc(sweepEvery, b.sweepOld)
	}
}
