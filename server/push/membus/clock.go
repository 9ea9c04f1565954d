package membus

import "time"

// A Clock is a bus's source of time. A simulation replaces it; any push.Clock is one.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once after d, on a new goroutine or on the simulator's. stop prevents the
	// call unless it has begun, and reports whether it did.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
