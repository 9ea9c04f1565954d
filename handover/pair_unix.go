//go:build unix

package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// pair makes the two ends of a channel. No other child gets either of them: a child that held the
// end of another one would hide its death.
func pair() (mine *net.UnixConn, its *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	f, its := os.NewFile(uintptr(fds[0]), "handover"), os.NewFile(uintptr(fds[1]), "handover")
	defer f.Close()
	nc, err := net.FileConn(f)
	if err != nil {
		return nil, nil, errors.Join(err, its.Close())
	}
	mine, ok := nc.(*net.UnixConn)
	if !ok {
		return nil, nil, errors.Join(fmt.Errorf("a socket pair is a %T", nc), nc.Close(), its.Close())
	}
	return mine, its, nil
}
