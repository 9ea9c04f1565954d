//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Socket owns a descriptor that no poller knows.
type Socket struct {
	remote driver.Addr
	ahead  []byte     // what has been read of it and not delivered
	mu     sync.Mutex // of a frozen connection: its loop may close what another goroutine lends
	// mu guards what follows.
	fd     int32 // -1 once it has been given on, or closed
	lent   int16 // calls of Lend that use fd
	closes bool  // the last of them closes it
	shared bool  // there may be a duplicate of it
}

// A Descriptor is a socket that a driver has taken: it owns FD from then on.
type Descriptor struct {
	FD     int
	Ahead  []byte // to be delivered before what FD has
	Shared bool   // there may be a duplicate of FD: shut it down, where closing it must end the connection
}

// Take gives the descriptor to a driver that attaches the socket, which need not be one of this
// package. It fails with driver.ErrUnsupported for a Socket of another System, and with
// driver.ErrStale for one that was consumed before. Close then does nothing.
func Take(sock driver.Socket) (Descriptor, error) {
	s, ok := sock.(*Socket)
	if !ok {
		return Descriptor{}, fmt.Errorf("posix: take a %T: %w", sock, driver.ErrUnsupported)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return Descriptor{}, driver.ErrStale
	}
	d := Descriptor{int(s.fd), s.ahead, s.shared}
	s.fd, s.ahead = -1, nil
	return d, nil
}

func newSocket(fd int) *Socket { return &Socket{fd: int32(fd), remote: peerAddr(fd)} }

// Local asks the kernel; Remote is known from accept.
func (s *Socket) Local() driver.Addr  { return localAddr(int(s.fd)) }
func (s *Socket) Remote() driver.Addr { return s.remote }

// Close closes the descriptor unless it was given on. While it is lent that comes later.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fd := int(s.fd)
	s.fd = -1
	switch {
	case fd < 0:
		return nil
	case s.lent > 0:
		s.closes = true
		return nil
	}
	return unix.Close(fd)
}

// lend calls f with the descriptor, which is open until f returns. mu is not held meanwhile: the
// loop that closes the socket must not wait for f.
func (s *Socket) lend(f func(fd uintptr)) error {
	s.mu.Lock()
	fd := int(s.fd)
	if fd < 0 {
		s.mu.Unlock()
		return driver.ErrStale
	}
	s.lent++
	s.shared = true // f makes a duplicate
	s.mu.Unlock()
	defer s.returned(fd)
	f(uintptr(fd))
	return nil
}

// returned is the end of a call of lend.
func (s *Socket) returned(fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lent--; s.lent == 0 && s.closes {
		_ = unix.Close(fd)
	}
}

// Conn makes an ordinary net.Conn of the socket, whose first bytes are those that were read ahead.
func (s *Socket) Conn() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return nil, driver.ErrStale
	}
	f := os.NewFile(uintptr(s.fd), "myriad-detached")
	s.fd = -1
	defer f.Close() // FileConn has a duplicate of its own
	nc, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return driver.Ahead(nc, s.ahead), nil
}

// importConn duplicates the descriptor of nc and closes nc, which takes it out of the runtime's
// poller while the socket lives on.
func importConn(nc net.Conn) (*Socket, error) {
	nc, ahead := driver.SplitAhead(nc)
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nil, fmt.Errorf("posix: import of %T: %w", nc, driver.ErrUnsupported)
	}
	fd, err := duplicate(nc.(syscall.Conn))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("posix: import of %v: %w", nc.RemoteAddr(), err), nc.Close())
	}
	_ = nc.Close()
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("posix: import: %w", err)
	}
	if _, ok := nc.(*net.TCPConn); ok {
		limitUnsent(fd)
	}
	s := newSocket(fd)
	s.ahead, s.shared = ahead, true
	return s, nil
}

func duplicate(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var dupErr error
	if err := raw.Control(func(orig uintptr) {
		fd, dupErr = unix.FcntlInt(orig, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return -1, err
	}
	return fd, dupErr
}

// A File is a duplicate descriptor of a user's file. Its offset is shared with the original and
// never used.
type File struct{ fd int }

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n, err := unix.Pread(f.fd, p, off)
	return max(n, 0), err
}

// Close closes the duplicate.
func (f *File) Close() error { return unix.Close(f.fd) }

func socketError(fd int) unix.Errno {
	v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return unix.EBADF
	}
	return unix.Errno(v)
}

// addrFrom16 is an IPv4 address for those in ::ffff:0:0/96, as a dual-stack listener reports its
// IPv4 peers.
func addrFrom16(ip [16]byte, zone uint32, port uint16) driver.Addr {
	if ip4, ok := mapped(ip); ok {
		return driver.AddrFrom4(ip4, port)
	}
	return driver.AddrFrom16(ip, zone, port)
}

func mapped(ip [16]byte) (ip4 [4]byte, ok bool) {
	if [12]byte(ip[:12]) != [12]byte{10: 0xff, 11: 0xff} {
		return ip4, false
	}
	return [4]byte(ip[12:]), true
}

// startConnect opens a socket and begins to connect; the end shows as writability.
func startConnect(addr net.Addr, alive time.Duration) (int, error) {
	family, sa, err := sockaddrOf(addr)
	if err != nil {
		return -1, err
	}
	fd, err := newStream(family)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if family != unix.AF_UNIX {
		setTCPOptions(fd)
		setKeepAlive(fd, alive)
	}
	if err := unix.Connect(fd, sa); err != nil && err != unix.EINPROGRESS && err != unix.EINTR {
		unix.Close(fd)
		return -1, os.NewSyscallError("connect", err)
	}
	return fd, nil
}

func sockaddrOf(addr net.Addr) (int, unix.Sockaddr, error) {
	switch addr := addr.(type) {
	case *net.TCPAddr:
		ap := addr.AddrPort()
		if ip := ap.Addr().Unmap(); ip.Is4() {
			return unix.AF_INET, &unix.SockaddrInet4{Addr: ip.As4(), Port: addr.Port}, nil
		}
		return unix.AF_INET6, &unix.SockaddrInet6{Addr: ap.Addr().As16(), Port: addr.Port,
			ZoneId: driver.ZoneID(addr.Zone)}, nil
	case *net.UnixAddr:
		return unix.AF_UNIX, &unix.SockaddrUnix{Name: addr.Name}, nil
	}
	return 0, nil, fmt.Errorf("address of type %T: %w", addr, driver.ErrUnsupported)
}
