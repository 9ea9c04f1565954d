package workers

import (
	"context"
	"errors"
)

// A lane is the tasks of one key. While it is in its shard's table there is exactly one call of
// turn on the pool, queued or running, or one Go that waits for room to queue it. The shard's lock
// guards it.
type lane[K comparable] struct {
	keyed *Keyed[K]
	shard *keyShard[K]
	key   K
	turn  func() // run
	tasks ring[func()]
	line  line // those who wait for room

	// offered: the lane has one task, and the Go that brought it waits for room in the pool. As
	// long as it may give up, nothing is accepted behind it.
	offered bool
}

// errOffered tells the first of the line that its task is the one that is offered to the pool now.
var errOffered = errors.New("workers: offered")

// room is none while somebody waits: the backlog is full then, or the lane is offered.
func (l *lane[K]) room() int {
	if l.offered {
		return 0
	}
	return l.keyed.backlog - l.tasks.n
}

// start brings the first task of a new lane to the pool. If there is no room the lane must be
// offered or withdrawn.
func (l *lane[K]) start(f func()) bool {
	l.tasks.push(f)
	return l.keyed.pool.TryGo(l.turn)
}

// wait is the end of a Go whose task is offered. It runs without the lock.
func (l *lane[K]) wait(ctx context.Context) error {
	err := l.keyed.pool.Go(ctx, l.turn)
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	if err != nil {
		l.withdraw()
		return err
	}
	if l.offered { // else the task runs already
		l.offered = false
		l.admit()
	}
	return nil
}

// withdraw takes the only task back, and offers that of the next in the line if there is one.
func (l *lane[K]) withdraw() {
	l.tasks.pop()
	l.offered = false
	t := l.line.first
	if t == nil {
		l.forget()
		return
	}
	l.tasks.push(t.f)
	l.offered = true
	l.line.decide(t, errOffered)
}

// run is one turn of the key on the pool. If a task panics or leaves its goroutine, the pool hears
// of it as of any other, and the lane goes on in another turn.
func (l *lane[K]) run() {
	empty := false
	defer func() {
		if !empty {
			l.keyed.pool.resume(l.turn)
		}
	}()
	for range keyTurn {
		f := l.next()
		if f == nil {
			empty = true
			return
		}
		f()
	}
}

// next takes the lock. It returns nil if the lane has nothing to do any more, and then has
// forgotten it.
func (l *lane[K]) next() func() {
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	l.offered = false
	if l.tasks.n == 0 {
		l.forget()
		return nil
	}
	f := l.tasks.pop()
	l.admit()
	return f
}

func (l *lane[K]) admit() {
	if l.line.n > 0 && l.keyed.pool.closed.Load() {
		l.line.close()
	}
	for l.line.n > 0 && l.tasks.n < l.keyed.backlog {
		t := l.line.first
		l.tasks.push(t.f)
		l.line.decide(t, nil)
	}
}

// forget takes the lane out of the table. A map keeps the memory of all that it has ever held, so
// an empty one goes too.
func (l *lane[K]) forget() {
	s := l.shard
	delete(s.lanes, l.key)
	if len(s.lanes) == 0 && s.most > keptKeys {
		s.lanes, s.most = nil, 0
	}
}
