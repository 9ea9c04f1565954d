package enginetest

import (
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad"
)

// epollPoll is how many connections one Poll of the epoll driver serves at most.
const epollPoll = 256

// On sockets, too: all messages are there before the loop goes on, so that the count depends on no
// speed.
func TestFirehoseOnSockets(t *testing.T) {
	needFiles(t, 2*others+200)
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) { firehoseOnSockets(t, network, addr) })
	}
}

func firehoseOnSockets(t *testing.T, network, addr string) {
	e := start(t, myriad.Config{Loops: 1, ReadBuffer: fairRead, Driver: "epoll"})
	f := new(fountain) // the loop's
	h := newProbe()
	h.opens = make(chan *myriad.Conn, 2*others)
	var flowing atomic.Bool
	done := make(chan struct{})
	h.received = func(_ *myriad.Conn, p []byte) {
		if len(p) > 1 || p[0] != 'm' {
			f.flow += len(p)
			flowing.Store(f.flow > 1<<20)
			return
		}
		if f.hear(); f.heard == others {
			close(done)
		}
	}
	ln, err := e.Listen(network, addr, h)
	if err != nil {
		t.Fatal(err)
	}
	bare := setting{client: func(nc net.Conn) net.Conn { return nc }}
	crowd := make([]net.Conn, others)
	for i := range crowd {
		crowd[i] = bare.dial(t, ln)
		await(t, "Opened", h.opens)
	}
	hose := bare.dial(t, ln)
	stopped := pour(hose)
	eventually(t, "the firehose flows", flowing.Load)
	held, release := make(chan struct{}), make(chan struct{})
	if err := e.Loops()[0].Do(func() { close(held); <-release; f.start() }); err != nil {
		t.Fatal(err)
	}
	await(t, "the loop to be held", held)
	for _, nc := range crowd {
		send(t, nc, []byte("m"))
	}
	for _, nc := range crowd {
		eventually(t, "the message is there", func() bool { return outgoing(t, nc) == 0 })
	}
	close(release)
	await(t, "all messages", done)
	onLoop(t, await(t, "Opened", h.opens), func() { f.check(t, 0, fairRead, (others+1+epollPoll-1)/epollPoll+1) })
	hose.Close()
	<-stopped
}

// pour writes without end, on a goroutine of its own.
func pour(nc net.Conn) (stopped chan struct{}) {
	stopped = make(chan struct{})
	go func() {
		defer close(stopped)
		for water := make([]byte, 64<<10); ; {
			if _, err := nc.Write(water); err != nil {
				return
			}
		}
	}()
	return stopped
}

// outgoing is how many bytes the kernel has not brought to the other side yet. A unix socket's are
// there at once.
func outgoing(t *testing.T, nc net.Conn) (n int) {
	if _, ok := nc.(*net.UnixConn); ok {
		return 0
	}
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil {
		t.Fatal(err)
	}
	return n
}
