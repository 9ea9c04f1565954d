package clients

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The server serves the sockets that a service manager passes as systemd does, and notifies it when
// it is ready.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	var files []*os.File
	var urls []string
	for range 2 {
		ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		file, err := ln.File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		defer ln.Close()
		files, urls = append(files, file), append(urls, "http://"+ln.Addr().String())
	}
	path := filepath.Join(t.TempDir(), "n")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Skip("the path of the test's folder is too long for a socket:", err)
	}
	defer manager.Close()
	// LISTEN_PID is the pid of the shell, which execs the server.
	env := []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=admin:public", "NOTIFY_SOCKET=" + path}
	const script = `LISTEN_PID=$$ exec "$0" serve --listen fd:public --admin-listen fd:3`
	p := startWith(t, files, env, "sh", "-c", script, binary)
	manager.SetReadDeadline(time.Now().Add(patience))
	told := make([]byte, 1000)
	n, err := manager.Read(told)
	if want := "READY=1\nSTATUS=serving " + urls[1]; err != nil || string(told[:n]) != want {
		t.Fatalf("the service manager received %q, %v; want %q", told[:n], err, want)
	}
	for i, path := range []string{"/metrics", "/events"} {
		for j, url := range urls {
			r, err := http.Get(url + path)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if served := r.StatusCode != http.StatusNotFound; served != (i == j) {
				t.Errorf("%s%s: %s", url, path, r.Status)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
	(server{process: p}).stop()
	if err := p.wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}
