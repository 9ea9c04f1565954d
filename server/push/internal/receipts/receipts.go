// Package receipts makes a publication once, however often its publisher sends it:
//
//	at, err := table.Once(ctx, channel, id, clock.Now, func() (Position, error) { return publish() })
package receipts

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"
)

// Window is how long an id is remembered, from its first use: as long as in Centrifugo.
const Window = 5 * time.Minute

// A Table remembers the publications that had an id, so that a publisher without an answer can send
// again. V is the result of a publication. It holds at most Most ids; above that it forgets the
// oldest. Any goroutine may call it. The zero value with Most is ready for use.
type Table[V any] struct {
	Most int

	mu       sync.Mutex
	known    map[key]*receipt[V]
	queue    []*receipt[V] // oldest first; some are no longer in the map
	underWay int
	idle     chan struct{} // closed when none is under way; nil: WaitIdle does not wait
}

// A key is a hash of a channel and an id.
type key [16]byte

// A receipt is one use of an id.
type receipt[V any] struct {
	key    key
	ends   int64         // nanoseconds since 1970
	done   chan struct{} // closed when the publication has succeeded or failed; nil after success
	result V
}

func keyOf(channel, id string) (k key) {
	sum := sha256.Sum256([]byte(channel + "\x00" + id)) // no channel has a control character in its name
	copy(k[:], sum[:])
	return k
}

// Once calls publish, unless it has succeeded with the same channel and id within Window. In that
// case it returns the result of the earlier call. While another call is running, it waits for that
// one until ctx ends.
func (t *Table[V]) Once(ctx context.Context, channel, id string, now func() time.Time,
	publish func() (V, error)) (V, error) {
	for k := keyOf(channel, id); ; {
		mine, underWay, earlier := t.take(k, now())
		switch {
		case mine != nil:
			result, err := publish()
			t.settle(mine, result, err)
			return result, err
		case underWay == nil:
			return earlier, nil
		}
		select {
		case <-underWay: // the first use has succeeded or failed
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
	}
}

// take returns a new receipt for the first use of a key; the caller must then call settle. For a
// later use, mine is nil: if underWay is not nil, the caller waits for it, because the first use is
// running. Else earlier is the first use's result.
func (t *Table[V]) take(k key, now time.Time) (mine *receipt[V], underWay <-chan struct{}, earlier V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now)
	if other := t.known[k]; other != nil {
		return nil, other.done, other.result
	}
	if len(t.queue) >= t.Most {
		t.pop()
	}
	mine = &receipt[V]{key: k, ends: now.Add(Window).UnixNano(), done: make(chan struct{})}
	t.add(mine)
	t.underWay++
	return mine, mine.done, earlier
}

// add makes r the newest. The caller holds mu.
func (t *Table[V]) add(r *receipt[V]) {
	if t.known == nil {
		t.known = make(map[key]*receipt[V])
	}
	t.known[r.key] = r
	t.queue = append(t.queue, r)
}

// settle records the result. After an error the id can be used again.
func (t *Table[V]) settle(mine *receipt[V], result V, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine.result = result
	close(mine.done)
	mine.done = nil
	if err != nil && t.known[mine.key] == mine {
		delete(t.known, mine.key)
	}
	if t.underWay--; t.underWay == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// WaitIdle returns when no publication is under way: each has a result, or has failed. It returns
// ctx's error if that ends before.
func (t *Table[V]) WaitIdle(ctx context.Context) error {
	t.mu.Lock()
	if t.underWay == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A Receipt is the result of a publication that had an id, for another Table.
type Receipt[V any] struct {
	Key    [16]byte // of its channel and id
	Ends   int64    // when it is forgotten, in nanoseconds since 1970
	Result V
}

// Receipts returns the receipts of publications that have succeeded, the oldest first.
func (t *Table[V]) Receipts() []Receipt[V] {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Receipt[V], 0, len(t.known))
	for _, r := range t.queue {
		if t.known[r.key] == r && r.done == nil {
			list = append(list, Receipt[V]{r.key, r.ends, r.result})
		}
	}
	return list
}

// Restore adds a receipt of another Table, as the newest. Above Most it forgets the oldest. It
// returns false, and adds nothing, for a Key that the table has.
func (t *Table[V]) Restore(r Receipt[V]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[r.Key] != nil {
		return false
	}
	if len(t.queue) >= t.Most {
		t.pop()
	}
	t.add(&receipt[V]{key: r.Key, ends: r.Ends, result: r.Result})
	return true
}

// Sweep forgets the ids that have expired.
func (t *Table[V]) Sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now)
}

// Len returns the number of ids that take memory.
func (t *Table[V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}

// The caller of forget and pop holds mu.
func (t *Table[V]) forget(now time.Time) {
	for len(t.queue) > 0 && t.queue[0].ends <= now.UnixNano() {
		t.pop()
	}
}

func (t *Table[V]) pop() {
	oldest := t.queue[0]
	t.queue[0] = nil
	t.queue = t.queue[1:]
	if t.known[oldest.key] == oldest {
		delete(t.known, oldest.key)
	}
}
