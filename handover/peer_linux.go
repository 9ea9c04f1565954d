package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrPeer says that the other process is of another user.
var ErrPeer = errors.New("the other process belongs to another user")

// checkPeer fails unless the process at the other end is of this user, or of root.
func checkPeer(nc *net.UnixConn) error {
	who, err := peerOf(nc)
	if err != nil {
		return fmt.Errorf("handover: credentials of the other process: %w", err)
	}
	if int(who.Uid) != os.Geteuid() && who.Uid != 0 {
		return fmt.Errorf("handover: %w: process %d has the uid %d, this one %d", ErrPeer, who.Pid, who.Uid,
			os.Geteuid())
	}
	return nil
}

// peerOf returns the credentials of the process that has made the other end of nc.
func peerOf(nc *net.UnixConn) (who *unix.Ucred, err error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) {
		who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET,
			unix.SO_PEERCRED)
	})
	return who, errors.Join(failed, err)
}

// endWait is how long a process that is being killed may take until nothing of it is left. Its
// descriptors are closed a little earlier.
const endWait = time.Second

// peerEnded reports whether the process has ended that has made the other end of nc. A number that
// another process has got meanwhile counts as one that lives.
func peerEnded(nc *net.UnixConn) bool {
	who, err := peerOf(nc)
	if err != nil || who.Pid <= 0 { // 0: it is in a namespace that this process does not see
		return false
	}
	fd, err := unix.PidfdOpen(int(who.Pid), 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(endWait.Milliseconds()))
		if err != unix.EINTR {
			return n > 0
		}
	}
}
