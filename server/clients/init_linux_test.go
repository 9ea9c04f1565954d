package clients

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// canMakeNamespaces skips the test unless this user may make a namespace of processes.
func canMakeNamespaces(t *testing.T) {
	t.Helper()
	if err := exec.Command("unshare", "-pf", "--mount-proc", "true").Run(); err != nil {
		t.Skip("this user may not make a namespace of processes: unshare -pf --mount-proc:", err)
	}
}

// myriad init stays while upgrades replace the server, as process 1 of a container and below a
// supervisor. It passes signals on to the server that serves, and ends with the last one.
func TestInit(t *testing.T) {
	t.Parallel()
	for name, before := range map[string][]string{"process 1": {"unshare", "-pf", "--mount-proc", "--kill-child"},
		"supervised": {"env"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "process 1" {
				canMakeNamespaces(t)
			}
			p := start(t, nil, before[0], append(before[1:], binary, "init", "serve", "--listen", "127.0.0.1:0",
				"--namespace", kept, "--shutdown-timeout", "3s")...)
			s := server{p, p.want(`url=http://([0-9.:]+)`)[1]}
			first := p.cmd.Process.Pid
			if name == "process 1" {
				first = childOf(first)
			}
			c := read(t, s.addr)
			for i := range 4 {
				if i > 0 {
					if err := syscall.Kill(first, syscall.SIGUSR2); err != nil {
						t.Fatal(err)
					}
					// The numbers of processes are those of the namespace.
					s.want(`a new process goes on" pid=\d+ connections=1 left=0`)
					awaitChildren(t, first, 1)
				}
				publishAt(t, s.addr, i+1)
				c.want(i + 1)
			}
			if err := syscall.Kill(first, syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			s.want("SIGHUP: read the configuration again")
			if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			s.want("shutting down")
			if err := p.wait(); err != nil {
				t.Errorf("at the end: %v", err)
			}
		})
	}
}

// awaitChildren waits until the process has only so many children, zombies among them, and each is
// a successor that has none.
func awaitChildren(t *testing.T, pid, want int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		children := childrenOf(pid)
		if len(children) == want && len(childrenOf(children[0])) == 0 && !hasEnded(children[0]) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the process %d has the children %v", pid, children)
		}
	}
}

// The status of a server that fails is that of myriad init.
func TestInitEndsAsTheServer(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"serve", "--listen", "nowhere"}, {"serve", "--lsten", "x"}, {"load"}, {}} {
		out := refused(t, binary, append([]string{"init"}, args...)...)
		if strings.Contains(out, "exit status") {
			t.Errorf("%v: %s", args, out)
		}
	}
	p := start(t, nil, binary, "init", "serve", "--listen", "127.0.0.1:0")
	p.want("url=")
	if err := syscall.Kill(childOf(p.cmd.Process.Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var status *exec.ExitError
	if err := p.wait(); !errors.As(err, &status) || status.ExitCode() != 128+int(syscall.SIGKILL) {
		t.Errorf("a server that was killed: %v", err)
	}
}

// The new server fails while the old one still answers a request: the last server has failed, and
// so does myriad init.
func TestInitEndsAsTheNewServer(t *testing.T) {
	t.Parallel()
	p := start(t, nil, binary, "init", "serve", "--listen", "127.0.0.1:0", "--handover-wait", patience.String())
	s := server{p, p.want(`url=http://([0-9.:]+)`)[1]}
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	// The server waits for the rest of the request.
	io.WriteString(nc, "POST /connection/http_stream HTTP/1.1\r\nHost: "+s.addr+"\r\nContent-Length: 9\r\n"+
		"Expect: 100-continue\r\n\r\n")
	if line, err := bufio.NewReader(nc).ReadString('\n'); !strings.Contains(line, " 100 ") {
		t.Fatalf("%q, %v", line, err)
	}
	old := childOf(p.cmd.Process.Pid)
	if err := syscall.Kill(old, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	next, _ := strconv.Atoi(s.want(`a new process goes on" pid=(\d+)`)[1])
	if err := syscall.Kill(next, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); slices.Contains(childrenOf(old), next); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the old server does not wait for the new one")
		}
	}
	nc.Close()
	s.want("which had taken over, has ended: signal: killed")
	var status *exec.ExitError
	if err := p.wait(); !errors.As(err, &status) || status.ExitCode() != 1 {
		t.Errorf("at the end: %v", err)
	}
}

// The signal to end comes while a new process starts: both end, and so does myriad init.
func TestInitEndsWhileUpgrading(t *testing.T) {
	t.Parallel()
	for name, await := range map[string]func(p *process){
		"asked": func(*process) {},
		"started": func(p *process) {
			old := childOf(p.cmd.Process.Pid)
			for end := time.Now().Add(patience); childOf(old) == 0 && childOf(p.cmd.Process.Pid) == old &&
				time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		},
		"has moved": func(p *process) { p.want("a new process goes on") },
		"old ends":  func(p *process) { p.want("shutting down") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, nil, binary, "init", "serve", "--listen", "127.0.0.1:0")
			p.want("url=")
			if err := p.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
				t.Fatal(err)
			}
			await(p)
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := p.wait(); err != nil {
				t.Error(fmt.Errorf("%w\n%s", err, strings.Join(p.seen, "\n")))
			}
		})
	}
}
