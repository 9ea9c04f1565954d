package hub

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/server/push/answer"
)

// A backlog says whether the node takes publications. It takes none while those that it has
// accepted cannot be sent: the loops have been late for seconds, and what waits in the queues of
// clients has grown meanwhile. So what was accepted is delivered, before a client's queue is full.
//
// It cannot tell a client that does not read from one that is not served. So a refusal lapses when
// nothing leaves and nothing comes any more, and the queues that are left make no other one.
//
// It counts time, and not how much is published. One publication to a million clients makes the
// loops late for as long as it takes, but its queues only become shorter.
type backlog struct {
	queue int // Limits.Queue
	log   *slog.Logger

	refusing atomic.Bool // publications are refused; the rest is used by look only

	means  [backlogLooks]float64 // bytes that wait for a client, by look, the oldest first
	looks  int                   // in a row that found the loops late, at most backlogLooks
	peak   float64               // the last of means when publications were refused
	stuck  float64               // the last of means when a refusal lapsed; 0: loops were not late since then
	sample []*Session            // reused
}

const (
	// backlogLate is how late loops are that have a backlog, and backlogOver how late they are at
	// most when they have none any more.
	backlogLate = time.Second
	backlogOver = backlogLate / 2
	// backlogLooks is how many looks in a row find a backlog. There is one in each slot of the
	// wheel, so they take four seconds.
	backlogLooks = 16
	// backlogGrowth is by how much the queues have grown in the second half of these looks.
	backlogGrowth = 1.3
	// backlogStill is by how much the queues have grown at most, or become shorter, when nothing
	// leaves and nothing comes.
	backlogStill = 1.05
	// backlogFew is how many clients with full queues are too few for a backlog, unless there are
	// no others.
	backlogFew = 4
	// backlogSample is of how many clients a look sees the queues.
	backlogSample = 256
)

// admit returns an error while publications are refused. Any goroutine may call it.
func (b *backlog) admit() error {
	if b.refusing.Load() {
		return answer.ErrOverloaded
	}
	return nil
}

// look decides anew. late is how late the loops are; clients returns some of the node's clients,
// and is called only if they are. The wheel calls it once in each of its slots.
func (b *backlog) look(late time.Duration, clients func(into []*Session, most int) []*Session) {
	if late < backlogOver {
		b.looks, b.stuck = 0, 0
		b.refuse(false, late, 0)
		return
	}
	if late < backlogLate && !b.refusing.Load() {
		b.looks = 0
		return
	}
	mean, full := b.measure(clients)
	copy(b.means[:], b.means[1:])
	b.means[backlogLooks-1] = mean
	b.looks = min(b.looks+1, backlogLooks)
	if b.refusing.Load() {
		lapses := b.looks == backlogLooks && b.isStill()
		if lapses {
			b.stuck = mean
		}
		b.refuse(mean >= b.peak/4 && mean > 0 && !lapses, late, mean)
		return
	}
	full = full && mean >= backlogGrowth*b.stuck
	b.refuse(b.looks >= backlogLooks/4 && full || b.looks == backlogLooks && b.grows(), late, mean)
}

// measure returns how many bytes wait for a client, in the mean of a sample. It is full if more
// than a sixteenth of the clients have queues that are half full: more than backlogFew of them, or
// all.
func (b *backlog) measure(clients func(into []*Session, most int) []*Session) (mean float64, full bool) {
	b.sample = clients(b.sample[:0], backlogSample)
	sum, near := 0, 0
	for _, s := range b.sample {
		queued := s.t.Queued()
		sum += queued
		if queued > b.queue/2 {
			near++
		}
	}
	n := len(b.sample)
	clear(b.sample)
	return float64(sum) / float64(max(n, 1)), near > max(n/16, min(backlogFew, n-1))
}

// grows reports whether more waits for clients in the second half of the looks than in the first.
func (b *backlog) grows() bool {
	first, second := b.halves()
	return second > backlogGrowth*first
}

// isStill reports whether as much waits for clients in both halves of the looks.
func (b *backlog) isStill() bool {
	first, second := b.halves()
	return second <= backlogStill*first && first <= backlogStill*second
}

// halves returns the sums of both halves of the looks.
func (b *backlog) halves() (first, second float64) {
	for i, mean := range b.means {
		if i < backlogLooks/2 {
			first += mean
		} else {
			second += mean
		}
	}
	return first, second
}

func (b *backlog) refuse(on bool, late time.Duration, mean float64) {
	if b.refusing.Swap(on) == on {
		return
	}
	if b.peak, b.looks = mean, 0; on {
		b.log.Warn("push: publications are refused: more is published than can be delivered", "late", late,
			"queued_bytes", int(mean))
		return
	}
	b.log.Info("push: publications are taken again", "late", late)
}
