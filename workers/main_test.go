package workers

import (
	"testing"

	"github.com/myriad-go/myriad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// newPool returns a pool that is closed and checked at the end of the test.
func newPool(t *testing.T, c Config) *Pool {
	t.Helper()
	p := New(c)
	t.Cleanup(func() { closeAndCheck(t, p) })
	return p
}

// closeAndCheck drains the pool and checks that its counters agree: it finds a worker that was lost
// or counted twice.
func closeAndCheck(t *testing.T, p *Pool) {
	t.Helper()
	if err := p.Close(t.Context()); err != nil && t.Context().Err() == nil {
		t.Error(err)
	}
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.workers != 0 || p.called != 0 || p.running != 0 || p.stuck != 0 || len(p.fresh) != 0 || len(p.idle) != 0 ||
		p.tasks.n != 0 || p.line.n != 0 || p.monitoring {
		t.Errorf("after Close: workers %d, called %d, running %d, stuck %d, fresh %d, idle %d, queued %d, waiting "+
			"%d, monitor %v",
			p.workers, p.called, p.running, p.stuck, len(p.fresh), len(p.idle), p.tasks.n, p.line.n, p.monitoring)
	}
}
