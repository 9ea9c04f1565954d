//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Listener is a listening descriptor of our own. The net package binds it, since it knows names,
// families and dual stacks; its listener is then closed, because the runtime's poller would wake
// for every connect.
type Listener struct {
	fd     int
	addr   net.Addr
	unlink string // the path of a unix socket, removed on Refuse

	mu      sync.Mutex
	shared  int // duplicates of the descriptor: the address is theirs, too
	refused bool
	closed  bool
}

func listen(ctx context.Context, network, addr string) (*Listener, error) {
	if err := driver.CheckNetwork(network); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // its sockets cost twice the time of plain TCP
	nl, err := lc.Listen(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	defer nl.Close()
	l := &Listener{addr: nl.Addr()}
	if l.fd, err = duplicate(nl.(syscall.Conn)); err != nil {
		return nil, fmt.Errorf("posix: listen on %v: %w", nl.Addr(), err)
	}
	if ul, ok := nl.(*net.UnixListener); ok {
		ul.SetUnlinkOnClose(false) // from here on its name is ours to remove
		l.unlink = path(l.addr)
	}
	if network != "unix" {
		setTCPOptions(l.fd) // accepted sockets inherit them
	}
	return l, nil
}

// path is the file that a unix socket's address is; empty if there is none.
func path(addr net.Addr) string {
	if name := addr.String(); name != "" && name[0] != '@' {
		return name
	}
	return ""
}

// Addr is the bound address.
func (l *Listener) Addr() net.Addr { return l.addr }

// File duplicates the descriptor for another process. From then on Refuse and Close leave the
// address alone: peers that come are the duplicate's.
func (l *Listener) File() (*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused || l.closed {
		return nil, net.ErrClosed
	}
	fd, err := unix.FcntlInt(uintptr(l.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	l.shared++
	return os.NewFile(uintptr(fd), "listener "+l.addr.String()), nil
}

// Unshare says that one duplicate is gone.
func (l *Listener) Unshare() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared--
}

// Refuse ends listening: the kernel resets waiting peers and frees the address, while the
// descriptor's number stays ours.
func (l *Listener) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doRefuse()
}

func (l *Listener) doRefuse() {
	if l.refused || l.closed {
		return
	}
	l.refused = true
	if l.shared > 0 {
		return
	}
	if l.unlink != "" {
		_ = os.Remove(l.unlink)
	}
	stopListening(l.fd)
}

// Close closes the descriptor, once.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.doRefuse()
	l.closed = true
	return unix.Close(l.fd)
}
