package epoll_test

import (
	"testing"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/drivertest"
	"github.com/myriad-go/myriad/internal/driver/epoll"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t drivertest.T) (driver.System, drivertest.Harness) {
		return epoll.System{}, drivertest.NetHarness(t)
	})
}
