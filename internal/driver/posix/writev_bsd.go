//go:build !race && (freebsd || netbsd || dragonfly)

package posix

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawWritev is writev(2), which x/sys does not have for these systems. The pointers live for one
// call, on memory that its caller holds.
func rawWritev(fd int, vectors [][]byte, iovecs *[vectorsPerWrite]unix.Iovec) (int, unix.Errno) {
	for i, p := range vectors {
		iovecs[i].Base = unsafe.SliceData(p)
		iovecs[i].SetLen(len(p))
	}
	n, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&iovecs[0])),
		uintptr(len(vectors)))
	clear(iovecs[:len(vectors)])
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
