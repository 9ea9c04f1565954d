package sim

import (
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// parker is a permit. Only one goroutine may wait for it at a time.
type parker struct {
	w      *World
	permit bool
	wt     *waiter
}

// NewParker implements driver.System. Park hands the token back until the permit is there; called
// from outside the world, it drives the world meanwhile. Unpark may be called from anywhere.
func (w *World) NewParker() driver.Parker { return &parker{w: w} }

func (p *parker) Park() { p.ParkFor(0) }

// ParkFor waits in fake time; 0 is without end.
func (p *parker) ParkFor(d time.Duration) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.wt != nil {
		w.fail("two goroutines wait on one Parker: it serves one at a time")
	}
	if !p.permit {
		p.wt = w.newWaiter(d)
		defer func() { p.wt = nil }()
		w.wait(p.wt, "Park")
	}
	p.permit = false
}

func (p *parker) Unpark() {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	p.permit = true
	w.wake(p.wt)
}
