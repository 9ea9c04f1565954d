//go:build unix

package sim

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// duplicate gives the file a descriptor of its own, so that it outlives the user's Close.
func duplicate(f *os.File) (driver.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var dupErr error
	if err := raw.Control(func(orig uintptr) {
		fd, dupErr = unix.FcntlInt(orig, unix.F_DUPFD_CLOEXEC,
			0)
	}); err != nil {
		return nil, err
	}
	if dupErr != nil {
		return nil, &os.PathError{Op: "duplicate", Path: f.Name(), Err: dupErr}
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
