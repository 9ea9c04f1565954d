package std

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Listener lets the goroutines of several drivers accept from one net.Listener, and each be
// interrupted alone.
type Listener struct {
	nl netListener

	mu      sync.Mutex
	resumed sync.Cond // poked is over
	inside  int       // goroutines in Accept
	poked   bool      // the deadline has passed, until all of them are out
	shared  int       // duplicates of the descriptor: the address is theirs, too
	refused bool
	closed  bool
}

// netListener is what *net.TCPListener and *net.UnixListener have.
type netListener interface {
	net.Listener
	SetDeadline(t time.Time) error
	File() (*os.File, error)
	SyscallConn() (syscall.RawConn, error)
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
	l := &Listener{nl: nl.(netListener)}
	l.resumed.L = &l.mu
	return l, nil
}

var errInterrupted = errors.New("std: accepting was interrupted")

// accept waits for a peer, as long as wanted says so: it is asked under the lock that interrupt
// takes.
func (l *Listener) accept(wanted func() bool) (net.Conn, error) {
	if !l.enter(wanted) {
		return nil, errInterrupted
	}
	nc, err := l.nl.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside--; l.inside == 0 && l.poked {
		l.poked = false
		_ = l.nl.SetDeadline(time.Time{})
		l.resumed.Broadcast()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errInterrupted
	}
	return nc, err
}

func (l *Listener) enter(wanted func() bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.poked {
		l.resumed.Wait()
	}
	if !wanted() {
		return false
	}
	l.inside++
	return true
}

// interrupt makes all goroutines come out of accept, or out of what comes before. Those that want
// to go back in.
func (l *Listener) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside > 0 && !l.poked {
		l.poked = true
		_ = l.nl.SetDeadline(longAgo)
	}
}

// Addr is the bound address.
func (l *Listener) Addr() net.Addr { return l.nl.Addr() }

// File duplicates the descriptor for another process. From then on Refuse and Close leave the
// address alone: peers that come are the duplicate's.
func (l *Listener) File() (*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused || l.closed {
		return nil, net.ErrClosed
	}
	if runtime.GOOS == "windows" {
		return nil, fmt.Errorf("std: a listener on windows has no file: %w", driver.ErrUnsupported)
	}
	f, err := lend(l.nl)
	if err != nil {
		return nil, err
	}
	l.shared++
	return f, nil
}

// Unshare says that one duplicate is gone.
func (l *Listener) Unshare() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared--
}

// Refuse closes the net.Listener, which ends the goroutines inside.
func (l *Listener) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doRefuse()
}

func (l *Listener) doRefuse() {
	if l.refused {
		return
	}
	l.refused = true
	if ul, ok := l.nl.(interface{ SetUnlinkOnClose(bool) }); ok {
		ul.SetUnlinkOnClose(l.shared == 0)
	}
	_ = l.nl.Close()
}

// Close is Refuse, once.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.doRefuse()
	l.closed = true
	return nil
}
