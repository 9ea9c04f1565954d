package clients

import (
	"bufio"
	"context"
	bytesof "encoding/binary"
	"fmt"
	"io"
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

// An upgraded is a server that starts itself anew. Its latest process is pid.
type upgraded struct {
	server
	pid   int
	admin http.Client
}

// upgrade sends SIGUSR2 to the process, waits until a new one goes on, and until the old one has
// ended.
func (u *upgraded) upgrade() {
	u.t.Helper()
	old := u.pid
	if err := syscall.Kill(old, syscall.SIGUSR2); err != nil {
		u.t.Fatal(err)
	}
	pid := u.want(`a new process goes on" pid=(\d+)`)[1]
	u.pid, _ = strconv.Atoi(pid)
	for end := time.Now().Add(patience); !hasEnded(old); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			u.t.Fatalf("the process %d has not ended", old)
		}
	}
}

// hasEnded reports whether there is no such process, or only what its parent has yet to wait for.
func hasEnded(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}

// publish publishes to the channel "kept:a" by the socket of the API.
func (u *upgraded) publish(data int) {
	u.t.Helper()
	r, err := u.admin.Post("http://localhost/api/publish", "application/json",
		strings.NewReader(fmt.Sprintf(`{"channel":"kept:a","data":%d}`, data)))
	if err != nil {
		u.t.Fatal(err)
	}
	defer r.Body.Close()
	if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), fmt.Sprintf(`"offset":%d`, data)) {
		u.t.Fatalf("publication %d: %s", data, body)
	}
	u.admin.CloseIdleConnections()
}

