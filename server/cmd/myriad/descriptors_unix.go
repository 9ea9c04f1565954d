//go:build unix

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// passedFile returns a duplicate of a listening socket that this process has inherited. It leaves
// the descriptor alone, which may be one of this process's own if nothing was passed.
func passedFile(fd int, name string) (*os.File, error) {
	listens, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
	if err != nil {
		return nil, os.NewSyscallError("getsockopt", err)
	}
	if listens == 0 {
		return nil, syscall.EINVAL
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	twin, err := syscall.Dup(fd)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	syscall.CloseOnExec(twin)
	return os.NewFile(uintptr(twin), name), nil
}

// closePassed closes a descriptor of which passedFile has returned a duplicate.
func closePassed(fd int) error { return os.NewSyscallError("close", syscall.Close(fd)) }

// keepDescriptors has no child inherit a descriptor that this process has inherited, beyond
// standard input, output and error: only those that os/exec passes. Those that this process has
// opened are so already. Without the list of descriptors (no /proc) it does nothing.
func keepDescriptors() {
	folder := "/dev/fd"
	if runtime.GOOS == "linux" {
		folder = "/proc/self/fd"
	}
	names, _ := filepath.Glob(folder + "/*")
	for _, name := range names {
		if fd, err := strconv.Atoi(filepath.Base(name)); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}
