//go:build !linux

package myriad

import (
	"fmt"
	"runtime"

	"github.com/myriad-go/myriad/internal/driver"
)

// systemFor fails: no driver for this platform exists yet.
func systemFor(name string) (driver.System, error) {
	return nil, fmt.Errorf("myriad: driver %q on %s: %w (only linux has one so far)", name, runtime.GOOS, ErrUnsupported)
}
