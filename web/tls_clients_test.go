package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// tool is the path of a client that is not ours, or the test is skipped.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("MYRIAD_REQUIRE_CLIENTS") == "1":
		t.Fatal(err)
	default:
		t.Skipf("%v (MYRIAD_REQUIRE_CLIENTS=1 makes this a failure)", err)
	}
	return path
}

// curl in the ways that people use it: what arrives at either end, and which versions were agreed
// on.
func TestCurl(t *testing.T) {
	t.Parallel()
	curl := tool(t, "curl")
	large := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB
	f := serveTLS(t, &Server{
		TLSConfig: &tls.Config{ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/large" {
				io.WriteString(w, large)
				return
			}
			fmt.Fprintf(w, "%s %s %d certificates, %d bytes, %v", r.Proto, tls.VersionName(r.TLS.Version),
				len(r.TLS.PeerCertificates), n, err)
		}),
	})
	cert, key := pairFiles(t)
	upload := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(upload, []byte(large), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		path string
		want string
	}{
		"as it comes": {want: "HTTP/2.0 TLS 1.3 0 certificates, 0 bytes, <nil>"},
		"TLS 1.2": {args: []string{"--tls-max", "1.2"},
			want: "HTTP/2.0 TLS 1.2 0 certificates, 0 bytes, <nil>"},
		"TLS 1.3": {args: []string{"--tlsv1.3"}, want: "HTTP/2.0 TLS 1.3 0 certificates, 0 bytes, <nil>"},
		"HTTP/1.1 wanted": {args: []string{"--http1.1"},
			want: "HTTP/1.1 TLS 1.3 0 certificates, 0 bytes, <nil>"},
		"HTTP/2 wanted": {args: []string{"--http2"}, want: "HTTP/2.0 TLS 1.3 0 certificates, 0 bytes, <nil>"},
		"client certificate": {args: []string{"--cert", cert, "--key", key},
			want: "HTTP/2.0 TLS 1.3 1 certificates, 0 bytes, <nil>"},
		"the same in TLS 1.2": {args: []string{"--cert", cert, "--key", key, "--tls-max", "1.2"},
			want: "HTTP/2.0 TLS 1.2 1 certificates, 0 bytes, <nil>"},
		"upload": {args: []string{"-T", upload},
			want: fmt.Sprintf("HTTP/2.0 TLS 1.3 0 certificates, %d bytes, <nil>", len(large))},
		"upload in TLS 1.2": {args: []string{"-T", upload, "--tls-max", "1.2"},
			want: fmt.Sprintf("HTTP/2.0 TLS 1.2 0 certificates, %d bytes, <nil>", len(large))},
		"download":            {path: "large", want: large},
		"download in TLS 1.2": {args: []string{"--tls-max", "1.2"}, path: "large", want: large},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			args := append([]string{"-sS", "--insecure", "--noproxy", "*", "https://" + f.addr + "/" + tt.path},
				tt.args...)
			out, err := exec.CommandContext(ctx, curl, args...).CombinedOutput()
			if string(out) != tt.want || err != nil {
				t.Errorf("got %d bytes, %.200q, %v; want %.200q", len(out), out, err, tt.want)
			}
		})
	}
}

// wrk holds its connections open and asks as fast as it is answered. It counts what fails, and so
// does the server.
func TestWrk(t *testing.T) {
	t.Parallel()
	wrk := tool(t, "wrk")
	var served, alien atomic.Int64
	f := serveTLS(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1); r.TLS == nil || r.Method != "GET" ||
			r.Host != r.Context().Value(http.LocalAddrContextKey).(net.Addr).String() {
			alien.Add(1)
		}
		io.WriteString(w, "Hello, World!")
	})})
	var answered int64
	for _, long := range []string{"1s", "4s", "16s"} { // a busy machine may take so long for forty handshakes
		served.Store(0)
		out, err := exec.CommandContext(t.Context(), wrk, "-t1", "-c40", "--timeout", "60s", "-d", long,
			"https://"+f.addr+"/").CombinedOutput()
		text := string(out)
		if err != nil || strings.Contains(text, "Socket errors") || strings.Contains(text, "Non-2xx") {
			t.Errorf("%v: %s", err, text)
		}
		for line := range strings.Lines(text) {
			if strings.Contains(line, " requests in ") {
				fmt.Sscan(line, &answered)
			}
		}
		if answered > 0 {
			break
		}
	}
	if n := served.Load(); answered == 0 || n < answered || n > answered+40 || alien.Load() > 0 {
		t.Errorf("%d answers, %d requests, %d of them strange", answered, n, alien.Load())
	}
}

const pythonClient = `
import http.client, ssl, sys, urllib.request
host, port = sys.argv[1].rsplit(":", 1)
ctx = ssl.create_default_context(cafile=sys.argv[2])
ctx.check_hostname = False

def connect():
    return http.client.HTTPSConnection(host, int(port), context=ctx, timeout=20)

# One connection for all of them, whatever the length of body and answer.
c = connect()
c.connect()
own = c.sock.getsockname()
for n in (0, 1, 100, 16384, 16385, 1000000):
    c.request("POST", "/echo", body=b"x" * n)
    r = c.getresponse()
    assert r.status == 200 and r.read() == b"x" * n, n
    assert c.sock.getsockname() == own
c.request("POST", "/echo", body=(b"y" * 1000 for _ in range(50)), encode_chunked=True,
          headers={"Transfer-Encoding": "chunked"})
assert c.getresponse().read() == b"y" * 50000
assert c.sock.getsockname() == own
c.close()

# Gone in the middle of an answer without end, first with a close_notify, then without.
for goneNotice in (True, False):
    c = connect()
    c.request("GET", "/endless")
    r = c.getresponse()
    assert len(r.read(100000)) == 100000
    if goneNotice:
        c.sock.setblocking(False)
        try:
            c.sock.unwrap()
        except (ssl.SSLError, OSError):
            pass # the rest of the answer is in the way
    r.close()
    c.close()

with urllib.request.urlopen("https://%s/echo" % sys.argv[1], data=b"by urllib", context=ctx) as r:
    assert r.read() == b"by urllib"
print("done", ctx.maximum_version.name)
`

// Python's http.client and urllib: connections that are kept, and such as are dropped in
// mid-answer, which ends the request's context.
func TestPythonHTTPS(t *testing.T) {
	python := tool(t, "python3")
	gone := make(chan error, 2)
	f := serveTLS(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" {
			io.Copy(w, r.Body)
			return
		}
		for p := make([]byte, 10_000); ; {
			if _, err := w.Write(p); err != nil {
				break
			}
		}
		<-r.Context().Done()
		gone <- r.Context().Err()
	})})
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	cert, _ := pairFiles(t)
	out, err := exec.CommandContext(ctx, python, "-c", pythonClient, f.addr, cert).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "done") {
		t.Fatalf("%s, %v", out, err)
	}
	for range 2 {
		select {
		case err := <-gone:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the request's context: %v", err)
			}
		case <-ctx.Done():
			t.Fatal("a handler has not heard that its client has gone")
		}
	}
}
