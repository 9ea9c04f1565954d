package epoll

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// epollWait waits by an ordinary call, which gives the processor away, only if it may sleep.
func epollWait(fd int, events []unix.EpollEvent, ms int) (int, error) {
	if ms != 0 {
		return unix.EpollWait(fd, events, ms)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
