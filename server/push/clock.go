package push

import "time"

// A Clock is where a server takes its time from, so that a simulation can give it another.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once after d, on a goroutine of its own or on the simulator's. stop
	// prevents the call if it has not begun yet.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
