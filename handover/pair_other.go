//go:build !unix

package handover

import (
	"fmt"
	"net"
	"os"

	"github.com/myriad-go/myriad/internal/driver"
)

func pair() (*net.UnixConn, *os.File, error) {
	return nil, nil, fmt.Errorf("%w: this system sends no descriptors", driver.ErrUnsupported)
}
