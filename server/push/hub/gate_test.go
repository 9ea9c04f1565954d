package hub

import (
	"sync"
	"sync/atomic"
	"testing"
)

// Publications race with the end: each either runs and is waited for, or is refused.
func TestGate(t *testing.T) {
	for range 200 {
		var g gate
		var over atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for g.enter() {
					if over.Load() {
						t.Error("a publication runs when wait has returned")
					}
					g.leave()
				}
			})
		}
		g.shut()
		for range 2 { // a second call waits, too
			if err := g.wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		over.Store(true)
		wg.Wait()
	}
}
