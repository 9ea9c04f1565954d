package sim_test

import (
	"fmt"
	"testing"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/drivertest"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

func TestConformance(t *testing.T) {
	for _, world := range []struct {
		name string
		o    sim.Options
	}{
		{"calm", sim.Calm()},
		{"lossless", sim.Options{Reset: -1, Dial: -1}},
		{"bound", sim.Options{Reset: -1, Dial: -1, ThreadBound: true}},
	} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%s/%d", world.name, seed), func(t *testing.T) {
				drivertest.Run(t, func(t drivertest.T) (driver.System, drivertest.Harness) {
					w := sim.New(seed, world.o)
					t.Cleanup(func() {
						if t.Failed() {
							t.Logf("seed %d; the last steps:\n%s", seed, tail(w.Trace(), 40))
						}
					})
					return w, drivertest.SimHarness(w)
				})
			})
		}
	}
}

func tail(s string, lines int) string {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '\n' {
			if lines--; lines < 0 {
				return s[i+1:]
			}
		}
	}
	return s
}
