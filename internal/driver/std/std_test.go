package std_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/drivertest"
	"github.com/myriad-go/myriad/internal/driver/std"
	"github.com/myriad-go/myriad/internal/soak"
)

const (
	room     = 4 << 10
	patience = time.Minute
)

// open makes a driver that is shut down when the test ends.
func open(t *testing.T, sys std.System) *drivertest.Checker {
	t.Helper()
	d, err := sys.Open(1, driver.Options{ReadBuffer: room})
	if err != nil {
		t.Fatal(err)
	}
	k := drivertest.Check(t, d, 1, room)
	t.Cleanup(k.Shutdown)
	return k
}

// until polls until done.
func until(t *testing.T, k *drivertest.Checker, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); {
		if time.Now().After(end) {
			t.Fatalf("it never happened: %s", what)
		}
		k.Poll(5 * time.Millisecond)
	}
}

func attach(t *testing.T, k *drivertest.Checker, nc net.Conn) *drivertest.Conn {
	t.Helper()
	s, err := std.System{}.Import(nc)
	if err != nil {
		t.Fatal(err)
	}
	c, err := k.AttachTo(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7) + byte(i>>8)
	}
	return p
}

// A conn that the operating system knows nothing of is served like others, without a half close.
func TestForeignConn(t *testing.T) {
	k := open(t, std.System{})
	near, far := net.Pipe()
	defer far.Close()
	c := attach(t, k, near)
	question := pattern(3 * room)
	answers := make(chan []byte, 1)
	go func() {
		far.Write(question)
		answer := make([]byte, 5*room)
		io.ReadFull(far, answer)
		answers <- answer
	}()
	until(t, k, "the question", func() bool { return len(c.In) == len(question) })
	if !bytes.Equal(c.In, question) {
		t.Error("the question is another one")
	}
	c.Send(pattern(5 * room))
	c.CloseWrite()
	until(t, k, "everything is reported sent", func() bool { return c.Left() == 0 })
	if answer := <-answers; !bytes.Equal(answer, pattern(5*room)) {
		t.Error("the answer is another one")
	}
	until(t, k, "Ended, because the conn cannot end one side alone", func() bool { return c.Ended })
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the peer reads %v, want EOF", err)
	}
	c.Close()
	until(t, k, "Closed", func() bool { return c.Over })
}

func TestForeignConnLeaves(t *testing.T) {
	k := open(t, std.System{})
	near, far := net.Pipe()
	defer far.Close()
	c := attach(t, k, near)
	if err := c.Detach(); err != nil {
		t.Fatal(err)
	}
	until(t, k, "Detached", func() bool { return c.Over })
	nc, err := c.Socket.Conn()
	if err != nil || nc != near {
		t.Errorf("Conn: %v, %v, want what was imported", nc, err)
	}
	if _, err := c.Socket.Conn(); err == nil || c.Socket.Local() != (driver.Addr{}) ||
		c.Socket.Remote() != (driver.Addr{}) {
		t.Errorf("a socket that has been given on is still one: %v", err)
	}
	go far.Write([]byte("x"))
	if _, err := nc.Read(make([]byte, 1)); err != nil {
		t.Errorf("after Detach: %v", err)
	}
	nc.Close()
}

// uninterruptible is a conn whose reads only a close can interrupt.
type uninterruptible struct{ net.Conn }

func (uninterruptible) SetDeadline(time.Time) error     { return os.ErrNoDeadline }
func (uninterruptible) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

func TestConnWithoutDeadlines(t *testing.T) {
	k := open(t, std.System{})
	near, far := net.Pipe()
	defer far.Close()
	c := attach(t, k, uninterruptible{near})
	if err := c.Detach(); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Detach: %v, want ErrUnsupported", err)
	}
	go far.Write([]byte("x"))
	until(t, k, "a byte after all", func() bool { return len(c.In) == 1 })
	c.Close()
	until(t, k, "Closed", func() bool { return c.Over })
}

