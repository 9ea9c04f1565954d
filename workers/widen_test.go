package workers

import (
	"context"
	"math"
	"testing"
	"time"
)

// Widen raises the limit by one, and lowers it again. The number of running tasks never exceeds the
// limit.
func TestWiden(t *testing.T) {
	p := New(Config{Workers: 2})
	release, started := make(chan struct{}), make(chan struct{}, 100)
	block := func() { started <- struct{}{}; <-release }
	for range 8 {
		if err := p.Go(context.Background(), block); err != nil {
			t.Fatal(err)
		}
	}
	<-started
	<-started
	p.Widen(3)
	for range 3 {
		<-started
	}
	if s := p.Stats(); s.Running != 5 || s.Queued != 3 {
		t.Errorf("%d run, %d wait; want 5 and 3", s.Running, s.Queued)
	}
	p.Widen(-3)
	for range 3 { // workers that end are not replaced
		release <- struct{}{}
	}
	release <- struct{}{}
	<-started
	if s := p.Stats(); s.Running > 2 || s.Workers > 2 {
		t.Errorf("%d tasks run on %d goroutines after the limit is 2 again", s.Running, s.Workers)
	}
	close(release)
	if err := p.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Done != 8 || s.Workers != 0 {
		t.Errorf("%d of 8 tasks done, %d workers left", s.Done, s.Workers)
	}
}

// The largest limit can be widened, too.
func TestWidenOfTheLargestPool(t *testing.T) {
	p := New(Config{Workers: math.MaxInt})
	p.Widen(1)
	ran := make(chan struct{})
	if err := p.Go(context.Background(), func() { close(ran) }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ran:
	case <-time.After(20 * time.Second):
		t.Error("the task does not run")
	}
	p.Widen(-1)
	if err := p.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}
