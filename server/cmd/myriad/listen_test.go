//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// unixDir returns a directory whose path is short enough for sockets.
func unixDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// startOn runs the command with only these arguments until stop. It returns when the log has the
// line.
func startOn(t *testing.T, line string, args ...string) (log *syncBuffer, stop func() error) {
	t.Helper()
	_, log, stop = beginUntil(t, regexp.QuoteMeta(line), func(ctx context.Context, log io.Writer) error {
		return run(ctx, append([]string{"myriad", "serve"}, args...), log, log)
	})
	return log, stop
}

// through returns a client whose requests go to the unix socket.
func through(t *testing.T, path string) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func statusOf(t *testing.T, c *http.Client, url string) int {
	t.Helper()
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	return r.StatusCode
}

// The socket has the requested permissions, replaces a stale socket, and is removed at the end.
func TestServeOnAUnixSocket(t *testing.T) {
	path := filepath.Join(unixDir(t), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	_, stop := startOn(t, "url=unix:"+path, "--listen", "unix:"+path, "--socket-mode", "0606")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o606 {
		t.Errorf("the socket has %v, %v", info.Mode(), err)
	}
	c := through(t, path)
	for url, want := range map[string]int{"http://localhost/health": 200, "http://rebound.example.org/health": 403} {
		if status := statusOf(t, c, url); status != want {
			t.Errorf("%s: %d, want %d", url, status, want)
		}
	}
	err = run(t.Context(), []string{"myriad", "serve", "--listen", "unix:" + path}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "another process listens on it") {
		t.Errorf("a second server: %v", err)
	}
	c.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket was not removed: %v", err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = run(t.Context(), []string{"myriad", "serve", "--listen", "unix:" + path}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "is no socket: remove it") {
		t.Errorf("over an ordinary file: %v", err)
	}
}

// descriptor returns the number of a duplicate of ln's socket, as a service manager passes one.
func descriptor(t *testing.T, ln interface{ File() (*os.File, error) }) int {
	t.Helper()
	file, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestServeOnAnInheritedSocket(t *testing.T) {
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	fd := descriptor(t, ln)
	ln.Close()
	url := "http://" + ln.Addr().String()
	_, stop := startOn(t, "url="+url, "--listen", fmt.Sprint("fd:", fd))
	if status, body := get(t, url+"/health"); status != 200 {
		t.Errorf("health: %d %s", status, body)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
}

// serve refuses descriptors that it cannot inherit, with the reason, and an exposed socket without
// keys.
func TestServeRefusesDescriptors(t *testing.T) {
	exposed, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4zero})
	if err != nil {
		t.Fatal(err)
	}
	defer exposed.Close()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	for listen, want := range map[string]string{
		fmt.Sprint("fd:", descriptor(t, exposed)): "can be reached from other machines: set --api-key",
		fmt.Sprint("fd:", plain):                  "must be a listening TCP or unix socket",
		"fd:1000000":                              "must be a listening TCP or unix socket",
		"fd:public":                               "systemd has passed no socket to this process",
	} {
		err := run(t.Context(), []string{"myriad", "serve", "--listen", listen}, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--listen %s: %v, want %s", listen, err, want)
		}
	}
}

func TestPassedDescriptor(t *testing.T) {
	for _, tt := range []struct {
		pid, count, names, name string
		fd                      int
		wrong                   string
	}{
		{"7", "1", "public", "public", 3, ""},
		{"7", "3", "a:public:b", "b", 5, ""},
		{"7", "2", "a:b", "public", 0, "no socket of that name, but a, b"},
		{"7", "2", "public:public", "public", 0, "several sockets of that name"},
		{"7", "1", "a:public", "public", 0, "no socket of that name"},
		{"8", "1", "public", "public", 0, "no socket to this process"},
		{"", "", "", "public", 0, "no socket to this process"},
		{"7", "x", "public", "public", 0, "no socket to this process"},
	} {
		environ := map[string]string{"LISTEN_PID": tt.pid, "LISTEN_FDS": tt.count, "LISTEN_FDNAMES": tt.names}
		fd, err := passedDescriptor(tt.name, 7, func(name string) string { return environ[name] })
		if fd != tt.fd || (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%+v: %d, %v", tt, fd, err)
		}
	}
}

// With a second address, the first serves only clients.
func TestServeOnTwoAddresses(t *testing.T) {
	path := filepath.Join(unixDir(t), "admin")
	log, stop := startOn(t, "admin=unix:"+path, "--listen", "127.0.0.1:0", "--admin-listen", "unix:"+path,
		"--token-secret", "secret")
	_, rest, _ := strings.Cut(log.String(), "url=")
	url, _, _ := strings.Cut(rest, " ")
	public, admin := http.DefaultClient, through(t, path)
	for _, tt := range []struct {
		path          string
		public, admin int
	}{
		{"/health", 200, 200}, {"/events?channel=a", 401, 404}, {"/connection/websocket", 426, 404},
		{"/api/publish", 404, 405}, {"/api", 404, 405}, {"/metrics", 404, 200}, {"/", 404, 200},
		{"/console/stats", 404, 403}, {"/debug/myriad", 404, 404},
	} {
		if status := statusOf(t, public, url+tt.path); status != tt.public {
			t.Errorf("%s of --listen: %d, want %d", tt.path, status, tt.public)
		}
		if status := statusOf(t, admin, "http://localhost"+tt.path); status != tt.admin {
			t.Errorf("%s of --admin-listen: %d, want %d", tt.path, status, tt.admin)
		}
	}
	if status := statusOf(t, admin, "http://rebound.example.org/metrics"); status != 403 {
		t.Errorf("an admin address without a key serves another host: %d", status)
	}
	public.CloseIdleConnections()
	admin.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
}

