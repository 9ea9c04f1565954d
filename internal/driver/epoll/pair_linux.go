package epoll

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// Pair connects a socket for a driver with a net.Conn for goroutines: the engine's way to serve a net.Conn that has no
// descriptor.
func (System) Pair() (driver.Socket, net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	other := newSocket(fds[1])
	nc, err := other.Conn()
	if err != nil {
		unix.Close(fds[0])
		return nil, nil, fmt.Errorf("epoll: pair: %w", err)
	}
	return newSocket(fds[0]), nc, nil
}
