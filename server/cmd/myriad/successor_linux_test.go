package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A manager is the end of sd_notify(3) that systemd has: it takes what the main process says, and
// nothing of others (NotifyAccess=main).
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	main int
}

// newManager returns a manager, whose socket the environment of this process has from then on.
func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(unixDir(t), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	raw, err := conn.SyscallConn()
	if err == nil {
		err2 := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1)
		})
		if err == nil {
			err = err2
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	return &manager{t: t, conn: conn, main: os.Getpid()}
}

// next returns the next message of the main process, and the pid of another process that it names
// as the main one is the main one's from then on.
func (m *manager) next() (from int, message string) {
	m.t.Helper()
	p, control := make([]byte, 4096), make([]byte, 256)
	for {
		n, size, _, _, err := m.conn.ReadMsgUnix(p, control)
		if err != nil {
			m.t.Fatal(err)
		}
		messages, err := syscall.ParseSocketControlMessage(control[:size])
		if err != nil || len(messages) == 0 {
			m.t.Fatalf("a datagram without its sender: %v", err)
		}
		sender, err := syscall.ParseUnixCredentials(&messages[0])
		if err != nil {
			m.t.Fatal(err)
		}
		message = string(p[:n])
		if int(sender.Pid) != m.main {
			continue
		}
		if pid, is := strings.CutPrefix(message, "MAINPID="); is {
			if m.main, err = strconv.Atoi(pid); err != nil {
				m.t.Fatal(err)
			}
		}
		return int(sender.Pid), message
	}
}

// successorMode makes TestSuccessorProcess a process that a test has started.
const successorMode = "MYRIAD_TEST_SUCCESSOR"

// TestSuccessorProcess is what the test below starts in the place of the server: it sends
// keep-alives as serve does, and says how it understands its environment.
func TestSuccessorProcess(t *testing.T) {
	if os.Getenv(successorMode) == "" {
		t.Skip("another test starts this one")
	}
	n, err := newNotifier(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	period, err := watchdogPeriod(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	sockets := os.Getenv("LISTEN_PID") + os.Getenv("LISTEN_FDS") + os.Getenv("LISTEN_FDNAMES")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if os.Getenv(successorMode) == "last" {
		n.watch(ctx, period, func() bool {
			_ = n.say(fmt.Sprintf("STATUS=sockets %q", sockets))
			return false
		})
		return
	}
	// In the middle of a chain: a successor of its own takes its place.
	next := startSuccessor(t, "last")
	if err := n.handOver(next.Process.Pid); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	_ = next.Process.Kill()
	_ = next.Wait()
}

// startSuccessor starts this program as serve starts its successor.
func startSuccessor(t *testing.T, mode string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestSuccessorProcess$")
	c.Env = append(slices.DeleteFunc(self(os.Getenv).successorEnviron(os.Environ()), func(one string) bool {
		return strings.HasPrefix(one, successorMode+"=")
	}), successorMode+"="+mode)
	_, err := c.StdinPipe() // which ends with this process, and the child with it
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A process that takes the place of another one sends the keep-alives that systemd expects, and
// looks for no passed sockets: they come with the others. The old one says which process it is, and
// then nothing more. The successor's successor is no other.
func TestSuccessorSpeaksForTheService(t *testing.T) {
	for _, mode := range []string{"last", "middle"} {
		t.Run(mode, func(t *testing.T) {
			m := newManager(t)
			for name, value := range map[string]string{"WATCHDOG_USEC": "20000", "LISTEN_FDS": "2",
				"LISTEN_FDNAMES": "admin:public", "WATCHDOG_PID": fmt.Sprint(os.Getpid()),
				"LISTEN_PID": fmt.Sprint(os.Getpid())} {
				t.Setenv(name, value)
			}
			old, err := newNotifier(os.Getenv)
			if err != nil {
				t.Fatal(err)
			}
			defer old.close()
			child := startSuccessor(t, mode)
			defer func() {
				_ = child.Process.Kill()
				_ = child.Wait()
			}()
			if err := old.say("READY=1"); err != nil {
				t.Fatal(err)
			}
			if err := old.handOver(child.Process.Pid); err != nil {
				t.Fatal(err)
			}
			for _, last := range []string{"STOPPING=1", "WATCHDOG=1"} {
				if err := old.say(last); err != nil {
					t.Fatal(err)
				}
			}
			if _, got := m.next(); got != "READY=1" {
				t.Errorf("at first: %q", got)
			}
			if _, got := m.next(); got != fmt.Sprintf("MAINPID=%d", child.Process.Pid) {
				t.Errorf("at the hand-over: %q", got)
			}
			if mode == "middle" {
				if from, got := m.next(); from != child.Process.Pid || !strings.HasPrefix(got, "MAINPID=") {
					t.Errorf("%d said %q", from, got)
				}
			}
			for range 3 {
				for _, want := range []string{`STATUS=sockets ""`, "WATCHDOG=1"} {
					from, got := m.next()
					if got != want || from == os.Getpid() || (from == child.Process.Pid) != (mode == "last") {
						t.Errorf("%d said %q, want %q", from, got, want)
					}
				}
			}
		})
	}
}

// A process that no predecessor has started takes no variable that is for another one.
func TestSuccessorsAreChildren(t *testing.T) {
	parent, own := strconv.Itoa(os.Getppid()), strconv.Itoa(os.Getpid())
	for _, tt := range []struct {
		predecessor, pid string
		means            bool
	}{
		{"", own, true}, {"", parent, false}, {parent, own, true}, {parent, parent, true}, {parent, "1", parent == "1"},
		{own, parent, false}, {"0", "0", false}, {"x", "x", false}, {"", "", false},
	} {
		r := self(func(string) string { return tt.predecessor })
		if got := r.means(tt.pid); got != tt.means {
			t.Errorf("predecessor %q, pid %q: %v, want %v", tt.predecessor, tt.pid, got, tt.means)
		}
	}
	got := recipient{pid: 7, predecessor: 6}.successorEnviron([]string{"A=1", "WATCHDOG_PID=6", "LISTEN_PID=5",
		predecessorVariable + "=6", "LISTEN_FDS=2", "LISTEN_FDNAMES=a:b", "B=a=b"})
	if want := []string{"A=1", "WATCHDOG_PID=7", "B=a=b", predecessorVariable + "=7"}; !slices.Equal(
		got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
