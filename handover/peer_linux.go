package handover

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ErrPeer says that the other process is of another user.
var ErrPeer = errors.New("the other process belongs to another user")

// checkPeer fails unless the process at the other end is of this user, or of root.
func checkPeer(nc *net.UnixConn) error {
	raw, err := nc.SyscallConn()
	if err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	var who *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET,
			unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return fmt.Errorf("handover: credentials of the other process: %w", errors.Join(cerr, err))
	}
	if int(who.Uid) != os.Geteuid() && who.Uid != 0 {
		return fmt.Errorf("handover: %w: process %d has the uid %d, this one %d", ErrPeer, who.Pid, who.Uid,
			os.Geteuid())
	}
	return nil
}
