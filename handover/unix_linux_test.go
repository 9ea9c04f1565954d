package handover

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/leaktest"
)

const patience = 30 * time.Second

// A counterServer answers each line with its name, how many lines have come, and the line.
type counterServer struct {
	name   string
	refuse bool
}

func (s *counterServer) Formats() []string { return []string{"counter/1"} }

func (s *counterServer) Thaw(_ *myriad.Conn, _ string, state []byte) (myriad.Handler, error) {
	if s.refuse {
		return nil, errors.New("no room")
	}
	n, used := binary.Uvarint(state)
	if used != len(state) {
		return nil, io.ErrUnexpectedEOF
	}
	return &lineCounter{server: s, lines: n}, nil
}

func (s *counterServer) Opened(c *myriad.Conn)         { c.SetHandler(&lineCounter{server: s}, nil) }
func (s *counterServer) Received(*myriad.Conn, []byte) {}
func (s *counterServer) Closed(*myriad.Conn, error)    {}

type lineCounter struct {
	server *counterServer
	lines  uint64
	half   []byte
}

func (h *lineCounter) Opened(*myriad.Conn) {}

func (h *lineCounter) Received(c *myriad.Conn, p []byte) {
	h.half = append(h.half, p...)
	for {
		line, rest, ok := strings.Cut(string(h.half), "\n")
		if !ok {
			return
		}
		h.half = []byte(rest)
		h.lines++
		_, _ = fmt.Fprintf(c, "%s %d %s\n", h.server.name, h.lines, line)
	}
}

func (h *lineCounter) Closed(*myriad.Conn, error) {}
func (h *lineCounter) Thawer() myriad.Thawer      { return h.server }
func (h *lineCounter) AtRest(*myriad.Conn) bool   { return len(h.half) == 0 }
func (h *lineCounter) Moved(*myriad.Conn)         {}
func (h *lineCounter) Freeze(_ *myriad.Conn, dst []byte) ([]byte, error) {
	return binary.AppendUvarint(dst, h.lines), nil
}

// A shop is a program with one server.
type shop struct {
	*Program
	server *counterServer
	note   *note
	wait   time.Duration // of MoveRest
}

func newShop(t testing.TB, name, driver string) *shop {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 2, Driver: driver, LingerTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		over, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = e.Shutdown(over)
	})
	s := &shop{server: &counterServer{name: name}, note: &note{text: name}}
	s.Program = &Program{Engine: e, Servers: map[string]myriad.Thawer{"lines": s.server},
		States: map[string]State{"note": s.note}, Timeout: patience}
	return s
}

