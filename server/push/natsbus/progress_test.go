package natsbus

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A call that waits for a place in a log returns when the follower is live and has got there, and
// not before.
func TestProgressWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgress("log", nil)
		p.startAt(stored{seq: 5})
		result := make(chan error, 1)
		go func() { result <- p.waitFor(t.Context(), 7) }()
		for _, step := range []struct {
			name string
			do   func()
			want int
		}{
			{"it is not live", func() { p.advance(stored{seq: 6}) }, 0},
			{"it is live", p.goLive, 0},
			{"it is live no more", func() { p.interrupt("it begins a new epoch") }, 0},
			{"it is there, and not live", func() { p.advance(stored{seq: 7}) }, 0},
			{"it is there, and live", p.goLive, 1},
		} {
			step.do()
			synctest.Wait()
			if len(result) != step.want {
				t.Fatalf("%s: the call has returned %d times, want %d", step.name, len(result), step.want)
			}
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

// A call that waits also ends with what it was given besides, with its context, and with the bus.
func TestProgressWaitsNotForEver(t *testing.T) {
	closing, other := make(chan struct{}), make(chan struct{})
	p := newProgress("log", closing)
	close(other)
	if err := p.waitUnless(t.Context(), 1, other); !errors.Is(err, errOther) {
		t.Errorf("with something else that has come: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, problem := range []string{"its leader hangs", ""} {
		p.setProblem(problem)
		err := p.waitFor(ended, 1)
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), problem) ||
			strings.Contains(err.Error(), "that far") != (problem == "") {
			t.Errorf("the problem %q, after the context: %v", problem, err)
		}
	}
	close(closing)
	if err := p.waitFor(t.Context(), 1); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("after the bus has closed: %v", err)
	}
}

// Only a live follower vouches for the epoch of its log.
func TestProgressVouchesWhileLive(t *testing.T) {
	p := newProgress("log", nil)
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { p.setEpoch("e1", 1) }, ""},
		{p.goLive, "e1"},
		{func() { p.setEpoch("e2", 9) }, "e2"},
		{func() { p.interrupt("it begins a new epoch") }, ""},
	} {
		if step.do(); p.liveEpoch() != step.want {
			t.Errorf("the epoch is %q, want %q", p.liveEpoch(), step.want)
		}
	}
	if epoch, at := p.epochStored(); epoch != "e2" || at != 9 {
		t.Errorf("the epoch is %q, by message %d", epoch, at)
	}
}
