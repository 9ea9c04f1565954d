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

	// keyTurn is how many tasks of one key run before its lane goes to the end of the pool's queue,
	// behind the other keys.
	keyTurn = 16
	// keptKeys is for how many keys a shard that has none keeps its table.
	keptKeys = 64
)

// KeyedConfig limits a Keyed. Its zero value works.
type KeyedConfig struct {
	// Backlog is the most tasks of one key that wait for the one before. When it is full, TryGo
	// refuses and Go waits. 0: 128.
	Backlog int
}

// Keyed runs the tasks of one key one at a time and in the order in which they were accepted, and
// those of different keys at the same time. A key with nothing to do costs nothing, and no key has
// a goroutine: what runs on the pool is the key's lane, which has one place in the pool's queue
// whatever its backlog. So at most as many keys are busy as the pool has places and workers, and
// each has at most Backlog tasks waiting. A key that is not equal to itself, a NaN, is a new one in
// each call, and Stats does not count it.
//
// Its methods are safe for use by any goroutine. There is nothing to close: the pool's Close runs
// what is accepted.
type Keyed[K comparable] struct {
	pool    *Pool
	backlog int
	seed    maphash.Seed
	shards  [keyShards]keyShard[K]
}

// A keyShard has the lanes of some of the keys. Its lock is taken before the pool's.
type keyShard[K comparable] struct {
	mu    sync.Mutex
	lanes map[K]*lane[K] // of the keys that have something to do
	most  int            // lanes since the table was made
}

// NewKeyed returns a Keyed whose tasks run on the pool. It panics on a negative number.
func NewKeyed[K comparable](p *Pool, c KeyedConfig) *Keyed[K] {
	if c.Backlog < 0 {
		panic(fmt.Sprintf("workers: KeyedConfig{Backlog: %d}: use 0 for the default, not a negative number", c.Backlog))
	}
	return &Keyed[K]{pool: p, backlog: or(c.Backlog, DefaultBacklog), seed: maphash.MakeSeed()}
}

// A Key is one key's entrance, for what wants an Executor. It is a value of two words and the key,
// made on the spot.
type Key[K comparable] struct {
	keyed *Keyed[K]
	key   K
}

// Key returns the entrance of a key.
func (k *Keyed[K]) Key(key K) Key[K] { return Key[K]{k, key} }

// Go is Keyed.Go for the key.
func (e Key[K]) Go(ctx context.Context, f func()) error { return e.keyed.Go(ctx, e.key, f) }

func (e Key[K]) caught() { e.keyed.pool.caught() }

// TryGo hands f to the key's lane and says whether it did. It refuses if the pool is closed, if
// somebody waits for room, if the backlog is full or, for a key with nothing to do, the pool's
// queue. It never blocks.
func (k *Keyed[K]) TryGo(key K, f func()) bool {
	mustTask(f)
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[key]
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

// Go hands f to the key's lane. It waits for room in the backlog and in the pool until ctx ends,
// for each key first come first served. A nil error means that f is accepted and will run; with
// ErrClosed or the context's cause it will not.
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
	l := s.lanes[key]
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

// KeyedStats are the counters of a Keyed. The pool's count a turn of a key, of up to 16 tasks, as
// one task.
type KeyedStats struct {
	Keys    int // keys that have something to do
	Queued  int // their tasks that wait; those that run are not among them
	Waiting int // calls of Go that wait for room behind other tasks of their key
}

// Stats adds the counters up, which takes as long as there are busy keys; they change meanwhile.
func (k *Keyed[K]) Stats() KeyedStats {
	var sum KeyedStats
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		sum.Keys += len(s.lanes)
		for _, l := range s.lanes {
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

// open makes the lane of a key that has none. From here on, what is named so runs under the shard's
// lock unless it says otherwise.
func (k *Keyed[K]) open(s *keyShard[K], key K) *lane[K] {
	l := &lane[K]{keyed: k, shard: s, key: key}
	l.turn = l.run
	if s.lanes == nil {
		s.lanes = map[K]*lane[K]{}
	}
	if same := key; same == key { // a NaN would never be found in the table again, not even to be taken out
		s.lanes[key] = l
		s.most = max(s.most, len(s.lanes))
	}
	return l
}
