package sim

import (
	"container/heap"
	"time"
)

// kind says what may move time forward: Settle follows deliveries, and timers only on the way.
type kind uint8

const (
	delivery kind = iota
	timer
)

// An event is something that happens at a time. do runs with the lock held, on the goroutine that
// drives.
type event struct {
	at    time.Time
	seq   int
	kind  kind
	index int // in the heap, -1 outside
	do    func()
}

// timeline holds what is to come, in order of time; what is due at the same time comes in the order
// in which it was planned.
type timeline struct {
	events     []*event
	deliveries int
	planned    int
}

func (q *timeline) Len() int { return len(q.events) }

func (q *timeline) Less(i, j int) bool {
	a, b := q.events[i], q.events[j]
	if !a.at.Equal(b.at) {
		return a.at.Before(b.at)
	}
	return a.seq < b.seq
}

func (q *timeline) Swap(i, j int) {
	q.events[i], q.events[j] = q.events[j], q.events[i]
	q.events[i].index, q.events[j].index = i, j
}

func (q *timeline) Push(x any) {
	e := x.(*event)
	e.index = len(q.events)
	q.events = append(q.events, e)
}

func (q *timeline) Pop() any {
	last := len(q.events) - 1
	e := q.events[last]
	q.events[last] = nil
	q.events = q.events[:last]
	e.index = -1
	return e
}

func (q *timeline) first() *event {
	if len(q.events) == 0 {
		return nil
	}
	return q.events[0]
}

func (q *timeline) add(e *event) {
	e.seq = q.planned
	q.planned++
	if e.kind == delivery {
		q.deliveries++
	}
	heap.Push(q, e)
}

func (q *timeline) remove(e *event) {
	if e == nil || e.index < 0 {
		return
	}
	heap.Remove(q, e.index)
	if e.kind == delivery {
		q.deliveries--
	}
}

// after plans do. The lock is held.
func (w *World) after(d time.Duration, k kind, do func()) *event {
	e := &event{at: w.now.Add(max(d, 0)), kind: k, do: do}
	w.queue.add(e)
	w.poke()
	return e
}

// AfterFunc has f called in fake time, on a goroutine of the world, as time.AfterFunc does in real
// time. stop prevents the call, and reports false if it has been made or stopped already.
func (w *World) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.after(d, timer, func() { w.spawn("timer", f) })
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		pending := e.index >= 0
		w.queue.remove(e)
		return pending
	}
}
