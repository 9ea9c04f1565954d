package receipts

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func at(seconds int64) func() time.Time { return func() time.Time { return time.Unix(seconds, 0) } }

// An id is used up by a publication that succeeds, not by one that fails.
func TestOnce(t *testing.T) {
	table := Table[int]{Most: 10}
	wrong := errors.New("wrong")
	for i, step := range []struct {
		channel, id string
		now         int64
		err         error
		want        int // the result
		runs        bool
	}{
		{"a", "1", 1, wrong, 0, true},
		{"a", "1", 2, nil, 1, true},
		{"a", "1", 3, nil, 1, false},
		{"b", "1", 3, nil, 3, true},
		{"a", "2", 3, nil, 4, true},
		{"a", "1", 2 + int64(Window/time.Second), nil, 5, true},
	} {
		ran := false
		got, err := table.Once(t.Context(), step.channel, step.id, at(step.now), func() (int, error) {
			ran = true
			return i, step.err
		})
		if got != step.want || err != step.err || ran != step.runs {
			t.Errorf("step %d: %d, %v, ran: %v", i, got, err, ran)
		}
	}
	table.Sweep(time.Unix(1000, 0))
	if n := table.Len(); n != 0 {
		t.Errorf("%d ids are remembered after their time", n)
	}
}

// Above the limit, the oldest id is forgotten.
func TestMost(t *testing.T) {
	table := Table[int]{Most: 2}
	runs := 0
	for _, id := range []string{"1", "2", "3", "3", "2", "1"} {
		table.Once(t.Context(), "a", id, at(1), func() (int, error) { runs++; return 0, nil })
	}
	if runs != 4 || table.Len() != 2 {
		t.Errorf("ran %d times, %d ids are remembered", runs, table.Len())
	}
}

// A second use of an id waits for the first. If that fails, the second one publishes.
func TestWaitsForTheFirst(t *testing.T) {
	table := Table[int]{Most: 2}
	inside, goOn, first := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		_, err := table.Once(t.Context(), "a", "1", at(1), func() (int, error) {
			close(inside)
			<-goOn
			return 0, errors.New("wrong")
		})
		first <- err
	}()
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := table.Once(ctx, "a", "1", at(1), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with an ended context: %v", err)
	}
	second := make(chan int)
	go func() {
		got, _ := table.Once(context.Background(), "a", "1", at(1), func() (int, error) { return 7, nil })
		second <- got
	}()
	close(goOn)
	if err := <-first; err == nil {
		t.Error("the first one has succeeded")
	}
	if got := <-second; got != 7 {
		t.Errorf("the second one returned %d", got)
	}
}
