//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// accept takes a peer. Options are not trusted to be inherited: the systems differ.
func accept(fd int) (int, driver.Addr, error) {
	conn, sa, err := acceptStream(fd)
	if err != nil {
		return -1, driver.Addr{}, err
	}
	if _, local := sa.(*unix.SockaddrUnix); local {
		noSignals(conn)
	} else {
		setTCPOptions(conn)
	}
	return conn, addrOf(sa), nil
}

func localAddr(fd int) driver.Addr {
	sa, _ := unix.Getsockname(fd)
	return addrOf(sa)
}

func peerAddr(fd int) driver.Addr {
	sa, _ := unix.Getpeername(fd)
	return addrOf(sa)
}

func addrOf(sa unix.Sockaddr) driver.Addr {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return driver.AddrFrom4(sa.Addr, uint16(sa.Port))
	case *unix.SockaddrInet6:
		return addrFrom16(sa.Addr, sa.ZoneId, uint16(sa.Port))
	case *unix.SockaddrUnix:
		return driver.UnixAddr
	}
	return driver.Addr{}
}

// limitUnsent is for kernels that are known to take much for peers that do not read.
func limitUnsent(int) {}

// setTCPOptions gives a socket the values that the net package gives its own. What fails is an
// optimisation.
func setTCPOptions(fd int) {
	noSignals(fd)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

// optionsAreInherited is false: the systems differ.
const optionsAreInherited = false

// stopListening closes the socket and keeps its number: one that never listened takes its place, on
// which accepting fails with EINVAL. shutdown does nothing to a listener on these systems.
func stopListening(fd int) {
	idle, err := newStream(unix.AF_UNIX)
	if err != nil {
		return // no descriptor is left: peers are refused when the listener is closed
	}
	replace(fd, idle)
	unix.Close(idle)
}
