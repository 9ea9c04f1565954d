package workers

import (
	"context"
	"sync"
	"time"
)

// A line is the queue of submissions that wait for room. The callers bound its length: each entry
// is a waiting goroutine, or a posted entry of a keyQueue or a Queue, which each have at most one.
// Its owner's lock guards it.
type line struct {
	first, last *ticket
	n           int
}

// A ticket is one entry of a line. decided is closed once err is final and the ticket has been
// removed from the line. It is not closed if the waiting call leaves the line itself.
type ticket struct {
	f          func()
	err        error
	decided    chan struct{} // nil: posted, without a waiting goroutine
	prev, next *ticket
	waiting    bool
}

func (l *line) join(f func()) *ticket {
	t := &ticket{f: f, decided: make(chan struct{})}
	l.append(t)
	return t
}

// post adds f without a waiting goroutine. f is accepted in the end, even if the line is closed.
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

// leave removes t from the line and reports whether it was in it.
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

// close refuses all waiting calls. Posted entries stay until there is room.
func (l *line) close() {
	for t := l.first; t != nil; {
		next := t.next
		if t.decided != nil {
			l.decide(t, ErrClosed)
		}
		t = next
	}
}

// wait waits until t is decided, or removes it from the line when ctx ends. mu guards the line.
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
	<-t.decided // decided before ctx ended: an accepted task must not be reported as refused
	return t.err
}
