//go:build !race

package posix

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These calls return at once, so they skip the scheduler's bookkeeping of an ordinary system call;
// docs/adr/0002 defends the unsafe pointers: each lives for one call only, on memory that its
// caller holds.

func rawRead(fd int, p []byte) (int, unix.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func rawWrite(fd int, p []byte) (int, unix.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func rawWritev(fd int, vectors [][]byte, iovecs *[vectorsPerWrite]unix.Iovec) (int, unix.Errno) {
	for i, p := range vectors {
		iovecs[i].Base = unsafe.SliceData(p)
		iovecs[i].SetLen(len(p))
	}
	n, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&iovecs[0])),
		uintptr(len(vectors)))
	clear(iovecs[:len(vectors)])
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
