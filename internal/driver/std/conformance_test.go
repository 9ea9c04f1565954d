package std_test

import (
	"path"
	"slices"
	"testing"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/drivertest"
	"github.com/myriad-go/myriad/internal/driver/std"
)

// TestConformance leaves out one case: an Import that must fail, because here every conn can be
// imported (TestForeignConn).
func TestConformance(t *testing.T) { conforms(t, std.System{}, "ImportForeign") }

// TestConformanceQueueOnly is how Windows sends. Its cases that are left out hold the peer to be
// stuck when bytes are queued, which there is so for a moment with every Send.
func TestConformanceQueueOnly(t *testing.T) {
	conforms(t, std.System{QueueOnly: true}, "ImportForeign", "BackPressure", "CloseDropsTheQueue")
}

func conforms(t *testing.T, sys driver.System, except ...string) {
	drivertest.Run(t, func(t drivertest.T) (driver.System, drivertest.Harness) {
		if slices.Contains(except, path.Base(t.Name())) {
			t.Skipf("does not hold for this driver")
		}
		return sys, drivertest.NetHarness(t)
	})
}