// What was read ahead of Received travels with the socket, as a net.Conn and back.
func TestReadAheadTravels(t *testing.T) {
	k := open(t, std.System{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	want := pattern(3 * room)
	peer.Write(want)
	for range 3 {
		c := attach(t, k, nc)
		before := 0
		c.OnReceived = func(p []byte) {
			before = len(c.In)
			if err := c.Detach(); err != nil {
				t.Errorf("Detach: %v", err)
			}
		}
		until(t, k, "Detached", func() bool { return c.Over })
		if !bytes.HasPrefix(want, c.In) || before == 0 {
			t.Fatalf("%d bytes that are not the next ones", before)
		}
		want = want[before:]
		if nc, err = c.Socket.Conn(); err != nil {
			t.Fatal(err)
		}
	}
	if err := peer.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(patience))
	if rest, err := io.ReadAll(nc); err != nil || !bytes.Equal(rest, want) {
		t.Errorf("%d bytes are left, want %d: %v", len(rest), len(want), err)
	}
	nc.Close()
}

// A peer that was accepted when StopAccept came is there to be taken, once.
func TestAcceptedAheadIsTaken(t *testing.T) {
	k := open(t, std.System{})
	l, err := std.System{}.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := k.ListenOn(l)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for goroutines("std.(*acceptor).next(", "sync.(*Cond).Wait(") == 0 { // nothing is polled
		time.Sleep(time.Millisecond)
	}
	c.StopAccept()
	take := k.Driver.Capabilities().TakeAccepted
	s := take(c.ID)
	if s == nil {
		t.Fatal("there is no peer")
	}
	if again := take(c.ID); again != nil {
		t.Error("a peer is there twice")
	}
	attached, err := k.AttachTo(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	until(t, k, "what it says is received", func() bool { return len(attached.In) == 1 })
	c.CloseListener()
	until(t, k, "Closed", func() bool { return c.Over })
}

// A peer that comes at the moment of StopAccept is there to be taken. Or it is in the backlog, from
// which another process accepts.
func TestPeerBesideStopAccept(t *testing.T) {
	k := open(t, std.System{})
	taken := 0
	for i := range soak.Size(t, 300, 3000) {
		l, err := std.System{}.Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		c, err := k.ListenOn(l)
		if err != nil {
			t.Fatal(err)
		}
		dialed := make(chan net.Conn, 1)
		go func() {
			nc, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Error(err)
			}
			dialed <- nc
		}()
		for range i % 50 * 10 {
			runtime.Gosched()
		}
		c.StopAccept()
		s := k.Driver.Capabilities().TakeAccepted(c.ID)
		c.CloseListener()
		until(t, k, "Closed", func() bool { return c.Over })
		nc := <-dialed
		if t.Failed() {
			return
		}
		if s != nil {
			taken++
			s.Close()
		} else {
			next, err := net.FileListener(f)
			if err != nil {
				t.Fatal(err)
			}
			_ = next.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Second))
			peer, err := next.Accept()
			if err != nil {
				t.Fatalf("round %d: the peer is neither taken nor in the backlog: %v", i, err)
			}
			peer.Close()
			next.Close()
		}
		nc.Close()
		f.Close()
		l.Close()
	}
	if taken == 0 {
		t.Error("no peer was accepted in time: the test tries nothing")
	}
}

// A driver that does not want connections takes none from another one on the same listener.
func TestStoppedAcceptorStealsNothing(t *testing.T) {
	k, other := open(t, std.System{}), open(t, std.System{})
	l, err := std.System{}.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	first, err := k.ListenOn(l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.ListenOn(l); err != nil {
		t.Fatal(err)
	}
	first.StopAccept()
	// it may have been about to accept
	until(t, k, "its goroutine waits to be wanted",
		func() bool { return goroutines("std.(*acceptor).next(", "sync.(*Cond).Wait(") == 1 })
	const n = 20
	for range n {
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	until(t, other, "all are accepted by the other", func() bool { return len(other.Accepted) == n })
	first.ResumeAccept()
	for range 2 {
		first.StopAccept()
		first.ResumeAccept()
	}
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	until(t, other, "one of them accepts", func() bool {
		k.Poll(0)
		return len(other.Accepted) == n+1 || len(k.Accepted) == 1
	})
	first.CloseListener()
	until(t, k, "Closed", func() bool { return first.Over })
}

// While nothing is queued a connection has one goroutine.
func TestWriterRetires(t *testing.T) {
	k := open(t, std.System{QueueOnly: true})
	near, far := net.Pipe()
	defer far.Close()
	c := attach(t, k, near)
	if n := c.Send(pattern(10_000)); n != 10_000 {
		t.Fatalf("%d bytes are queued", n)
	}
	until(t, k, "a writer for the queue", func() bool { return goroutines(writer) == 1 })
	io.ReadFull(far, make([]byte, 10_000))
	until(t, k, "everything is reported sent", func() bool { return c.Left() == 0 })
	until(t, k, "the writer's end", func() bool { return goroutines(writer) == 0 })
	c.Close()
	until(t, k, "Closed", func() bool { return c.Over })
}

const writer = "std.(*conn).write("

// goroutines are those inside all of the functions.
func goroutines(functions ...string) (n int) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if !slices.ContainsFunc(functions, func(f string) bool { return !strings.Contains(stack, f) }) {
			n++
		}
	}
	return n
}

// Sending a file leaves the offset of the user's handle alone, whichever way the bytes go.
func TestFileOffset(t *testing.T) {
	name := t.TempDir() + "/file"
	content := pattern(3 << 20)
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(10, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"tcp", "unix"} {
		addr := "127.0.0.1:0"
		if network == "unix" {
			addr = t.TempDir() + "/s"
		}
		l, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		k := open(t, std.System{})
		c, err := k.DialTo(l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		until(t, k, "Dialed", func() bool { return c.Dialed })
		dup, err := std.System{}.Duplicate(f)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan []byte, 1)
		go func() {
			p, _ := io.ReadAll(peer)
			got <- p
		}()
		if _, err := c.SendFile(dup, 1000, 2<<20+5); err != nil {
			t.Fatal(err)
		}
		c.CloseWrite()
		until(t, k, "the file is reported sent", func() bool { return c.Left() == 0 })
		if p := <-got; !bytes.Equal(p, content[1000:1000+2<<20+5]) {
			t.Errorf("%s: the peer received %d other bytes", network, len(p))
		}
		c.Close()
		until(t, k, "Closed", func() bool { return c.Over })
		peer.Close()
		l.Close()
	}
	if at, err := f.Seek(0, io.SeekCurrent); at != 10 || err != nil {
		t.Errorf("the file's offset is %d now: %v", at, err)
	}
}