func (s *shop) listen(t testing.TB, addr string) *myriad.Listener {
	t.Helper()
	ln, err := s.Engine.Listen("tcp", addr, s.server)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

type customer struct {
	net.Conn
	r *bufio.Reader
	n int
}

func visit(t testing.TB, addr net.Addr) *customer {
	t.Helper()
	nc, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return &customer{nc, bufio.NewReader(nc), 0}
}

func (c *customer) asks(t testing.TB, house string) {
	t.Helper()
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	c.hears(t, house)
}

func (c *customer) hears(t testing.TB, house string) {
	t.Helper()
	c.n++
	line, err := c.r.ReadString('\n')
	if want := fmt.Sprintf("%s %d hello\n", house, c.n); err != nil || line != want {
		t.Fatalf("%q (%v), want %q", line, err, want)
	}
}

// ends is a channel between two programs of this process.
func ends(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	a, f, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	nc, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return a, nc.(*net.UnixConn)
}

type given struct {
	Result
	err error
}

func (s *shop) gives(nc *net.UnixConn) chan given {
	done := make(chan given, 1)
	go func() {
		g, err := Give(nc, s.Program)
		if err != nil {
			done <- given{err: err}
			return
		}
		over, cancel := context.WithTimeout(context.Background(), s.wait)
		defer cancel()
		r, err := g.MoveRest(over)
		done <- given{r, err}
	}()
	return done
}

// Connections, what waits in the backlog, and the state go on in the other program, with every
// driver: more than fit into one message.
func TestHandOverSockets(t *testing.T) {
	for _, driver := range []string{"epoll", "std"} {
		t.Run(driver, func(t *testing.T) {
			old, next := newShop(t, "old", driver), newShop(t, "new", driver)
			ln := old.listen(t, "127.0.0.1:0")
			old.listen(t, "127.0.0.2:0") // which the new program has no use for
			const n = 2*maxRecords + 7
			var customers []*customer
			for range n {
				customers = append(customers, visit(t, ln.Addr()))
			}
			for _, c := range customers {
				c.asks(t, "old")
			}
			a, b := ends(t)
			done := old.gives(a)
			taken, err := Take(b, next.Program)
			if err != nil {
				t.Fatal(err)
			}
			if taken.Conns() != n || next.note.text != "old" {
				t.Errorf("%d connections and the state %q have come", taken.Conns(), next.note.text)
			}
			late := visit(t, ln.Addr()) // waits in the backlog, whose listeners both wait
			for _, c := range customers {
				if _, err := io.WriteString(c, "hello\n"); err != nil {
					t.Fatal(err)
				}
			}
			again := next.listen(t, "127.0.0.1:0")
			if again.Addr().String() != ln.Addr().String() {
				t.Errorf("it listens on %v, the old one on %v", again.Addr(), ln.Addr())
			}
			if err := taken.GoOn(); err != nil {
				t.Fatal(err)
			}
			if r := <-done; r.err != nil || r.Moved != n || r.Left != 0 {
				t.Fatalf("%+v", r)
			}
			for _, c := range customers {
				c.hears(t, "new")
			}
			late.asks(t, "new")
			visit(t, ln.Addr()).asks(t, "new")
			if got := taken.Unclaimed(); !slices.Equal(got, []string{"tcp 127.0.0.2:0"}) {
				t.Errorf("unclaimed: %q", got)
			}
			if err := ln.Close(); !errors.Is(err, myriad.ErrClosed) {
				t.Errorf("the listener that has moved: %v", err)
			}
		})
	}
}

// Whatever the new program does before it has said that it has all, the old one goes on, with its
// listener.
func TestOldGoesOn(t *testing.T) {
	for name, part := range map[string]func(t *testing.T, next *shop, nc *net.UnixConn){
		"it is gone":   func(_ *testing.T, _ *shop, nc *net.UnixConn) { nc.Close() },
		"it is silent": func(*testing.T, *shop, *net.UnixConn) {},
		"no server": func(t *testing.T, next *shop, nc *net.UnixConn) {
			next.Servers = nil
			if _, err := Take(nc, next.Program); !errors.Is(err, ErrFormat) {
				t.Errorf("%v", err)
			}
		},
		"it refuses": func(t *testing.T, next *shop, nc *net.UnixConn) {
			next.server.refuse = true
			if _, err := Take(nc, next.Program); err == nil || !strings.Contains(err.Error(), "no room") {
				t.Errorf("%v", err)
			}
		},
		"it drops": func(t *testing.T, next *shop, nc *net.UnixConn) {
			taken, err := Take(nc, next.Program)
			if err != nil {
				t.Fatal(err)
			}
			next.listen(t, "127.0.0.1:0")
			taken.Drop(errors.New("a change of mind"))
			if err := taken.GoOn(); err == nil {
				t.Error("GoOn after Drop")
			}
		},
		"nonsense": func(_ *testing.T, _ *shop, nc *net.UnixConn) {
			_, _ = nc.Write([]byte("\x00\x00\x00\x01\x63\x00\x00x"))
		},
		"endless": func(_ *testing.T, _ *shop, nc *net.UnixConn) {
			_, _ = nc.Write([]byte("\xff\xff\xff\xff\x02\x00\x00"))
		},
		"half a message": func(_ *testing.T, _ *shop, nc *net.UnixConn) {
			_, _ = nc.Write([]byte("\x00\x00\x00\x09\x02\x00\x00x"))
			nc.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			old, next := newShop(t, "old", ""), newShop(t, "new", "")
			if name == "it is silent" {
				old.Timeout = 50 * time.Millisecond
			}
			ln := old.listen(t, "127.0.0.1:0")
			c := visit(t, ln.Addr())
			c.asks(t, "old")
			a, b := ends(t)
			defer b.Close()
			done := old.gives(a)
			part(t, next, b)
			if r := <-done; r.err == nil || r.Moved != 0 {
				t.Errorf("%+v", r)
			}
			c.asks(t, "old")
			visit(t, ln.Addr()).asks(t, "old")
			if n := next.Engine.Limits().Open; n != 0 {
				t.Errorf("%d connections are in the new engine", n)
			}
		})
	}
}

