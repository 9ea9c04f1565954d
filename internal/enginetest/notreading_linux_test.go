package enginetest

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad"
)

// What a peer does not read waits in the connection's queue, where limits count it, and not in the
// kernel, but for a little: of connections that the engine has accepted, and of those that others
// have and that it adopts.
func TestKernelKeepsLittleForDeafPeers(t *testing.T) {
	const written, least = 2 << 20, 1 << 20
	listen := map[string]func(*myriad.Engine, myriad.Handler) net.Addr{
		"accepted": func(e *myriad.Engine, h myriad.Handler) net.Addr {
			ln, err := e.Listen("tcp", "127.0.0.1:0", h)
			if err != nil {
				t.Fatal(err)
			}
			return ln.Addr()
		},
		"adopted": func(e *myriad.Engine, h myriad.Handler) net.Addr {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer ln.Close()
				if nc, err := ln.Accept(); err != nil {
					t.Error(err)
				} else if _, err = e.Adopt(nc, nil, h); err != nil {
					t.Error(err)
				}
			}()
			return ln.Addr()
		},
	}
	for name, listen := range listen {
		t.Run(name, func(t *testing.T) {
			queued := make(chan int, 1)
			h := newProbe()
			h.opened = func(c *myriad.Conn) {
				if n, err := c.Write(make([]byte, written)); n != written || err != nil {
					t.Errorf("Write of %d bytes: %d, %v", written, n, err)
				}
				c.Loop().Later(func() { queued <- c.Queued() }) // when the turn has sent what it could
			}
			addr := listen(start(t, myriad.Config{Driver: "epoll"}), h)
			small := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
				_ = c.Control(func(fd uintptr) {
					err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF,
						4<<10)
				})
				return err
			}}
			notReading, err := small.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer notReading.Close()
			if n := await(t, "the end of the turn", queued); n < least {
				t.Errorf("of %d bytes %d are queued: the kernel has taken the others for a peer that does not read",
					written, n)
			}
		})
	}
}
