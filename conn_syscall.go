package myriad

import (
	"fmt"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/myriad-go/myriad/internal/driver"
)

var _ syscall.Conn = (*Conn)(nil)

// SyscallConn gives access to the connection's descriptor, for what sockets can be asked and told:
// SO_PEERCRED, TCP_INFO, TCP_KEEPIDLE and the like. It fails with ErrUnsupported where the driver
// has no descriptor, or the conn was adopted and its net.Conn has none. Any goroutine.
//
// Control runs its function on the conn's loop, so that the descriptor stays open meanwhile; the
// function must not block. Off the loop it waits for that. In a callback of another loop, where it
// must not wait, it fails with ErrOnLoop, and with ErrClosed after the end of the connection. Read
// and Write fail: bytes come to the handler and leave by the conn's methods.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if b := c.bridged(); b != nil {
		return b.syscallConn()
	}
	if c.loop.can.Control == nil {
		return nil, fmt.Errorf("myriad: SyscallConn: %w: the driver has no descriptor to show", ErrUnsupported)
	}
	return rawConn{c}, nil
}

// syscallConn is that of the net.Conn that was adopted, or of the one below it.
func (b *bridge) syscallConn() (syscall.RawConn, error) {
	for nc := any(b.outer); nc != nil; {
		if sc, ok := nc.(syscall.Conn); ok {
			return sc.SyscallConn()
		}
		inside, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		nc = inside.NetConn()
	}
	return nil, fmt.Errorf("myriad: SyscallConn: %w: a %T has no descriptor to show", ErrUnsupported, b.outer)
}

// A rawConn is a Conn as a syscall.RawConn.
type rawConn struct{ c *Conn }

// Control implements syscall.RawConn.
func (r rawConn) Control(f func(fd uintptr)) error {
	l := r.c.loop
	if l.shifts.owner.Load() == driver.Goroutine() && OnLoop() {
		return r.c.control(f)
	}
	if !l.engine.HandOff() {
		return ErrOnLoop
	}
	var (
		err    error
		done   atomic.Bool // err is written before it
		waiter = l.engine.sys.NewParker()
	)
	if busy := l.Do(func() {
		defer func() {
			done.Store(true)
			waiter.Unpark()
		}()
		err = r.c.control(f)
	}); busy != nil {
		return busy
	}
	for !done.Load() {
		waiter.Park()
	}
	return err
}

// control is Control on the loop.
func (c *Conn) control(f func(fd uintptr)) error {
	if c.phase() == closed || c.is(connecting) || c.closeAsked() {
		return ErrClosed
	}
	if err := c.loop.can.Control(c.id, f); err != nil {
		return fmt.Errorf("myriad: Control: %w", err)
	}
	return nil
}

// Read implements syscall.RawConn.
func (rawConn) Read(func(fd uintptr) bool) error {
	return fmt.Errorf("myriad: RawConn.Read: %w: bytes come to the handler", ErrUnsupported)
}

// Write implements syscall.RawConn.
func (rawConn) Write(func(fd uintptr) bool) error {
	return fmt.Errorf("myriad: RawConn.Write: %w: use Conn.Write", ErrUnsupported)
}
