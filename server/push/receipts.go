package push

import (
	"crypto/sha256"
	"sync"
	"time"
)

// idempotencyWindow is how long an idempotency key is remembered, from its first use: as long as in
// Centrifugo.
const idempotencyWindow = 5 * time.Minute

// receipts remembers the publications that had an idempotency key, so that a publisher without an
// answer can send again. It holds at most `most` keys; above that it forgets the oldest. Any
// goroutine may call it.
type receipts struct {
	most int

	mu    sync.Mutex
	known map[receiptID]*receipt
	queue []*receipt // oldest first; some are no longer in the map
}

// A receiptID is a hash of a channel and a key.
type receiptID [16]byte

// A receipt is one use of a key.
type receipt struct {
	id   receiptID
	ends int64         // nanoseconds since 1970
	done chan struct{} // closed when the publication has succeeded or failed; nil after success
	at   Position
}

func receiptKey(channel, key string) (id receiptID) {
	sum := sha256.Sum256([]byte(channel + "\x00" + key)) // no channel has a control character in its name
	copy(id[:], sum[:])
	return id
}

// take returns a new receipt for the first use of a key; the caller must then call keep or drop.
// For a later use, mine is nil. underWay is then the channel to wait for while the first use is
// running; if it is nil, at is the publication's position.
func (r *receipts) take(id receiptID, now time.Time) (mine *receipt, underWay <-chan struct{}, at Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	if other := r.known[id]; other != nil {
		return nil, other.done, other.at
	}
	if len(r.queue) >= r.most {
		r.pop()
	}
	mine = &receipt{id: id, ends: now.Add(idempotencyWindow).UnixNano(), done: make(chan struct{})}
	if r.known == nil {
		r.known = make(map[receiptID]*receipt)
	}
	r.known[id] = mine
	r.queue = append(r.queue, mine)
	return mine, mine.done, at
}

// keep records that the publication succeeded.
func (r *receipts) keep(mine *receipt, at Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mine.at = at
	close(mine.done)
	mine.done = nil
}

// drop records that the publication failed, so that the key can be used again.
func (r *receipts) drop(mine *receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(mine.done)
	mine.done = nil
	if r.known[mine.id] == mine {
		delete(r.known, mine.id)
	}
}

// sweep forgets the keys that have expired.
func (r *receipts) sweep(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
}

func (r *receipts) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue)
}

// The caller of forget and pop holds mu.
func (r *receipts) forget(now time.Time) {
	for len(r.queue) > 0 && r.queue[0].ends <= now.UnixNano() {
		r.pop()
	}
}

func (r *receipts) pop() {
	oldest := r.queue[0]
	r.queue[0] = nil
	r.queue = r.queue[1:]
	if r.known[oldest.id] == oldest {
		delete(r.known, oldest.id)
	}
}
