// Package outboxtest tests that a receiver keeps the promises of each policy of package outbox. The
// connections of websocket and resp and the subscribers of server/push run it.
package outboxtest

import (
	"slices"
	"testing"

	"github.com/myriad-go/myriad/internal/outbox"
)

// An Answer is how a message was taken, as its sender sees it.
type Answer uint8

const (
	Taken Answer = iota // or dropped, or waiting
	Full                // refused
	Ended               // the receiver is disconnected
)

// A Receiver reads nothing of what it is sent, except in Drain.
type Receiver interface {
	// Offer sends message n. It waits only under outbox.Block.
	Offer(n int) Answer
	// Drain reads until nothing is queued for the receiver any more, or its end. It returns the
	// messages that have come since the last Drain, in their order.
	Drain() []int
	// Missed is how many messages the receiver's own counter says were dropped.
	Missed() uint64
	// Closed reports whether the receiver has been disconnected.
	Closed() bool
}

// A Config is one user of package outbox.
type Config struct {
	Policies []outbox.Policy // those that it has
	// New makes a receiver with room for at least two messages, and for a few in its outbox.
	New func(t *testing.T, p outbox.Policy) Receiver
	// Many is how many messages exceed all the room there is several times: the kernel's, the
	// transport's, and the outbox's.
	Many int
}

// Run tests each policy in each situation.
func Run(t *testing.T, c Config) {
	for _, p := range c.Policies {
		t.Run(p.String(), func(t *testing.T) {
			t.Run("room", func(t *testing.T) { room(t, c.New(t, p)) })
			t.Run("slow", func(t *testing.T) { slow(t, c.New(t, p), p, c.Many) })
			t.Run("slow again", func(t *testing.T) {
				if r := c.New(t, p); p != outbox.Close {
					slow(t, r, p, c.Many)
					again(t, r, p, c.Many)
				}
			})
		})
	}
}

// room is the situation in which a receiver keeps up: it gets everything, whatever the policy is.
func room(t *testing.T, r Receiver) {
	for n := 1; n <= 20; n++ {
		if got := r.Offer(n); got != Taken {
			t.Fatalf("message %d: answer %d, with room", n, got)
		}
		if got := r.Drain(); !slices.Equal(got, []int{n}) {
			t.Fatalf("message %d: got %v", n, got)
		}
	}
	if r.Missed() != 0 || r.Closed() {
		t.Errorf("missed %d, closed %v", r.Missed(), r.Closed())
	}
}

// slow is the situation in which a receiver stops reading, and reads on after many messages.
func slow(t *testing.T, r Receiver, p outbox.Policy, many int) { pressed(t, r, p, 1, many) }

// again is slow a second time, behind many messages that the receiver has got or missed.
func again(t *testing.T, r Receiver, p outbox.Policy, many int) { pressed(t, r, p, many+1, many) }

func pressed(t *testing.T, r Receiver, p outbox.Policy, first, many int) {
	last := first + many - 1
	before := r.Missed()
	got, taken, ended := offerAll(r, p, first, last)
	missed := int(r.Missed() - before)
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Fatalf("out of order, or twice: %v", got)
	}
	if len(got) > 0 && (got[0] < first || got[len(got)-1] > last) {
		t.Fatalf("got %d to %d, sent %d to %d", got[0], got[len(got)-1], first, last)
	}
	run := leading(got, first)
	if p != outbox.Block && run == many {
		t.Fatalf("the receiver was not slow: it has got all of %d messages", many)
	}
	if run < 2 && p != outbox.Close {
		t.Errorf("%d messages came before the first that was missed: there was room for 2", run)
	}
	rest := len(got) - run
	newest := len(got) > 0 && got[len(got)-1] == last
	switch p {
	case outbox.Block:
		if len(got) != many || missed != 0 {
			t.Errorf("got %d of %d messages, %d were dropped", len(got), many, missed)
		}
	case outbox.Fail:
		if taken != len(got) || missed != 0 {
			t.Errorf("%d messages were taken, %d have come; %d were dropped", taken, len(got), missed)
		}
	case outbox.DropNewest:
		if taken != many || missed != many-len(got) {
			t.Errorf("taken %d, got %d, missed %d of %d", taken, len(got), missed, many)
		}
	case outbox.DropOldest, outbox.Latest, outbox.Sample:
		if taken != many || missed != many-len(got) || !newest {
			t.Errorf("taken %d, got %d (the newest: %v), missed %d of %d", taken, len(got), newest, missed, many)
		}
		if p == outbox.Latest && rest != 1 {
			t.Errorf("%d messages behind the first gap, want the newest: %v", rest, got[run:])
		}
		if p == outbox.DropOldest && rest != leading(got[run:], last-rest+1) {
			t.Errorf("a second gap: %v", got[run:])
		}
	case outbox.Close:
		if !ended || !r.Closed() || rest != 0 {
			t.Errorf("ended %v, closed %v, %d messages behind a gap", ended, r.Closed(), rest)
		}
	}
	if p != outbox.Close && r.Closed() {
		t.Error("disconnected")
	}
}

// offerAll sends messages while the receiver does not read, and then has it read.
func offerAll(r Receiver, p outbox.Policy, first, last int) (got []int, taken int, ended bool) {
	offer := func() {
		for n := first; n <= last; n++ {
			switch r.Offer(n) {
			case Taken:
				taken++
			case Ended:
				ended = true
			}
		}
	}
	if p != outbox.Block {
		offer()
		return r.Drain(), taken, ended
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		offer()
	}()
	for {
		got = append(got, r.Drain()...)
		select {
		case <-done:
			return append(got, r.Drain()...), taken, ended
		default:
		}
	}
}

// leading is how many numbers at the start of list follow each other, from first on.
func leading(list []int, first int) (n int) {
	for n < len(list) && list[n] == first+n {
		n++
	}
	return n
}
