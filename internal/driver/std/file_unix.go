//go:build unix

package std

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// lend duplicates a listener's descriptor. With package net's own duplicate, os.File.Fd would set
// both to blocking, and Accept would block beyond its deadline.
func lend(nl netListener) (*os.File, error) {
	raw, err := nl.SyscallConn()
	if err != nil {
		return nil, err
	}
	dup, failed := -1, error(nil)
	if err := raw.Control(func(fd uintptr) { dup, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, os.NewSyscallError("dup", failed)
	}
	return os.NewFile(uintptr(dup), "listener "+nl.Addr().String()), nil
}

// reopen opens the file again by its descriptor where the system has a way to, which gives it an
// offset of its own. Else the descriptor is duplicated, and the shared offset never used.
func reopen(f *os.File) (*File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var file *File
	var failed error
	if err := raw.Control(func(fd uintptr) { file, failed = reopenDescriptor(int(fd), f.Name()) }); err != nil {
		return nil, err
	}
	return file, failed
}

func reopenDescriptor(fd int, name string) (*File, error) {
	var kind unix.Stat_t
	if runtime.GOOS == "linux" && unix.Fstat(fd, &kind) == nil && kind.Mode&unix.S_IFMT == unix.S_IFREG {
		if own, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			return &File{os.NewFile(uintptr(own), name), true}, nil
		}
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return &File{os.NewFile(uintptr(dup), name), false}, nil
}
