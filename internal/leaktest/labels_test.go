package leaktest

import (
	"context"
	"runtime/pprof"
	"testing"
)

func TestCountLabelled(t *testing.T) {
	count, stop := CountLabelled("a-label")
	defer stop()
	if n := count(); n != 0 {
		t.Errorf("%d before one is set", n)
	}
	pprof.Do(context.Background(), pprof.Labels("a-label", "x", "another", "y"), func(context.Context) {
		end := make(chan struct{})
		for range 2 {
			go func() { <-end }() // inherits the label
		}
		if n := count(); n != 3 {
			t.Errorf("%d with three", n)
		}
		close(end)
	})
}
