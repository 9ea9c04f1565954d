//go:build race && (linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package posix

import "golang.org/x/sys/unix"

// rawWritev writes one vector after the other, until one is not taken whole.
func rawWritev(fd int, vectors [][]byte, _ *[vectorsPerWrite]unix.Iovec) (int, unix.Errno) {
	total := 0
	for _, p := range vectors {
		n, errno := rawWrite(fd, p)
		total += n
		if errno != 0 && total == 0 {
			return 0, errno
		}
		if n < len(p) {
			break
		}
	}
	return total, 0
}
