//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package kqueue_test

import (
	"testing"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/drivertest"
	"github.com/myriad-go/myriad/internal/driver/kqueue"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t drivertest.T) (driver.System, drivertest.Harness) {
		return kqueue.System{}, drivertest.NetHarness(t)
	})
}
