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
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/internal/soak"
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
			unclaimed := old.listen(t, "127.0.0.2:0").Addr() // which the new program has no use for
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
			if nc, err := net.Dial("tcp", unclaimed.String()); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("a peer waits where nothing accepts: %v, %v", nc, err)
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
	if what == "has no room" {
		few := unix.Rlimit{Cur: 32, Max: 32}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
			return err
		}
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
	for _, what := range []string{"dies", "is killed", "has no room", "goes on"} {
		t.Run(what, func(t *testing.T) {
			old := newShop(t, "old", "")
			ln := old.listen(t, "127.0.0.1:0")
			var all []*customer
			for range 50 {
				c := visit(t, ln.Addr())
				c.asks(t, "old")
				all = append(all, c)
			}
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
			if moved := what == "goes on"; moved != (r.err == nil) || moved != (r.Moved == len(all)) {
				t.Errorf("%+v", r)
			}
			if what == "has no room" && (!errors.Is(r.err, ErrRefused) || !strings.Contains(r.err.Error(),
				"ulimit -n")) {
				t.Errorf("the reason is %v", r.err)
			}
			for _, c := range append(all, visit(t, ln.Addr())) {
				c.asks(t, house)
				c.Close()
			}
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

// A new process that says too late that it has all reads that the old one goes on.
func TestLateHave(t *testing.T) {
	for _, driver := range []string{"epoll", "std"} {
		old, next := newShop(t, "old", driver), newShop(t, "new", driver)
		old.Timeout = 20 * time.Millisecond
		ln := old.listen(t, "127.0.0.1:0")
		c := visit(t, ln.Addr())
		c.asks(t, "old")
		a, b := ends(t)
		done := old.gives(a)
		taken, err := Take(b, next.Program)
		if err != nil {
			t.Fatal(err)
		}
		next.listen(t, "127.0.0.1:0")
		if r := <-done; !errors.Is(r.err, os.ErrDeadlineExceeded) {
			t.Errorf("%+v", r)
		}
		if err := taken.GoOn(); !errors.Is(err, ErrRefused) {
			t.Errorf("the new one: %v", err)
		}
		c.asks(t, "old")
		visit(t, ln.Addr()).asks(t, "old")
		if n := next.Engine.Limits().Open; n != 0 {
			t.Errorf("%d connections are in the new engine", n)
		}
	}
}

// Have and the end of the wait may come at the same time: one of the two goes on.
func TestHaveBesideTheTimeout(t *testing.T) {
	moved, stayed := 0, 0
	for i := 0; i < soak.Size(t, 100, 1000) || moved == 0 || stayed == 0; i++ {
		old, next := newShop(t, "old", ""), newShop(t, "new", "")
		old.Timeout = 5*time.Millisecond + time.Duration(i)*time.Millisecond/10
		c := visit(t, old.listen(t, "127.0.0.1:0").Addr())
		c.asks(t, "old")
		a, b := ends(t)
		done := old.gives(a)
		taken, err := Take(b, next.Program)
		if err != nil { // the old one was too slow
			<-done
			continue
		}
		next.listen(t, "127.0.0.1:0")
		time.Sleep(time.Duration(i%20) * old.Timeout / 10)
		failed := taken.GoOn()
		if r := <-done; (r.err == nil) != (failed == nil) {
			t.Fatalf("round %d: the old one: %+v, the new one: %v", i, r, failed)
		}
		if failed == nil {
			moved++
			c.asks(t, "new")
		} else {
			stayed++
			c.asks(t, "old")
		}
		c.Close()
		for _, e := range []*myriad.Engine{old.Engine, next.Engine} {
			if err := e.Shutdown(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A Give that has failed may be called again, any number of times. Beside another one, and after
// one that has succeeded, it fails.
func TestGiveAgain(t *testing.T) {
	old, next := newShop(t, "old", ""), newShop(t, "new", "")
	ln := old.listen(t, "127.0.0.1:0")
	c := visit(t, ln.Addr())
	for range 3 {
		a, b := ends(t)
		b.Close()
		if r := <-old.gives(a); r.err == nil {
			t.Fatal("it is given to nobody")
		}
		c.asks(t, "old")
		visit(t, ln.Addr()).asks(t, "old")
	}
	busy := func() {
		t.Helper()
		a, b := ends(t)
		defer b.Close()
		if r := <-old.gives(a); !errors.Is(r.err, myriad.ErrBusy) {
			t.Errorf("%+v", r)
		}
	}
	moves(t, old, next, func() { busy(); next.listen(t, "127.0.0.1:0") })
	busy()
	c.asks(t, "new")
	visit(t, ln.Addr()).asks(t, "new")
}

// Listeners that were asked for the same address, with a port of the system's choice, go on each at
// its own.
func TestListenersOfOneAddress(t *testing.T) {
	old, next := newShop(t, "old", ""), newShop(t, "new", "")
	var before, behind []string
	for range 3 {
		before = append(before, old.listen(t, "127.0.0.1:0").Addr().String())
	}
	moves(t, old, next, func() {
		for range 3 {
			behind = append(behind, next.listen(t, "127.0.0.1:0").Addr().String())
		}
	})
	slices.Sort(before)
	slices.Sort(behind)
	if !slices.Equal(before, behind) {
		t.Errorf("they listen on %v, and did on %v", behind, before)
	}
	for _, addr := range before {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(patience))
		(&customer{nc, bufio.NewReader(nc), 0}).asks(t, "new")
		nc.Close()
	}
}

// No child of either process inherits a descriptor that has moved, or the channel.
func TestChildrenInheritNothing(t *testing.T) {
	for _, driver := range []string{"epoll", "std"} {
		old, next := newShop(t, "old", driver), newShop(t, "new", driver)
		path := filepath.Join(t.TempDir(), "s")
		listen := func(s *shop) {
			s.listen(t, "127.0.0.1:0")
			if _, err := s.Engine.Listen("unix", path, s.server); err != nil {
				t.Fatal(err)
			}
		}
		listen(old)
		c := visit(t, &net.UnixAddr{Name: path, Net: "unix"})
		c.asks(t, "old")
		check := func() {
			t.Helper()
			files, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				fd, _ := strconv.Atoi(f.Name())
				what, err := os.Readlink("/proc/self/fd/" + f.Name())
				if err != nil || !strings.HasPrefix(what, "socket:") {
					continue
				}
				if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
					t.Errorf("%s: children inherit descriptor %d, %s", driver, fd, what)
				}
			}
		}
		moves(t, old, next, func() { check(); listen(next) })
		check()
		c.asks(t, "new")
	}
}
