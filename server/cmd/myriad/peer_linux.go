package main

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerPid returns the pid of the process at the other end. It is 0 if the process cannot be seen
// from here, as one of another container.
func peerPid(nc *net.UnixConn) (pid int) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}
