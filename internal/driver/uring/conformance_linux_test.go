package uring

import (
	"testing"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/bound"
	"github.com/myriad-go/myriad/internal/driver/drivertest"
	"github.com/myriad-go/myriad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// needsRing skips a test where the kernel refuses io_uring.
func needsRing(t *testing.T) {
	t.Helper()
	if err := Probe(); err != nil {
		t.Skip(err)
	}
}

func TestConformance(t *testing.T) {
	needsRing(t)
	drivertest.Run(t, func(t drivertest.T) (driver.System, drivertest.Harness) {
		return System{}, drivertest.NetHarness(t)
	})
}

// TestThreadBound runs the suite where calls from more than one thread panic.
func TestThreadBound(t *testing.T) {
	needsRing(t)
	drivertest.Run(t, func(t drivertest.T) (driver.System, drivertest.Harness) {
		return bound.System{System: System{}}, drivertest.NetHarness(t)
	})
}
