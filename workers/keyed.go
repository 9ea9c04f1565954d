package workers

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
)

// DefaultBacklog is KeyedConfig.Backlog if that is 0.
const DefaultBacklog = 128

const (
	keyShards = 256 // a power of two

	// keySlice is how many tasks of one key run before the key goes to the end of the pool's queue,
	// behind the other keys.
	keySlice = 16
	// keptKeys is the largest table, in keys, that a shard without keys keeps.
	keptKeys = 64
)

// KeyedConfig configures a Keyed. The zero value works.
type KeyedConfig struct {
	// Backlog is how many tasks of one key may wait. At the limit TryGo refuses, and Go waits. 0:
	// 128.
	Backlog int
}

// Keyed runs the tasks of one key one at a time, in the order in which they were accepted. Tasks of
// different keys run concurrently. An idle key uses no memory, and no key has a goroutine. A busy
// key takes one place in the pool's queue, for any backlog. So the pool's places and workers bound
// the number of busy keys, and each key has at most Backlog waiting tasks. A key that is not equal
// to itself, such as a NaN, is a new key in each call; Stats does not count it.
//
// Any goroutine may call its methods. A Keyed needs no Close: the pool's Close runs its accepted
// tasks.
type Keyed[K comparable] struct {
	pool    *Pool
	backlog int
	seed    maphash.Seed
	shards  [keyShards]keyShard[K]
}

// A keyShard holds the queues of some of the keys. Its lock is taken before the pool's.
type keyShard[K comparable] struct {
	mu     sync.Mutex
	queues map[K]*keyQueue[K] // of busy keys
	most   int                // the most queues since the table was made
}

// NewKeyed returns a Keyed whose tasks run on the pool. It panics on a negative number.
func NewKeyed[K comparable](p *Pool, c KeyedConfig) *Keyed[K] {
	if c.Backlog < 0 {
		panic(fmt.Sprintf("workers: KeyedConfig{Backlog: %d}: use 0 for the default, not a negative number", c.Backlog))
	}
	return &Keyed[K]{pool: p, backlog: or(c.Backlog, DefaultBacklog), seed: maphash.MakeSeed()}
}

// A Key is one key of a Keyed as an Executor. It is a small value.
type Key[K comparable] struct {
	keyed *Keyed[K]
	key   K
}

// Key returns key as an Executor.
func (k *Keyed[K]) Key(key K) Key[K] { return Key[K]{k, key} }

// Go calls Keyed.Go for the key.
func (e Key[K]) Go(ctx context.Context, f func()) error { return e.keyed.Go(ctx, e.key, f) }

// TryGo calls Keyed.TryGo for the key.
func (e Key[K]) TryGo(f func()) bool { return e.keyed.TryGo(e.key, f) }

func (e Key[K]) caught() { e.keyed.pool.caught() }

// TryGo submits f and reports whether it was accepted. It refuses if the pool is closed, if calls
// of Go wait for room, if the backlog is full, or if the key is idle and the pool's queue is full.
// It never blocks.
func (k *Keyed[K]) TryGo(key K, f func()) bool {
	mustTask(f)
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.queues[key]
	if l == nil {
		l = k.open(s, key)
		if l.start(f) {
			return true
		}
		l.withdraw()
		return false
	}
	if l.room() == 0 || k.pool.closed.Load() {
		return false
	}
	l.tasks.push(f)
	return true
}

// Go submits f. It waits for room in the backlog and in the pool until ctx ends; for each key,
// calls are accepted in order. A nil error means that f was accepted and will run. With ErrClosed
// or the context's cause, f will not run.
func (k *Keyed[K]) Go(ctx context.Context, key K, f func()) error {
	mustTask(f)
	if ctx.Err() != nil {
		return noRoom(ctx)
	}
	s := k.shard(key)
	s.mu.Lock()
	if k.pool.closed.Load() {
		s.mu.Unlock()
		return ErrClosed
	}
	l := s.queues[key]
	switch {
	case l == nil:
		l = k.open(s, key)
		l.offered = !l.start(f)
	case l.room() > 0:
		l.tasks.push(f)
	default:
		t := l.line.join(f)
		s.mu.Unlock()
		if err := l.line.wait(ctx, &s.mu, t); err != errOffered {
			return err
		}
		return l.wait(ctx)
	}
	offered := l.offered
	s.mu.Unlock()
	if offered {
		return l.wait(ctx)
	}
	return nil
}

// KeyedStats are the counters of a Keyed. The pool's counters count a slice of a key, up to 16
// tasks, as one task.
type KeyedStats struct {
	Keys    int // busy keys
	Queued  int // tasks that wait, without running ones
	Waiting int // calls of Go that wait behind other tasks of their key
}

// Stats adds the counters up. It takes time in proportion to the busy keys, and the counters change
// meanwhile.
func (k *Keyed[K]) Stats() KeyedStats {
	var sum KeyedStats
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		sum.Keys += len(s.queues)
		for _, l := range s.queues {
			sum.Queued += l.tasks.n
			sum.Waiting += l.line.n
		}
		s.mu.Unlock()
	}
	return sum
}

func (k *Keyed[K]) shard(key K) *keyShard[K] {
	return &k.shards[maphash.Comparable(k.seed, key)%keyShards]
}

// open creates the queue of an idle key. The functions below run under the shard's lock unless they
// say otherwise.
func (k *Keyed[K]) open(s *keyShard[K], key K) *keyQueue[K] {
	l := &keyQueue[K]{keyed: k, shard: s, key: key}
	l.runFunc = l.run
	if s.queues == nil {
		s.queues = map[K]*keyQueue[K]{}
	}
	if same := key; same == key { // a NaN could never be found in the table again, not even to be removed
		s.queues[key] = l
		s.most = max(s.most, len(s.queues))
	}
	return l
}
