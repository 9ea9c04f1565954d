package workers

import (
	"context"
	"errors"
)

// A keyQueue is the task queue of one busy key. While it is in its shard's table, either one call
// of run is on the pool, queued or running, or one Go waits for room in the pool. The shard's lock
// guards it.
type keyQueue[K comparable] struct {
	keyed   *Keyed[K]
	shard   *keyShard[K]
	key     K
	runFunc func() // the method value run
	tasks   ring[func()]
	line    line // calls of Go that wait for room

	// offered says that the queue has one task whose Go waits for room in the pool. Because that Go
	// may give up, no task is accepted after it.
	offered bool
}

// errOffered tells the first Go in the line that it has to offer its task to the pool.
var errOffered = errors.New("workers: offered")

// room returns how many more tasks fit. It is 0 while calls wait: the backlog is full, or the queue
// is offered.
func (q *keyQueue[K]) room() int {
	if q.offered {
		return 0
	}
	return q.keyed.backlog - q.tasks.n
}

// start submits a new queue with its first task to the pool. If the pool has no room, the caller
// must offer or withdraw it.
func (q *keyQueue[K]) start(f func()) bool {
	q.tasks.push(f)
	return q.keyed.pool.TryGo(q.runFunc)
}

// wait waits until the pool accepts the offered queue. The caller does not hold the lock.
func (q *keyQueue[K]) wait(ctx context.Context) error {
	err := q.keyed.pool.Go(ctx, q.runFunc)
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	if err != nil {
		q.withdraw()
		return err
	}
	if q.offered { // else the task has started
		q.offered = false
		q.admit()
	}
	return nil
}

// withdraw removes the only task. If a Go waits in the line, its task is offered next.
func (q *keyQueue[K]) withdraw() {
	q.tasks.pop()
	q.offered = false
	t := q.line.first
	if t == nil {
		q.forget()
		return
	}
	q.tasks.push(t.f)
	q.offered = true
	q.line.decide(t, errOffered)
}

// run runs one slice of the key's tasks on the pool. If a task panics or exits its goroutine, the
// pool handles that as for any task, and the key continues in another slice.
func (q *keyQueue[K]) run() {
	empty := false
	defer func() {
		if !empty {
			q.keyed.pool.resume(q.runFunc)
		}
	}()
	for range keySlice {
		f := q.next()
		if f == nil {
			empty = true
			return
		}
		f()
	}
}

// next returns the next task. If there is none, it removes the queue and returns nil. It takes the
// lock.
func (q *keyQueue[K]) next() func() {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	q.offered = false
	if q.tasks.n == 0 {
		q.forget()
		return nil
	}
	f := q.tasks.pop()
	q.admit()
	return f
}

func (q *keyQueue[K]) admit() {
	if q.line.n > 0 && q.keyed.pool.closed.Load() {
		q.line.close()
	}
	for q.line.n > 0 && q.tasks.n < q.keyed.backlog {
		t := q.line.first
		q.tasks.push(t.f)
		q.line.decide(t, nil)
	}
}

// forget removes the queue from the table. A map keeps the memory of its largest size, so forget
// also replaces an empty large map.
func (q *keyQueue[K]) forget() {
	s := q.shard
	delete(s.queues, q.key)
	if len(s.queues) == 0 && s.most > keptKeys {
		s.queues, s.most = nil, 0
	}
}
