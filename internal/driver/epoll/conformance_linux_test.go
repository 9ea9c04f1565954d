package epoll_test

import (
	"testing"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/bound"
	"github.com/myriad-go/myriad/internal/driver/drivertest"
	"github.com/myriad-go/myriad/internal/driver/epoll"
)

// TestThreadBound runs the suite on a driver that panics unless all calls come from one thread.
func TestThreadBound(t *testing.T) {
	drivertest.Run(t, func(t drivertest.T) (driver.System, drivertest.Harness) {
		return bound.System{System: epoll.System{}}, drivertest.NetHarness(t)
	})
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t drivertest.T) (driver.System, drivertest.Harness) {
		return epoll.System{}, drivertest.NetHarness(t)
	})
}