// Each address requires the keys of the paths that it serves.
func TestExposureOfTwoAddresses(t *testing.T) {
	for _, tt := range []struct {
		listen, admin, key, secret string
		development                bool
		wrong                      []string
	}{
		{"127.0.0.1:1", "127.0.0.1:2", "", "", true, nil},
		{"0.0.0.0:1", "127.0.0.1:2", "", "secret", false, nil},
		{"0.0.0.0:1", "unix:/run/m", "", "", false, []string{"--listen 0.0.0.0:1", "MYRIAD_TOKEN_SECRET"}},
		{"127.0.0.1:1", "0.0.0.0:2", "", "", false, []string{"--admin-listen 0.0.0.0:2", "MYRIAD_API_KEY"}},
		{"127.0.0.1:1", "127.0.0.1:1", "", "", false, []string{"--listen has the same address"}},
		{"127.0.0.1:0", "127.0.0.1:0", "", "", true, nil},
		{"127.0.0.1:1", "localhost", "", "", false, []string{"--admin-listen \"localhost\""}},
	} {
		all, err := settings{listen: tt.listen, adminListen: tt.admin}.addresses()
		development := false
		if err == nil {
			development, err = all.checkExposure(tt.key, tt.secret != "")
		}
		if development != tt.development || (err == nil) != (tt.wrong == nil) {
			t.Errorf("%+v: %v, %v", tt, development, err)
		}
		for _, word := range tt.wrong {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%+v: %v does not say %q", tt, err, word)
			}
		}
		if err != nil && tt.admin != "unix:/run/m" && strings.Contains(err.Error(), "TOKEN_SECRET") {
			t.Errorf("%+v: %v requests a setting that is not needed", tt, err)
		}
	}
}

// The server notifies the service manager that it is ready, alive and stopping.
func TestServeNotifies(t *testing.T) {
	path := filepath.Join(unixDir(t), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	manager.SetReadDeadline(time.Now().Add(30 * time.Second))
	next := func() string {
		t.Helper()
		p := make([]byte, 4096)
		n, err := manager.Read(p)
		if err != nil {
			t.Fatal(err)
		}
		return string(p[:n])
	}
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "20000")
	url, _, stop := start(t)
	if got, want := next(), "READY=1\nSTATUS=serving "+url; got != want {
		t.Errorf("at the start: %q, want %q", got, want)
	}
	for range 2 {
		if got := next(); got != "WATCHDOG=1" {
			t.Errorf("while it runs: %q", got)
		}
	}
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
	got := next()
	for got == "WATCHDOG=1" {
		got = next()
	}
	if got != "STOPPING=1" {
		t.Errorf("at the end: %q", got)
	}
}

// A stuck server sends no notification, so that the service manager restarts it.
func TestWatchdogOfAStuckServer(t *testing.T) {
	path := filepath.Join(unixDir(t), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	n, err := newNotifier(func(string) string { return path })
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	n.watch(ctx, 2*time.Millisecond, func() bool {
		if asked++; asked == 3 {
			cancel()
		}
		return true
	})
	n.say("end")
	p := make([]byte, 100)
	if size, err := manager.Read(p); err != nil || string(p[:size]) != "end" {
		t.Errorf("a stuck server sent %q, %v", p[:size], err)
	}
}

func TestNotifyEnvironment(t *testing.T) {
	for _, tt := range []struct {
		micros, pid string
		want        time.Duration
		wrong       bool
	}{
		{"", "", 0, false}, {"3000000", "", 3 * time.Second, false}, {"3000000", fmt.Sprint(os.Getpid()),
			3 * time.Second, false},
		{"3000000", "1", 0, false}, {"x", "", 0, true}, {"-1", "", 0, true},
	} {
		environ := map[string]string{"WATCHDOG_USEC": tt.micros, "WATCHDOG_PID": tt.pid}
		got, err := watchdogPeriod(func(name string) string { return environ[name] })
		if got != tt.want || (err != nil) != tt.wrong {
			t.Errorf("%+v: %v, %v", tt, got, err)
		}
	}
	if _, err := newNotifier(func(string) string { return filepath.Join(t.TempDir(), "none") }); err == nil ||
		!strings.Contains(err.Error(), "AF_UNIX") {
		t.Errorf("without a service manager: %v", err)
	}
}

// A page on another host reaches an admin handler only with a key.
func TestHandlersOfTwoAddresses(t *testing.T) {
	for key, want := range map[string]int{"": 403, "key": 200} {
		s := settings{listen: "127.0.0.1:0", adminListen: "127.0.0.1:0", log: discard()}
		s.push.APIKey, s.push.TokenSecret = key, "secret"
		all, err := s.addresses()
		if err != nil {
			t.Fatal(err)
		}
		r, err := setUp(s, all, false)
		if err != nil {
			t.Fatal(err)
		}
		r.shutdownTimeout = 10 * time.Second
		request := httptest.NewRequest("GET", "/health", nil)
		request.Host = "rebound.example.org"
		w := httptest.NewRecorder()
		if r.handlers()[1].ServeHTTP(w, request); w.Code != want {
			t.Errorf("with the key %q: %d, want %d", key, w.Code, want)
		}
		if err := r.shutdown(nil); err != nil {
			t.Error(err)
		}
	}
}
