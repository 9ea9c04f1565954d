package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/leaktest"
)

// A failed Dial calls no handler.
func TestDialFails(t *testing.T) {
	e := start(t, myriad.Config{})
	_, refusing := boundSocket(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	short, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer stop()
	for _, tc := range []struct {
		ctx           context.Context
		network, addr string
		want          error
	}{
		{t.Context(), "tcp", refusing, syscall.ECONNREFUSED},
		{t.Context(), "unix", filepath.Join(t.TempDir(), "none"), syscall.ENOENT},
		{cancelled, "tcp", refusing, context.Canceled},
		{short, "tcp", fullBacklog(t), context.DeadlineExceeded},
		{t.Context(), "udp", refusing, myriad.ErrUnsupported},
	} {
		h := newProbe()
		c, err := e.Dial(tc.ctx, tc.network, tc.addr, h)
		if c != nil || !errors.Is(err, tc.want) {
			t.Errorf("Dial %s %s: %v, want %v", tc.network, tc.addr, err, tc.want)
		}
		if h.openings.Load()+h.closing.Load() != 0 {
			t.Errorf("Dial %s %s: the handler was called", tc.network, tc.addr)
		}
	}
}

// boundSocket returns a socket whose address refuses connects while it does not listen: no other
// process is given its port before the test ends.
func boundSocket(t *testing.T) (fd int, addr string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, fmt.Sprintf("127.0.0.1:%d", sa.(*syscall.SockaddrInet4).Port)
}

// fullBacklog is an address that answers no connect.
func fullBacklog(t *testing.T) string {
	fd, addr := boundSocket(t)
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for wait := patience; ; wait = 50 * time.Millisecond { // the first is connected, however long it takes
		nc, err := net.DialTimeout("tcp", addr, wait)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { nc.Close() })
	}
}

// Without descriptors no connection is accepted, and open ones are still served. The limit is
// lowered in a child.
func TestFewFiles(t *testing.T) {
	if os.Getenv(fewFilesEnv) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFewFiles$", "-test.timeout=5m")
		cmd.Env = append(os.Environ(), fewFilesEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	e := start(t, myriad.Config{Logger: quiet})
	ln, err := e.Listen("tcp", "127.0.0.1:0", echo{})
	if err != nil {
		t.Fatal(err)
	}
	bare := setting{client: func(nc net.Conn) net.Conn { return nc }}
	old := bare.dial(t, ln)
	send(t, old, []byte("a"))
	expect(t, old, []byte("a"))
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	limit := syscall.Rlimit{Cur: uint64(leaktest.OpenFiles() + 2), Max: before.Max}
	var peers []net.Conn
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for range 4 { // the last descriptors are the peers'
		if nc, err := net.Dial("tcp", ln.Addr().String()); err == nil {
			peers = append(peers, nc)
		}
	}
	eventually(t, "accepting fails", func() bool { return e.Stats().AcceptErrors > 0 })
	send(t, old, []byte("still there"))
	expect(t, old, []byte("still there"))
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	unserved := uint64(0)
	for _, nc := range peers {
		nc, got := bare.own(t, nc), make([]byte, len("at last"))
		_, _ = io.WriteString(nc, "at last")
		if _, err := io.ReadFull(nc, got); err != nil || string(got) != "at last" {
			unserved++
		}
	}
	if shed := e.Limits().Shed; unserved != shed { // some are where this process was held up for seconds
		t.Errorf("%d of %d peers are not served, and %d were shed", unserved, len(peers), shed)
	}
}
