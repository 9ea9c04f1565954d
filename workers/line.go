package workers

import (
	"context"
	"sync"
	"time"
)

// A line is those who wait for room, in order. Its length is bounded by the callers: each is a
// goroutine of theirs, or a lane or a queue that stands in it once (posted). Its owner's lock
// guards it.
type line struct {
	first, last *ticket
	n           int
}

// A ticket is one place in the line. decided is closed once err is final and the ticket is out of
// the line; not if its owner leaves by himself.
type ticket struct {
	f          func()
	err        error
	decided    chan struct{} // nil: posted, nobody waits for the decision
	prev, next *ticket
	waiting    bool
}

func (l *line) join(f func()) *ticket {
	t := &ticket{f: f, decided: make(chan struct{})}
	l.append(t)
	return t
}

// post joins without anybody to be told: f is to be taken in the end, also when the line is closed.
func (l *line) post(f func()) { l.append(&ticket{f: f}) }

func (l *line) append(t *ticket) {
	t.prev, t.waiting = l.last, true
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
	l.n++
}

// leave takes t out of the line and says whether it was still in it.
func (l *line) leave(t *ticket) bool {
	if !t.waiting {
		return false
	}
	if t.prev == nil {
		l.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next, t.waiting = nil, nil, false
	l.n--
	return true
}

func (l *line) decide(t *ticket, err error) {
	l.leave(t)
	t.err = err
	if t.decided != nil {
		close(t.decided)
	}
}

// close refuses those who wait. What was posted stays, to be taken when there is room.
func (l *line) close() {
	for t := l.first; t != nil; {
		next := t.next
		if t.decided != nil {
			l.decide(t, ErrClosed)
		}
		t = next
	}
}

// wait returns when t is decided, or has left the line because ctx ended. mu is the line's.
func (l *line) wait(ctx context.Context, mu sync.Locker, t *ticket) error {
	select {
	case <-t.decided:
		return t.err
	case <-ctx.Done():
		return l.giveUp(mu, t, noRoom(ctx))
	}
}

func (l *line) waitFor(mu sync.Locker, t *ticket, d time.Duration) error {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-t.decided:
		return t.err
	case <-over.C:
		return l.giveUp(mu, t, ErrTimeout)
	}
}

func (l *line) giveUp(mu sync.Locker, t *ticket, refusal error) error {
	mu.Lock()
	waiting := l.leave(t)
	mu.Unlock()
	if waiting {
		return refusal
	}
	<-t.decided // the decision came first: an accepted task must not be reported as refused
	return t.err
}
