package workers

import "time"

// waits measures how long tasks are queued. Two reads of the clock cost as much as the rest of a
// submission. So above a million tasks per second only one task in markEvery is marked and
// measured, and represents the tasks since the mark before. The pool's lock guards it.
type waits struct {
	start  time.Time
	marks  ring[mark]    // of queued tasks
	pushed uint64        // tasks queued so far
	popped uint64        // tasks taken from the queue so far
	next   uint64        // the number of the next task to mark
	last   time.Duration // time of the last mark, since start
	unseen uint64        // tasks since the last mark

	seconds float64 // sum over all tasks; a Duration could overflow within days
	longest time.Duration
}

type mark struct {
	task   uint64 // number of the task
	at     time.Duration
	weight uint64 // tasks that the mark represents
}

const (
	markEvery = 16
	quick     = time.Microsecond // if tasks arrive faster than this, only one in markEvery is marked
)

func (w *waits) push() {
	if w.pushed == w.next {
		w.mark()
	}
	w.pushed++
}

func (w *waits) mark() {
	now := time.Since(w.start)
	stands := w.pushed - w.unseen + 1
	step := uint64(1)
	if now-w.last < time.Duration(stands)*quick {
		step = markEvery
	}
	w.marks.push(mark{w.pushed, now, stands})
	w.next, w.last, w.unseen = w.pushed+step, now, w.pushed+1
}

func (w *waits) pop() {
	if w.marks.n > 0 && w.marks.first().task == w.popped {
		w.measure()
	}
	w.popped++
}

// oldest returns how long the task has waited that has waited longest, an estimate as the others.
func (w *waits) oldest() time.Duration {
	if w.popped == w.pushed {
		return 0
	}
	since := w.last
	if w.marks.n > 0 {
		since = w.marks.first().at
	}
	return time.Since(w.start) - since
}

func (w *waits) measure() {
	m := w.marks.pop()
	waited := time.Since(w.start) - m.at
	w.seconds += waited.Seconds() * float64(m.weight)
	w.longest = max(w.longest, waited)
}
