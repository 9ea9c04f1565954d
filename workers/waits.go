package workers

import "time"

// waits measures how long tasks are queued. Reading the clock twice costs as much as the rest of a
// submission, so when more than a million tasks come in a second only one of markEvery is marked,
// and stands for those since the mark before. All of it runs under the pool's lock.
type waits struct {
	start  time.Time
	marks  ring[mark]    // of the marked tasks that are queued
	pushed uint64        // tasks queued so far
	popped uint64        // and taken
	next   uint64        // the one of pushed to be marked
	last   time.Duration // when the last mark was made, since start
	unseen uint64        // tasks since then, which it does not stand for

	seconds float64 // of all tasks: as a Duration a full queue would overflow it within days
	longest time.Duration
}

type mark struct {
	task   uint64 // its number
	at     time.Duration
	weight uint64 // tasks that it stands for
}

const (
	markEvery = 16
	quick     = time.Microsecond // tasks that come closer together than this are marked now and then
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

func (w *waits) measure() {
	m := w.marks.pop()
	waited := time.Since(w.start) - m.at
	w.seconds += waited.Seconds() * float64(m.weight)
	w.longest = max(w.longest, waited)
}
