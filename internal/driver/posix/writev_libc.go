//go:build !race && (darwin || openbsd)

package posix

import "golang.org/x/sys/unix"

// rawWritev is writev(2) of the system's library.
func rawWritev(fd int, vectors [][]byte, _ *[vectorsPerWrite]unix.Iovec) (int, unix.Errno) {
	return asErrno(unix.Writev(fd, vectors))
}