// Clients of the real binary notice nothing of several upgrades: by WebSocket and by Server-Sent
// Events, and programs find the same addresses.
func TestUpgrade(t *testing.T) {
	folder, err := os.MkdirTemp("", "upgrade") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, "admin")
	u := &upgraded{server: serve(t, "--admin-listen", "unix:"+path,
		"--namespace", "name=kept history-size=100 history-age=1h recovery")}
	u.pid = u.cmd.Process.Pid
	t.Cleanup(func() { _ = syscall.Kill(u.pid, syscall.SIGKILL) })
	u.admin.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	dial := func(request string) *bufio.Reader {
		t.Helper()
		nc, err := net.Dial("tcp", u.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		nc.SetDeadline(time.Now().Add(patience))
		io.WriteString(nc, request)
		r := bufio.NewReader(nc)
		for line := ""; line != "\r\n"; {
			if line, err = r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
	commands := "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"kept:a\"}}"
	socket := dial("GET /connection/websocket HTTP/1.1\r\nHost: " + u.addr + "\r\nUpgrade: websocket\r\n" +
		"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" +
		string([]byte{0x81, 0x80 | byte(len(commands)), 0, 0, 0, 0}) + commands)
	frame := func() string {
		t.Helper()
		head := make([]byte, 2)
		if _, err := io.ReadFull(socket, head); err != nil {
			t.Fatal(err)
		}
		size := int(head[1])
		if size == 126 {
			if _, err := io.ReadFull(socket, head); err != nil {
				t.Fatal(err)
			}
			size = int(bytesof.BigEndian.Uint16(head))
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(socket, body); err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	if got := frame(); !strings.Contains(got, `"subscribe"`) {
		t.Fatal(got)
	}
	events := dial("GET /events?channel=kept:a HTTP/1.1\r\nHost: " + u.addr + "\r\n\r\n")
	event := func() string {
		t.Helper()
		for {
			line, err := events.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if data, is := strings.CutPrefix(line, "data: "); is {
				return strings.TrimSpace(data)
			}
		}
	}
	for i := range 4 {
		if i > 0 {
			u.upgrade()
		}
		u.publish(i + 1)
		if got, want := frame(), fmt.Sprintf(`"pub":{"data":%d,"offset":%d}`, i+1, i+1); !strings.Contains(got, want) {
			t.Fatalf("by WebSocket: %s, want %s", got, want)
		}
		if got := event(); got != strconv.Itoa(i+1) {
			t.Fatalf("an event with %s, want %d", got, i+1)
		}
		r, err := http.Get("http://" + u.addr + "/health")
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("health: %v, %v", r, err)
		}
		r.Body.Close()
		http.DefaultClient.CloseIdleConnections()
	}
	if err := syscall.Kill(u.pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := frame(); !strings.Contains(got, "shutdown") {
		t.Errorf("at the end: %q", got)
	}
	u.never("they are closed")
}

// The logs say how many connections are left, also of clients that cannot move, and which addresses
// are served no more.
func TestUpgradeLeaves(t *testing.T) {
	folder, err := os.MkdirTemp("", "upgrade") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	config := filepath.Join(folder, "myriad.toml")
	admin := func(name string) (path string) {
		t.Helper()
		path = filepath.Join(folder, name)
		if err := os.WriteFile(config, fmt.Appendf(nil, "admin-listen = %q\n", "unix:"+path), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	former := admin("former")
	u := &upgraded{server: serve(t, "--config", config, "--shutdown-timeout", "1s")}
	u.pid = u.cmd.Process.Pid
	t.Cleanup(func() { _ = syscall.Kill(u.pid, syscall.SIGKILL) })
	nc, err := net.Dial("tcp", u.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	// The server waits for the rest of the request.
	io.WriteString(nc, "POST /connection/http_stream HTTP/1.1\r\nHost: "+u.addr+"\r\nContent-Length: 9\r\n"+
		"Expect: 100-continue\r\n\r\n")
	if line, err := bufio.NewReader(nc).ReadString('\n'); !strings.Contains(line, " 100 ") {
		t.Fatalf("%q, %v", line, err)
	}
	admin("next")
	u.upgrade()
	if lines := strings.Join(u.seen, "\n"); !strings.Contains(lines, " connections=0 left=1") {
		t.Errorf("the log of the old process does not say that one connection is left:\n%s", lines)
	}
	// The new process may say so before the old one says that it goes on.
	closed := `they are closed" addresses="unix ` + former + `"`
	if !strings.Contains(strings.Join(u.seen, "\n"), closed) {
		u.want(regexp.QuoteMeta(closed))
	}
}

// childOf returns a child of the process, 0: it has none.
func childOf(pid int) int {
	if children := childrenOf(pid); len(children) > 0 {
		return children[0]
	}
	return 0
}

// childrenOf returns the children of the process, also those that it has yet to wait for.
func childrenOf(pid int) (children []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(text)) {
			child, _ := strconv.Atoi(child)
			children = append(children, child)
		}
	}
	return children
}

// The signal to shut down comes while a new process starts. It ends the service at once, although
// only the old process gets it and the new one hangs. Clients are told, also if both get it.
func TestUpgradeWhileShuttingDown(t *testing.T) {
	for _, both := range []bool{false, true} {
		t.Run(fmt.Sprint("both ", both), func(t *testing.T) {
			// Each process waits until it can read its configuration.
			config := filepath.Join(t.TempDir(), "myriad.toml")
			if err := syscall.Mkfifo(config, 0o600); err != nil {
				t.Fatal(err)
			}
			go os.WriteFile(config, nil, 0o600)
			s := serve(t, "--config", config)
			r, err := http.Get("http://" + s.addr + "/events?channel=a")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			old := s.cmd.Process.Pid
			if err := syscall.Kill(old, syscall.SIGUSR2); err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(config, os.O_WRONLY, 0) // which returns when the new process reads it
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			child := childOf(old)
			if child == 0 {
				t.Fatal("there is no new process")
			}
			defer syscall.Kill(child, syscall.SIGKILL)
			if both {
				if err := syscall.Kill(child, syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			s.stop()
			s.want("SIGUSR2: no new process took over, and this one goes on.*the server shuts down")
			if _, err := io.ReadAll(r.Body); err != nil {
				t.Errorf("the client's stream: %v", err)
			}
			if err := s.wait(); err != nil { // for the ends of both, because both have its output
				t.Error(err)
			}
		})
	}
}

// The signal to shut down comes while everything moves: the old process, which alone gets it,
// passes it on. Both end, and clients are told.
func TestShutDownWhileMoving(t *testing.T) {
	for n := range fewestMessages - 1 { // from hello, which follows take, to before go
		t.Run(fmt.Sprint("message ", n), func(t *testing.T) {
			t.Parallel()
			w := witness(t, 2, fmt.Sprintf("told %d before", n))
			w.stop()
			nc, err := net.Dial("tcp", w.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			// The old process waits for the rest of the request, so it does not end before it knows
			// of the signal.
			io.WriteString(nc, "POST /connection/http_stream HTTP/1.1\r\nHost: "+w.addr+"\r\nContent-Length: 9\r\n"+
				"Expect: 100-continue\r\n\r\n")
			if line, err := bufio.NewReader(nc).ReadString('\n'); !strings.Contains(line, " 100 ") {
				t.Fatalf("%q, %v", line, err)
			}
			w.replaceByRelay()
			w.want("passing on the signal")
			nc.Close()
			if err := w.wait(); err != nil { // for the ends of both, because both have its output
				t.Error(err)
			}
		})
	}
}

// The signals that ask for an upgrade, and for new settings, do not end a server that shuts down.
func TestSignalsWhileShuttingDown(t *testing.T) {
	s := serve(t, "--shutdown-timeout", "1s")
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
	s.stop()
	s.want("shutting down")
	for _, sig := range []os.Signal{syscall.SIGUSR2, syscall.SIGHUP} {
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.wait(); err != nil {
		t.Error(err)
	}
}

// If the new process cannot go on, the old one does, and its log says why.
func TestUpgradeFails(t *testing.T) {
	config := filepath.Join(t.TempDir(), "myriad.toml")
	write := func(history int) {
		t.Helper()
		text := fmt.Sprintf("[[namespace]]\nname = \"kept\"\nhistory-size = %d\n", history)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(10)
	s := serve(t, "--config", config)
	for _, history := range []int{11, -1} { // what cannot change, and what there cannot be
		write(history)
		if err := s.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		s.want("SIGUSR2: no new process took over, and this one goes on")
		r, err := http.Get("http://" + s.addr + "/health")
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("health: %v, %v", r, err)
		}
		r.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	s.stop()
	if err := s.wait(); err != nil {
		t.Error(err)
	}
}
