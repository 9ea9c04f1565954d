package natsbus

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A registry holds the channels that have receivers on this node.
type registry struct {
	seed   maphash.Seed
	shards [64]struct {
		mu     sync.Mutex // held for look-ups only
		topics map[string]*topic
		closed bool
	}
}

// A topic is a channel with its receivers. Locks are taken in this order: a follower's work, a
// topic's order, a shard's mu, a progress's mu.
type topic struct {
	name string

	order     sync.Mutex // held while receivers run
	receivers []bus.Receiver
	removed   bool
	log       string // stream of the log that the last receiver that wants positions follows; or empty
	epoch     string // of the last position that the receivers may know
	one       [1]bus.Publication
}

func newRegistry() *registry {
	r := &registry{seed: maphash.MakeSeed()}
	for i := range r.shards {
		r.shards[i].topics = make(map[string]*topic)
	}
	return r
}

// find returns the topic of that name. If there is none it is nil, or with create a new one.
func (r *registry) find(name string, create bool) (*topic, error) {
	s := &r.shards[maphash.String(r.seed, name)%uint64(len(r.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, bus.ErrClosed
	}
	t := s.topics[name]
	if t == nil && create {
		t = &topic{name: name}
		s.topics[name] = t
	}
	return t, nil
}

// add makes r a receiver. joined runs with the topic's order held, if it was added.
func (r *registry) add(name string, receiver bus.Receiver, joined func(*topic)) error {
	for {
		t, err := r.find(name, true)
		if err != nil {
			return err
		}
		t.order.Lock()
		switch {
		case t.removed:
			t.order.Unlock()
			continue
		case slices.Contains(t.receivers, receiver):
			err = bus.ErrSubscribed
		default:
			t.receivers = append(t.receivers, receiver)
			joined(t)
		}
		t.order.Unlock()
		return err
	}
}

// remove returns when the receiver's last call has returned.
func (r *registry) remove(name string, receiver bus.Receiver) {
	t, _ := r.find(name, false)
	if t == nil {
		return
	}
	t.order.Lock()
	defer t.order.Unlock()
	if i := slices.Index(t.receivers, receiver); i >= 0 {
		t.receivers = slices.Delete(t.receivers, i, i+1)
	}
	if len(t.receivers) > 0 || t.removed {
		return
	}
	t.removed = true
	s := &r.shards[maphash.String(r.seed, name)%uint64(len(r.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.topics, name)
}

// receive calls the receivers with p, and first with Lost if p's epoch is another than the last.
// before runs with the order held, also if there is no receiver.
func (r *registry) receive(name string, p bus.Publication, before func()) {
	t, _ := r.find(name, false)
	if t == nil {
		before()
		return
	}
	t.order.Lock()
	defer t.order.Unlock()
	before()
	if p.Epoch != "" && p.Epoch != t.epoch {
		t.lost(p.Epoch)
	}
	t.deliver(p)
}

// deliver calls the receivers with p. The caller holds order.
func (t *topic) deliver(p bus.Publication) {
	t.one[0] = p
	for _, r := range t.receivers {
		r.Receive(t.name, t.one[:])
	}
	t.one[0] = bus.Publication{}
}

// publish sends p to the other nodes, and calls the receivers with it unless that fails. The order
// is held meanwhile, so that p has one order on this node.
func (r *registry) publish(name string, p bus.Publication, send func() error) error {
	t, err := r.find(name, false)
	if err != nil {
		return err
	}
	if t == nil {
		return send()
	}
	t.order.Lock()
	defer t.order.Unlock()
	if err := send(); err != nil {
		return err
	}
	t.deliver(p)
	return nil
}

// lost tells the receivers, unless they know no position yet. The caller holds order.
func (t *topic) lost(epoch string) {
	if t.epoch != "" {
		for _, r := range t.receivers {
			r.Lost(t.name)
		}
	}
	t.epoch = epoch
}

// lostLog tells all receivers of a log's channels that they have missed something. epoch is the
// log's now.
func (r *registry) lostLog(stream, epoch string) {
	r.each(func(t *topic) {
		if t.log == stream {
			t.lost(channelEpoch(epoch, t.name))
		}
	})
}

// barrier returns when a delivery that has begun has ended.
func (r *registry) barrier(name string) {
	if t, _ := r.find(name, false); t != nil {
		t.order.Lock()
		//lint:ignore SA2001 it only waits
		t.order.Unlock()
	}
}

// each calls f for every topic, with its order held.
func (r *registry) each(f func(*topic)) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		list := make([]*topic, 0, len(s.topics))
		for _, t := range s.topics {
			list = append(list, t)
		}
		s.mu.Unlock()
		for _, t := range list {
			t.order.Lock()
			if !t.removed {
				f(t)
			}
			t.order.Unlock()
		}
	}
}

// tell calls f for the receivers of one channel.
func (r *registry) tell(name string, f func(bus.Receiver)) {
	t, _ := r.find(name, false)
	if t == nil {
		return
	}
	t.order.Lock()
	defer t.order.Unlock()
	for _, r := range t.receivers {
		f(r)
	}
}

// close returns when all calls of receivers have returned. Nothing is delivered afterwards.
func (r *registry) close() {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		list := s.topics
		s.topics, s.closed = nil, true
		s.mu.Unlock()
		for _, t := range list {
			t.order.Lock()
			t.receivers, t.removed = nil, true
			t.order.Unlock()
		}
	}
}
