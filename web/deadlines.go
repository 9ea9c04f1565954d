package web

import (
	"os"
	"time"
)

// This file is the deadlines of a request, for its body and its answer: where they come from, and
// when they have passed.

func firstOf(ds ...time.Duration) time.Duration {
	for _, d := range ds {
		if d != 0 {
			return max(d, 0)
		}
	}
	return 0
}

// until is how long the timer is to wait for by; 0 if there is no such moment.
func (k *link) until(by moment) time.Duration {
	if by == never {
		return 0
	}
	return max(time.Duration(by-k.now()), time.Nanosecond)
}

func (w *response) setReadDeadline(t time.Time) {
	if b := w.x.body; b != nil {
		b.setReadBy(w.x.lane.st.moment(t))
	}
}

func (w *response) setWriteDeadline(t time.Time) {
	w.writeBy.Store(int64(w.x.lane.st.moment(t)))
	w.x.want(wantDeadline | wantWriteBy)
}

// setWriteBy bounds the answer before its handler runs.
func (x *exchange) setWriteBy(by moment) {
	x.writeBy = by
	x.out.writeBy.Store(int64(by))
}

// takeWriteBy makes the deadline of the answer the loop's if it has moved. On the loop.
func (x *exchange) takeWriteBy() {
	x.moveWriteBy(want(x.wants.And(^uint32(wantWriteBy))))
}

func (x *exchange) moveWriteBy(w want) {
	if w&wantWriteBy != 0 {
		x.writeBy, x.looked = moment(x.out.writeBy.Load()), false
	}
}

// setReadBy moves the deadline of the body. Reads go on, also if it had passed. On the handler's
// goroutine.
func (b *body) setReadBy(by moment) {
	b.mu.Lock()
	b.readBy = by
	b.in.Interrupt(nil)
	b.mu.Unlock()
	b.x.want(wantDeadline)
}

// bound is until when the loop is to wait for the body.
func (b *body) bound() moment {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.in.Interrupted() {
		return never
	}
	return b.readBy
}

// expire has reads fail that find nothing, if the time of the body has just passed, and reports
// that.
func (b *body) expire(now moment) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.in.Interrupted() || !b.readBy.passed(now) {
		return false
	}
	b.in.Interrupt(os.ErrDeadlineExceeded)
	return true
}

// isLate reports whether the time of the body has passed before it has come, and has not been moved
// since.
func (b *body) isLate() bool {
	return b != nil && b.in.Interrupted()
}
