package leaktest

import (
	"context"
	"fmt"
	"runtime/pprof"
	"sync/atomic"
	"testing"
)

var runs atomic.Int32

func TestCountLabelled(t *testing.T) {
	name := fmt.Sprint("a-label-", runs.Add(1)) // goroutines of the run before may still be ending
	count, stop := CountLabelled(name)
	defer stop()
	if n := count(); n != 0 {
		t.Errorf("%d before one is set", n)
	}
	pprof.Do(context.Background(), pprof.Labels(name, "x", "another", "y"), func(context.Context) {
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
