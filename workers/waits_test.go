package workers

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// One worker gets a task each second that takes ten seconds: the n-th task waits n times nine
// seconds.
func TestEachWaitIsMeasuredWhenTasksComeSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Workers: 1})
		for range 10 {
			p.TryGo(func() { time.Sleep(10 * time.Second) })
			time.Sleep(time.Second)
		}
		time.Sleep(100 * time.Second)
		s := p.Stats()
		if s.Done != 10 || math.Abs(s.WaitedSeconds-9*45) > 1e-6 || s.LongestWait != 81*time.Second {
			t.Errorf("%+v, want 405 s waited, at most 81 s", s)
		}
	})
}

// In a burst few tasks are measured, and represent all: 1,000 tasks of 10 ms for one worker wait 0
// to 9.99 s.
func TestWaitsOfABurstAreEstimated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Workers: 1})
		for range 1000 {
			p.TryGo(func() { time.Sleep(10 * time.Millisecond) })
		}
		p.mu.Lock()
		if n := p.waits.marks.n; n < 1000/markEvery || n > 1000/markEvery+2 {
			t.Errorf("%d of 1,000 tasks are marked, want one of %d", n, markEvery)
		}
		p.mu.Unlock()
		time.Sleep(11 * time.Second)
		s := p.Stats()
		if mean := s.WaitedSeconds / float64(s.Done); math.Abs(mean-4.995) > 0.02*markEvery {
			t.Errorf("mean wait %.3f s, want about 4.995", mean)
		}
		if s.LongestWait < (1000-markEvery)*10*time.Millisecond || s.LongestWait > 9990*time.Millisecond {
			t.Errorf("longest wait %v, want about 9.99 s", s.LongestWait)
		}
	})
}

// A task that starts at once has waited for no time, however long it runs.
func TestRunningIsNotWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{})
		for range 10 {
			p.TryGo(func() { time.Sleep(time.Hour) })
			synctest.Wait()
		}
		time.Sleep(2 * time.Hour)
		if s := p.Stats(); s.Done != 10 || s.LongestWait > 2*tick || s.WaitedSeconds > 1 {
			t.Errorf("%+v, want tasks that waited for a tick at most", s)
		}
	})
}

// The oldest task is known while it waits: of tasks that come slowly, and of a burst.
func TestOldestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, apart := range []time.Duration{time.Second, 0} {
			p := newPool(t, Config{Workers: 1})
			gate := make(chan struct{})
			p.TryGo(func() { <-gate })
			time.Sleep(time.Second)
			if waits := p.Stats().OldestWait; waits != 0 {
				t.Errorf("with nothing queued the oldest task has waited for %v", waits)
			}
			for range 2 * markEvery {
				p.TryGo(func() { <-gate })
				time.Sleep(apart)
			}
			for n := range 2 * markEvery {
				// tasks that are not marked are as old as the one before that is
				want := time.Duration(2*markEvery-n) * apart
				if got := p.Stats().OldestWait; got < want || got > want+time.Microsecond {
					t.Errorf("%v apart: behind %d tasks the oldest has waited for %v, want %v", apart, n, got, want)
				}
				gate <- struct{}{}
				synctest.Wait()
			}
			if waits := p.Stats().OldestWait; waits != 0 {
				t.Errorf("at the end the oldest task has waited for %v", waits)
			}
			gate <- struct{}{}
		}
	})
}
