//go:build !unix && !windows

package std

import (
	"fmt"
	"os"
	"runtime"

	"github.com/myriad-go/myriad/internal/driver"
)

// lend duplicates a listener's descriptor.
func lend(nl netListener) (*os.File, error) { return nl.File() }

// reopen fails: a name may be another file's by now, and there is nothing else to open it by.
func reopen(*os.File) (*File, error) {
	return nil, fmt.Errorf("std: files cannot be duplicated on %s: %w", runtime.GOOS, driver.ErrUnsupported)
}
