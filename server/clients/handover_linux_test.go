package clients

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shortFolder returns a folder whose path is short enough for sockets, as t.TempDir's may not be.
func shortFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "upgrade")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// A reader is a client that reads the channel "kept:a" by Server-Sent Events, over several
// processes.
type reader struct {
	t *testing.T
	r *bufio.Reader
}

func read(t *testing.T, addr string) *reader {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(patience))
	io.WriteString(nc, "GET /events?channel=kept:a HTTP/1.1\r\nHost: "+addr+"\r\n\r\n")
	c := &reader{t, bufio.NewReader(nc)}
	for line := ""; line != "\r\n"; {
		if line, err = c.r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// want waits for an event with this data.
func (c *reader) want(data int) {
	c.t.Helper()
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatalf("waiting for event %d: %v", data, err)
		}
		if got, is := strings.CutPrefix(line, "data: "); is {
			if got = strings.TrimSpace(got); got != strconv.Itoa(data) {
				c.t.Fatalf("an event with %s, want %d", got, data)
			}
			return
		}
	}
}

// publishAt publishes to "kept:a", and checks the offset, which is the data.
func publishAt(t *testing.T, addr string, data int) {
	t.Helper()
	r, err := http.Post("http://"+addr+"/api/publish", "application/json",
		strings.NewReader(fmt.Sprintf(`{"channel":"kept:a","data":%d}`, data)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), fmt.Sprintf(`"offset":%d`, data)) {
		t.Fatalf("publication %d: %s", data, body)
	}
	http.DefaultClient.CloseIdleConnections()
}

// kept is the namespace of the channel.
const kept = "name=kept history-size=100 history-age=1h recovery"

// serveAt starts a server with --handover.
func serveAt(t *testing.T, path string, args ...string) server {
	t.Helper()
	return serve(t, append([]string{"--handover", path, "--namespace", kept}, args...)...)
}

// refused starts a program that must fail, and returns what it prints.
func refused(t *testing.T, program string, args ...string) string {
	t.Helper()
	p := start(t, nil, program, args...)
	if err := p.wait(); err == nil {
		t.Errorf("%v has not failed", args)
	}
	p.never("serving")
	return strings.Join(p.seen, "\n")
}

// upgradeNow runs myriad upgrade, and returns the new pid.
func upgradeNow(t *testing.T, args ...string) (pid int) {
	t.Helper()
	p := start(t, nil, binary, append([]string{"upgrade"}, args...)...)
	pid, _ = strconv.Atoi(p.want(`^process (\d+) goes on: `)[1])
	if err := p.wait(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return pid
}

// awaitEnd waits until the process has ended.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(patience); !hasEnded(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the process %d has not ended", pid)
		}
	}
}

// A new server finds the old one by its path and takes over from it, several times. The path leads
// to the one that serves, and to none at the end.
func TestHandoverByPath(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortFolder(t), "handover.sock")
	s := serveAt(t, path)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Fatalf("the socket: %v, %v", info, err)
	}
	c := read(t, s.addr)
	for i := range 4 {
		if i > 0 {
			next := serveAt(t, path)
			if next.addr != s.addr {
				t.Fatalf("the new server listens on %s, the old one on %s", next.addr, s.addr)
			}
			if err := s.wait(); err != nil {
				t.Fatalf("the old server: %v", err)
			}
			s.want(fmt.Sprintf(`a new process goes on" pid=%d connections=1 left=0 pause=`, next.cmd.Process.Pid))
			s = next
		}
		publishAt(t, s.addr, i+1)
		c.want(i + 1)
		if now, err := os.Stat(path); err != nil || !os.SameFile(now, info) {
			t.Fatalf("the socket: %v, %v", now, err)
		}
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the path at the end: %v", err)
	}
}

// What is left of a killed server is replaced. What is no socket, and what belongs to another
// program, is not.
func TestHandoverPathInUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortFolder(t), "handover.sock")
	s := serveAt(t, path)
	s.kill()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	s = serveAt(t, path)
	upgradeNow(t, "--handover", path)
	awaitEnd(t, s.cmd.Process.Pid)

	plain := path + ".txt"
	if err := os.WriteFile(plain, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0", "--handover", plain},
		{"upgrade", "--handover", plain}} {
		if out := refused(t, binary, args...); !strings.Contains(out, "is no socket: remove it") {
			t.Errorf("a file: %s", out)
		}
	}
	if text, err := os.ReadFile(plain); string(text) != "mine" {
		t.Errorf("the file has %q, %v", text, err)
	}

	other := path + ".other"
	ln, err := net.Listen("unix", other)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(nc, "220 mail.example.org ESMTP\r\n")
			nc.Close()
		}
	}()
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0", "--handover", other},
		{"upgrade", "--handover", other}} {
		if out := refused(t, binary, args...); !strings.Contains(out, "no answer of a server") {
			t.Errorf("another program: %s", out)
		}
	}
	if nc, err := net.Dial("unix", other); err != nil {
		t.Error(err)
	} else {
		nc.Close()
	}
	if out := refused(t, binary, "upgrade", "--handover", path+".none"); !strings.Contains(out, "no server listens") {
		t.Errorf("no server: %s", out)
	}
}

