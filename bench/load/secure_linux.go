package load

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// handshakes is how many are under way at the same time. Each holds a thread while it waits for the
// server.
const handshakes = 32

// A secured connection is crypto/tls on a descriptor. During the handshake it blocks. Afterwards it
// does not: a read without data returns a temporary error, after which tls.Conn continues.
type secured struct {
	*tls.Conn
}

func (s *secured) write(p []byte) error {
	if _, err := s.Conn.Write(p); err != nil {
		return fmt.Errorf("sending a request: %w", err)
	}
	return nil
}

// read takes all that has come, because what tls.Conn has read from the descriptor would not be
// announced again.
func (s *secured) read(p []byte) (n int, err error) {
	for n < len(p) {
		m, err := s.Conn.Read(p[n:])
		n += m
		if err == errNothing && n > 0 {
			return n, nil
		}
		if err == errNothing {
			return 0, unix.EAGAIN
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// errNothing says that there is nothing to read now.
var errNothing net.Error = nothing{}

type nothing struct{}

func (nothing) Error() string   { return "nothing to read now" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

// A descriptor is the net.Conn under a tls.Conn.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(d), p)
		switch err {
		case nil:
			if n == 0 && len(p) > 0 {
				return 0, io.EOF
			}
			return n, nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, errNothing
		default:
			return 0, os.NewSyscallError("read", err)
		}
	}
}

func (d descriptor) Write(p []byte) (int, error) {
	n, err := unix.Write(int(d), p)
	if err != nil {
		return 0, os.NewSyscallError("write", err)
	}
	if n < len(p) {
		return n, fmt.Errorf("the kernel took only %d of %d bytes: the server does not read", n, len(p))
	}
	return n, nil
}

func (descriptor) Close() error                     { return nil } // the driver closes it
func (descriptor) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (descriptor) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (descriptor) SetDeadline(time.Time) error      { return nil }
func (descriptor) SetReadDeadline(time.Time) error  { return nil }
func (descriptor) SetWriteDeadline(time.Time) error { return nil }

// secure opens all connections with a full handshake each, as many at a time as there are
// handshakes.
func (o *opening) secure() error {
	var all sync.WaitGroup
	slots, failed := make(chan int), make(chan error, len(o.conns))
	config := &tls.Config{InsecureSkipVerify: true} // only the cost of TLS is measured, on our own server
	if o.spec.Talk.Reply.Framing == Streams {
		config.NextProtos = []string{"h2"}
	}
	for range min(handshakes, len(o.conns)) {
		all.Go(func() {
			for slot := range slots {
				if err := o.shake(slot, config); err != nil {
					failed <- fmt.Errorf("connection %d of %d: %w", slot+1, len(o.conns), err)
				}
			}
		})
	}
	for slot := range o.conns {
		if len(failed) > 0 {
			break
		}
		slots <- slot
	}
	close(slots)
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// shake connects one, on a descriptor that blocks until the handshake is done. The receive timeout
// bounds a server that is silent.
func (o *opening) shake(slot int, config *tls.Config) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	c := &o.conns[slot]
	c.fd = fd
	limit := unix.NsecToTimeval(int64(patience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return fmt.Errorf("SO_RCVTIMEO: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	if err := unix.Connect(fd, o.to); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.secure = &secured{tls.Client(descriptor(fd), config)}
	if err := c.secure.Handshake(); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	if err := o.preface(c); err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return fmt.Errorf("O_NONBLOCK: %w", err)
	}
	return unix.EpollCtl(o.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(slot)})
}
