//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// Pair connects a socket for a driver with a net.Conn for goroutines: the engine's way to serve a
// net.Conn that has no descriptor.
func (Sockets) Pair() (driver.Socket, net.Conn, error) {
	fds, err := newStreams()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	other := newSocket(fds[1])
	nc, err := other.Conn()
	if err != nil {
		unix.Close(fds[0])
		return nil, nil, fmt.Errorf("posix: pair: %w", err)
	}
	return newSocket(fds[0]), nc, nil
}