// The path is this user's alone, and leads to the process that has listened last.
func TestPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handover.sock")
	if _, err := Dial(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is none: %v", err)
	}
	first, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	nc, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = second.SetDeadline(time.Now().Add(patience))
	its, err := second.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer its.Close()
	if err := checkPeer(its); err != nil {
		t.Errorf("this process's own user: %v", err)
	}
}

// childEnv has this test binary be the new process. Its value says what it does.
const childEnv = "MYRIAD_HANDOVER_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		if err := child(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leaktest.Main(m)
}

func child(what string) error {
	nc, err := Inherited()
	if err != nil || nc == nil {
		return fmt.Errorf("inherited %v: %w", nc, err)
	}
	if again, err := Inherited(); again != nil || err != nil {
		return fmt.Errorf("inherited twice: %v, %w", again, err)
	}
	if what == "dies" {
		return errors.New("as it should")
	}
	e, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		return err
	}
	server := &counterServer{name: "child"}
	taken, err := Take(nc, &Program{Engine: e, Servers: map[string]myriad.Thawer{"lines": server},
		States: map[string]State{"note": &note{}}, Timeout: patience})
	if err != nil {
		return err
	}
	if _, err = e.Listen("tcp", "127.0.0.1:0", server); err != nil {
		return err
	}
	if what == "is killed" {
		return unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	if err = taken.GoOn(); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
	return e.Shutdown(context.Background())
}

// A process that was started takes over; one that dies on its way leaves all to the old one.
func TestStartedProcess(t *testing.T) {
	for _, what := range []string{"dies", "is killed", "goes on"} {
		t.Run(what, func(t *testing.T) {
			old := newShop(t, "old", "")
			ln := old.listen(t, "127.0.0.1:0")
			c := visit(t, ln.Addr())
			c.asks(t, "old")
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+what)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			nc, err := Start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			r := <-old.gives(nc)
			house := "old"
			if what == "goes on" {
				house = "child"
			}
			if moved := what == "goes on"; moved != (r.err == nil) || moved != (r.Moved == 1) {
				t.Errorf("%+v", r)
			}
			c.asks(t, house)
			other := visit(t, ln.Addr())
			other.asks(t, house)
			c.Close()
			other.Close()
			stdin.Close()
			if err := cmd.Wait(); (err == nil) != (what == "goes on") {
				t.Errorf("the child: %v", err)
			}
		})
	}
}

// After stopReceiving it is decided what has come: that is received still, and the other process
// can say nothing more.
func TestStopReceiving(t *testing.T) {
	sys := newShop(t, "any", "").Engine.System()
	for _, early := range []bool{true, false} {
		a, b := ends(t)
		old, err := newChannel(a, sys)
		if err != nil {
			t.Fatal(err)
		}
		next, err := newChannel(b, sys)
		if err != nil {
			t.Fatal(err)
		}
		if early {
			if err := next.send(message{kind: have}); err != nil {
				t.Fatal(err)
			}
		}
		old.stopReceiving()
		if err := next.send(message{kind: have}); err == nil {
			t.Error("a message is taken after stopReceiving")
		}
		old.setDeadline(time.Now().Add(patience))
		if early {
			if m, err := old.receive(); err != nil || m.kind != have {
				t.Errorf("%v, %v", m.kind, err)
			}
		}
		if _, err := old.receive(); err != io.EOF {
			t.Errorf("behind the last message: %v", err)
		}
		old.close()
		next.close()
	}
}

