package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

var (
	// ErrBlocked is what a Try returns while there is no room. Wait never returns it.
	ErrBlocked = errors.New("outbox: there is no room for now")
	// ErrStalled says that the receiver has made no room for as long as a sender waits.
	ErrStalled = errors.New("outbox: the receiver has made no room in time")
)

// A Sender is one message that waits for room: Block's part that happens without the receiver's
// lock.
type Sender interface {
	// Try sends the message. If there is no room, it calls Await with w and returns ErrBlocked.
	Try(w driver.Parker) error
	// Forget calls Outbox.Forget with w.
	Forget(w driver.Parker)
	// Blocks is called once, before the goroutine waits for the first time.
	Blocks()
	// Expired ends the wait with an error, whenever the sender is woken. nil: it goes on.
	Expired() error
}

// Wait calls s.Try until it returns something other than ErrBlocked, and returns that. In between
// the calling goroutine waits for Wake. If it runs a callback of a loop, the loop goes on without
// it; where that is impossible, Wait fails with myriad.ErrOnLoop. It fails with ErrStalled after
// limit, unless that is 0, and with ctx's error when ctx has ended.
func Wait(ctx context.Context, e *myriad.Engine, limit time.Duration, s Sender) error {
	system := e.System()
	w := system.NewParker()
	var until time.Time
	for first := true; ; first = false {
		if err := s.Try(w); err != ErrBlocked {
			return err
		}
		if first {
			if !e.HandOff() {
				s.Forget(w)
				return myriad.ErrOnLoop
			}
			s.Blocks()
			if limit > 0 {
				until = system.Now().Add(limit)
			}
			defer context.AfterFunc(ctx, w.Unpark)()
		}
		left := until.Sub(system.Now())
		switch {
		case limit == 0:
			w.Park()
		case left > 0:
			w.ParkFor(left)
		}
		s.Forget(w)
		switch {
		case limit > 0 && left <= 0:
			return ErrStalled
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if err := s.Expired(); err != nil {
			return err
		}
	}
}

// FlushWait is for how long Flush waits for a loop: it may be held up by a callback that waits for
// a lock of Flush's caller.
const FlushWait = 10 * time.Millisecond

// A Transport is a *myriad.Conn, or something like it.
type Transport interface {
	Flush() bool
	Loop() *myriad.Loop
}

// Flush has the loop offer the kernel what is queued, so that a policy concerns only what the
// kernel has refused. It waits for the loop for at most wait, never for the peer, and on another
// loop not at all.
func Flush(t Transport, wait time.Duration) {
	if t.Flush() {
		return
	}
	l := t.Loop()
	e := l.Engine()
	if !e.HandOff() {
		return
	}
	w := e.System().NewParker()
	offer := func() {
		if t.Flush() {
			w.Unpark()
		} else {
			l.Later(w.Unpark) // a stream's output leaves in this cycle of the loop
		}
	}
	if l.Do(offer) == nil {
		w.ParkFor(wait)
	}
}
