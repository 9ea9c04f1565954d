package posix

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// A sockaddr is where the kernel writes an address. x/sys makes three objects of each, 150 bytes of
// garbage for a peer that comes; these are used again. docs/adr/0002 defends the unsafe pointers.
type sockaddr struct {
	raw  unix.RawSockaddrAny
	size uint32
}

var sockaddrs = sync.Pool{New: func() any { return new(sockaddr) }}

// accept takes a peer, whose socket does not block.
func accept(fd int) (int, driver.Addr, error) {
	a := sockaddrs.Get().(*sockaddr)
	defer sockaddrs.Put(a)
	n, _, errno := unix.Syscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)),
		uintptr(unsafe.Pointer(a.room())),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, driver.Addr{}, errno
	}
	return int(n), a.addr(), nil
}

func localAddr(fd int) driver.Addr { return endAddr(unix.SYS_GETSOCKNAME, fd) }

func peerAddr(fd int) driver.Addr { return endAddr(unix.SYS_GETPEERNAME, fd) }

// endAddr asks for the address of one end, the zero one if there is none.
func endAddr(call uintptr, fd int) driver.Addr {
	a := sockaddrs.Get().(*sockaddr)
	defer sockaddrs.Put(a)
	_, _, errno := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)),
		uintptr(unsafe.Pointer(a.room())))
	if errno != 0 {
		return driver.Addr{}
	}
	return a.addr()
}

// room tells the kernel how much it may write, and then what it has written. A unix peer without a
// name writes none.
func (a *sockaddr) room() *uint32 {
	a.raw, a.size = unix.RawSockaddrAny{}, unix.SizeofSockaddrAny
	return &a.size
}

// addr is the address that the kernel has written, which is of one of the families of our
// listeners.
func (a *sockaddr) addr() driver.Addr {
	switch a.raw.Addr.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(&a.raw))
		return driver.AddrFrom4(in.Addr, hostOrder(in.Port))
	case unix.AF_INET6:
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(&a.raw))
		return addrFrom16(in.Addr, in.Scope_id, hostOrder(in.Port))
	case unix.AF_UNIX:
		return driver.UnixAddr
	}
	return driver.Addr{}
}

// hostOrder is a port as the machine counts.
func hostOrder(port uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(make([]byte, 0, 2), port))
}