// moves hands all that old has over to next, which listens by relisten before it goes on.
func moves(t *testing.T, old, next *shop, relisten func()) {
	t.Helper()
	a, b := ends(t)
	done := old.gives(a)
	taken, err := Take(b, next.Program)
	if err != nil {
		t.Fatal(err)
	}
	relisten()
	if err := taken.GoOn(); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil {
		t.Fatal(r.err)
	}
}

// A peer that a listener has accepted, and keeps waiting, is in no backlog: it comes in where it
// was accepted. If the hand-over waits, it moves then.
func TestPeerInHandComesIn(t *testing.T) {
	for house, wait := range map[string]time.Duration{"old": 0, "new": patience} {
		peerInHandComesIn(t, house, wait)
	}
}

func peerInHandComesIn(t *testing.T, house string, wait time.Duration) {
	t.Helper()
	old, next := newShop(t, "old", ""), newShop(t, "new", "")
	limited, err := myriad.Start(myriad.Config{Loops: 2, MaxConns: 1, LingerTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		over, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = limited.Shutdown(over)
	})
	old.Engine, old.wait = limited, wait
	ln := old.listen(t, "127.0.0.1:0")
	first := visit(t, ln.Addr())
	first.asks(t, "old")
	inHand := visit(t, ln.Addr())
	for limited.Limits().AtMaxConns == 0 {
		time.Sleep(time.Millisecond)
	}
	moves(t, old, next, func() { next.listen(t, "127.0.0.1:0") })
	first.asks(t, "new")
	inHand.asks(t, house)
	visit(t, ln.Addr()).asks(t, "new")
	inHand.Close()
}

// A listener that the program has paused stays so in either process, until Resume.
func TestPausedListenerStaysPaused(t *testing.T) {
	for _, fails := range []bool{true, false} {
		old, next := newShop(t, "old", ""), newShop(t, "new", "")
		ln, house := old.listen(t, "127.0.0.1:0"), "old"
		ln.Pause()
		old.Engine.Listeners() // waits for the loops, which know of Pause then
		if fails {
			a, b := ends(t)
			b.Close()
			if _, err := Give(a, old.Program); err == nil {
				t.Fatal("it is given to nobody")
			}
		} else {
			moves(t, old, next, func() { ln, house = next.listen(t, "127.0.0.1:0"), "new" })
		}
		c := visit(t, ln.Addr())
		_ = c.SetDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := io.WriteString(c, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := c.r.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("fails %v: a paused listener serves %q (%v)", fails, line, err)
		}
		ln.Resume()
		_ = c.SetDeadline(time.Now().Add(patience))
		c.hears(t, house)
	}
}

// The process that accepts in the end removes the path of a unix listener, and no other does.
func TestPathGoesWithItsListener(t *testing.T) {
	for _, driver := range []string{"epoll", "std"} {
		for _, fails := range []bool{true, false} {
			old, next := newShop(t, "old", driver), newShop(t, "new", driver)
			path := filepath.Join(t.TempDir(), "s")
			listen := func(s *shop) *myriad.Listener {
				ln, err := s.Engine.Listen("unix", path, s.server)
				if err != nil {
					t.Fatal(err)
				}
				return ln
			}
			ln := listen(old)
			if fails {
				a, b := ends(t)
				done := old.gives(a)
				taken, err := Take(b, next.Program)
				if err != nil {
					t.Fatal(err)
				}
				listen(next)
				taken.Drop(errors.New("a change of mind"))
				if r := <-done; r.err == nil {
					t.Fatal("it is given")
				}
			} else {
				moves(t, old, next, func() { ln = listen(next) })
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s, fails %v: %v", driver, fails, err)
			}
			if err := ln.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s, fails %v: the path is left (%v)", driver, fails, err)
			}
		}
	}
}
