//go:build !unix

package handover

import (
	"fmt"
	"net"

	"github.com/myriad-go/myriad/internal/driver"
)

func newChannel(*net.UnixConn, driver.System) (channel, error) {
	return nil, fmt.Errorf("handover: %w: this system sends no descriptors", driver.ErrUnsupported)
}
