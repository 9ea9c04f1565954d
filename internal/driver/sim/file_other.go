//go:build !unix

package sim

import (
	"os"

	"github.com/myriad-go/myriad/internal/driver"
)

// duplicate has no descriptors to copy here.
func duplicate(f *os.File) (driver.File, error) {
	return nil, &os.PathError{Op: "duplicate", Path: f.Name(), Err: driver.ErrUnsupported}
}
