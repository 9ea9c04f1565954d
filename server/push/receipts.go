package push

import (
	"crypto/sha256"
	"sync"
	"time"
)

// idempotencyWindow is how long an idempotency key is remembered, from its first use: as long as in
// Centrifugo.
const idempotencyWindow = 5 * time.Minute

// receipts remember which publications with an idempotency key were made, so that a publisher that
// was not answered can send again. There are at most `most`; above that the oldest is forgotten
// before its time. Any goroutine.
type receipts struct {
	most int

	mu    sync.Mutex
	known map[receiptID]*receipt
	queue []*receipt // the oldest first; some are not known any more
}

// A receiptID is a hash of a channel and a key.
type receiptID [16]byte

// A receipt is one use of a key.
type receipt struct {
	id   receiptID
	ends int64         // nanoseconds since the epoch
	done chan struct{} // closed when the publication was made, or has failed; nil: it was made
	at   Position
}

func receiptKey(channel, key string) (id receiptID) {
	sum := sha256.Sum256([]byte(channel + "\x00" + key)) // no channel has a control character in its name
	copy(id[:], sum[:])
	return id
}

// take returns a new receipt for the first use of a key: keep or drop has to follow. For another
// use it returns nil, and what to wait for if the first is under way, or else where the publication
// stands.
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

// keep notes that the publication was made.
func (r *receipts) keep(mine *receipt, at Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mine.at = at
	close(mine.done)
	mine.done = nil
}

// drop notes that the publication has failed, so that the key can be used again.
func (r *receipts) drop(mine *receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(mine.done)
	mine.done = nil
	if r.known[mine.id] == mine {
		delete(r.known, mine.id)
	}
}

// sweep forgets the keys whose time is over.
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

// forget and pop are called under mu.
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