// While one upgrade is under way every other one is refused, by whichever way, and the first one
// goes on.
func TestOneUpgradeAtATime(t *testing.T) {
	t.Parallel()
	folder := shortFolder(t)
	path, config := filepath.Join(folder, "h"), filepath.Join(folder, "myriad.toml")
	// Each process waits until it can read its configuration.
	if err := syscall.Mkfifo(config, 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(config, nil, 0o600)
	s := serveAt(t, path, "--config", config)
	c := read(t, s.addr)
	old := s.cmd.Process.Pid
	if err := syscall.Kill(old, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(config, os.O_WRONLY, 0) // which returns when the new process reads it
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, args := range [][]string{{"upgrade", "--handover", path},
		{"serve", "--listen", "127.0.0.1:0", "--handover", path}} {
		if out := refused(t, binary, args...); !strings.Contains(out, "another upgrade is under way") {
			t.Errorf("%v while another upgrade is under way: %s", args, out)
		}
	}
	if err := syscall.Kill(old, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	s.want(`SIGUSR2: no new process took over, and this one goes on" error="another upgrade is under way"`)
	f.Close()
	pid, _ := strconv.Atoi(s.want(`a new process goes on" pid=(\d+)`)[1])
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	awaitEnd(t, old)
	go os.WriteFile(config, nil, 0o600)
	upgradeNow(t, "--handover", path)
	awaitEnd(t, pid)
	publishAt(t, s.addr, 1)
	t.Cleanup(func() {
		if t.Failed() {
			s.never("xx")
			t.Log(strings.Join(s.seen, "\n"))
		}
	})
	c.want(1)
}

// A server that fails to take over leaves the old one as it was: it serves, and its path leads to
// it.
func TestHandoverFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortFolder(t), "handover.sock")
	s := serveAt(t, path)
	c := read(t, s.addr)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"a namespace is missing": {[]string{"--listen", "127.0.0.1:0"}, `namespace .*kept`},
		"a port is in use": {[]string{"--listen", taken.Addr().String(), "--namespace", kept},
			"address already in use"},
		"pings change": {[]string{"--listen", "127.0.0.1:0", "--namespace", kept, "--ping-interval", "30s"},
			"ping"},
		"an option is wrong": {[]string{"--listen", "127.0.0.1:0", "--namespace", kept, "--loops", "300"}, "--loops"},
	} {
		out := refused(t, binary, append([]string{"serve", "--handover", path}, tt.args...)...)
		if !regexp.MustCompile(tt.want).MatchString(out) {
			t.Errorf("%s: %s", name, out)
		}
		if name != "an option is wrong" { // else the new one does not even ask
			s.want("no new process took over, and this one goes on.*" + tt.want)
		}
	}
	publishAt(t, s.addr, 1)
	c.want(1)
	// A process that connects and says nothing, or nonsense, delays no other one.
	for _, says := range []string{"", "take", "nonsense\n", strings.Repeat("x", 1000)} {
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		io.WriteString(nc, says)
		if says == "nonsense\n" {
			nc.SetDeadline(time.Now().Add(patience))
			if line, err := bufio.NewReader(nc).ReadString('\n'); !strings.Contains(line, `there is no request`) {
				t.Errorf("an answer %q, %v", line, err)
			}
		}
	}
	upgradeNow(t, "--handover", path)
	awaitEnd(t, s.cmd.Process.Pid)
	publishAt(t, s.addr, 2)
	c.want(2)
}

// With --handover-stay the old server does not end when another one has taken over, until it is
// told to.
func TestHandoverStay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortFolder(t), "handover.sock")
	s := serveAt(t, path, "--handover-stay")
	c := read(t, s.addr)
	next := serveAt(t, path, "--handover-stay")
	s.want("this one waits for the signal to end")
	publishAt(t, next.addr, 1)
	c.want(1)
	s.stop()
	if err := s.wait(); err != nil {
		t.Error(err)
	}
	publishAt(t, next.addr, 2)
	c.want(2)
	next.stop()
	if err := next.wait(); err != nil {
		t.Error(err)
	}
}

// A connection on which half a request has come follows when that is answered, if this is within
// --handover-wait. Otherwise it ends with the old server.
func TestHandoverWait(t *testing.T) {
	t.Parallel()
	for _, follows := range []bool{true, false} {
		t.Run(fmt.Sprint("follows ", follows), func(t *testing.T) {
			t.Parallel()
			path, wait := filepath.Join(shortFolder(t), "h"), patience.String()
			if !follows {
				wait = "10ms"
			}
			s := serveAt(t, path, "--handover-wait", wait, "--shutdown-timeout", "1s")
			nc, err := net.Dial("tcp", s.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			nc.SetDeadline(time.Now().Add(patience))
			r := bufio.NewReader(nc)
			answer := func() (*http.Response, error) {
				a, err := http.ReadResponse(r, nil)
				if err == nil {
					_, err = io.ReadAll(a.Body)
				}
				return a, err
			}
			// The second request is known to have come when the first one is answered.
			io.WriteString(nc, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\n")
			if a, err := answer(); err != nil || a.StatusCode != http.StatusOK {
				t.Fatal(a, err)
			}
			next := serveAt(t, path)
			s.want(`a new process goes on" pid=\d+ connections=0 left=1`)
			if !follows {
				if a, err := answer(); err == nil {
					t.Errorf("half a request is answered with %v", a)
				}
				return
			}
			io.WriteString(nc, "Host: localhost\r\n\r\n")
			if a, err := answer(); err != nil || a.Close {
				t.Fatal(a, err)
			}
			s.want(`connections that came to rest have followed" connections=1 left=0`)
			if err := s.wait(); err != nil {
				t.Error(err)
			}
			publication := `{"channel":"kept:a","data":1}`
			fmt.Fprintf(nc, "POST /api/publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
				"Content-Length: %d\r\n\r\n%s", len(publication), publication)
			if a, err := answer(); err != nil || a.StatusCode != http.StatusOK {
				t.Errorf("the new server: %v, %v", a, err)
			}
			publishAt(t, next.addr, 2)
		})
	}
}
