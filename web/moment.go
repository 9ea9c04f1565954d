package web

import "time"

// A moment is a point in time in nanoseconds since the server began to serve: a third of a
// time.Time, because every exchange has some.
type moment int64

// never is the zero moment: no bound.
const never moment = 0

// moment converts what is given as a time; the zero time is never.
func (st *state) moment(t time.Time) moment {
	if t.IsZero() {
		return never
	}
	return max(1, moment(t.Sub(st.began)))
}

// now returns the time for callers that are not on a loop.
func (st *state) now() moment { return st.moment(st.engine.System().Now()) }

func (m moment) after(d time.Duration) moment {
	if m += moment(d); m < 0 {
		return 1<<63 - 1
	}
	return m
}

func (m moment) passed(now moment) bool { return m != never && now >= m }

// orEarlier is the earlier of two bounds.
func (m moment) orEarlier(other moment) moment {
	if m == never || other != never && other < m {
		return other
	}
	return m
}
