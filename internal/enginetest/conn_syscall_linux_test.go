package enginetest

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// control runs f by c's SyscallConn.
func control(t *testing.T, c *myriad.Conn, f func(fd int) error) error {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// acceptOne returns a connection that e has accepted, and the address of its listener. Its peer is
// closed with the test.
func acceptOne(t *testing.T, e *myriad.Engine, network, addr string) (*myriad.Conn, net.Addr) {
	t.Helper()
	h := newProbe()
	ln, err := e.Listen(network, addr, h)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return await(t, "Opened", h.opens), ln.Addr()
}

// A server on a unix socket learns of the process at the other end.
func TestPeerCredentials(t *testing.T) {
	c, _ := acceptOne(t, start(t, myriad.Config{}), "unix", filepath.Join(t.TempDir(), "s"))
	if err := control(t, c, func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil && int(cred.Pid) != syscall.Getpid() {
			t.Errorf("the peer is process %d, want %d", cred.Pid, syscall.Getpid())
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

func tcpInfo(fd int) error {
	_, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err
}

// asker asks for TCP_INFO inside of a callback of its own loop.
type asker struct {
	*probe
	t *testing.T
}

func (a asker) Received(c *myriad.Conn, p []byte) {
	if err := control(a.t, c, tcpInfo); err != nil {
		a.t.Errorf("in a callback: %v", err)
	}
	c.Write(p)
}

func TestSyscallConn(t *testing.T) {
	e := start(t, myriad.Config{Loops: 1})
	h := newProbe()
	ln, err := e.Listen("tcp", "127.0.0.1:0", asker{h, t})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := await(t, "Opened", h.opens)
	send(t, nc, []byte("x"))
	expect(t, nc, []byte("x"))
	if err := control(t, c, tcpInfo); err != nil {
		t.Errorf("on a goroutine: %v", err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	never := func(uintptr) bool { t.Error("called"); return true }
	if err := raw.Read(never); !errors.Is(err, myriad.ErrUnsupported) {
		t.Errorf("Read: %v", err)
	}
	if err := raw.Write(never); !errors.Is(err, myriad.ErrUnsupported) {
		t.Errorf("Write: %v", err)
	}
	nc.Close()
	await(t, "Closed", h.closes)
	if err := raw.Control(func(uintptr) { t.Error("called") }); !errors.Is(err, myriad.ErrClosed) {
		t.Errorf("after Closed: %v", err)
	}
}

// In a callback of another loop Control does not wait.
func TestSyscallConnOfAnotherLoop(t *testing.T) {
	e := start(t, myriad.Config{Loops: 2})
	h := newProbe()
	ln, err := e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*myriad.Conn
	for conns[0] == nil || conns[1] == nil {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		c := await(t, "Opened", h.opens)
		conns[c.Loop().Index()] = c
	}
	answer := make(chan error, 1)
	if err := conns[0].Loop().Do(func() { answer <- control(t, conns[1], tcpInfo) }); err != nil {
		t.Fatal(err)
	}
	if err := await(t, "Do", answer); !errors.Is(err, myriad.ErrOnLoop) {
		t.Errorf("Control: %v, want ErrOnLoop", err)
	}
}

// An adopted net.Conn without a descriptor of its own has that of what is below, or none.
func TestSyscallConnOfAdopted(t *testing.T) {
	e := start(t, myriad.Config{})
	here, there := net.Pipe()
	defer there.Close()
	h := newProbe()
	c, err := e.Adopt(here, nil, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := control(t, c, tcpInfo); !errors.Is(err, myriad.ErrUnsupported) {
		t.Errorf("of a pipe: %v", err)
	}
	c.Abort(context.Canceled)
	await(t, "Closed", h.closes)
}

// A driver without descriptors refuses.
func TestSyscallConnOfTheSimulator(t *testing.T) {
	s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1})
	defer s.finish()
	h := newProbe()
	asked := false
	h.opened = func(c *myriad.Conn) {
		asked = true
		if err := control(t, c, tcpInfo); !errors.Is(err, myriad.ErrUnsupported) {
			t.Errorf("SyscallConn: %v, want ErrUnsupported", err)
		}
	}
	s.Dial(s.listen(h).Addr())
	s.RunFor(time.Second)
	if !asked {
		t.Error("no connection came")
	}
}
