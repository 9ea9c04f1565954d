package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/myriad-go/myriad/client"
	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/web/webtest"
	"github.com/myriad-go/myriad/websocket"
)

func TestGuide(t *testing.T) {
	exampletest.Guide(t, "program.md", "main.go", "collector.go", "accesslog.go", "certificate.go", "handler.go",
		"nethttp.go", "proxy.go", "leak_test.go")
}

// Operators see the figures of requests and of loops, profiles, and a page about the engine.
func TestOperators(t *testing.T) {
	registry := prometheus.NewRegistry()
	public := webtest.NewServer(measured(routes(), registry))
	defer public.Close()
	private := webtest.NewServer(operators(public.Config.Engine, registry))
	defer private.Close()
	answer, err := public.Client().Get(public.URL + "/hello")
	if got := exampletest.Body(t, answer, err); got != "hello\n" {
		t.Errorf("got %q", got)
	}
	for path, wants := range map[string][]string{
		"/metrics": {`http_requests_total{code="200",method="get"} 1`, `myriad_loop_connections{loop="0"} `,
			"go_goroutines ", "# TYPE myriad_loop_busy_seconds_total counter"},
		"/debug/myriad":                  {"myriad: 1 connections"},
		"/debug/pprof/":                  {"goroutine"},
		"/debug/pprof/heap?debug=1":      {"heap profile"},
		"/debug/pprof/profile?seconds=1": {""},
	} {
		answer, err := private.Client().Get(private.URL + path)
		text := exampletest.Body(t, answer, err)
		for _, want := range wants {
			if answer.StatusCode != http.StatusOK || !strings.Contains(text, want) || text == "" {
				t.Errorf("%s: %s, %q is not in\n%s", path, answer.Status, want, text)
			}
		}
	}
}

// Each figure of the collector is a metric of each loop, with the value that Stats has.
func TestCollector(t *testing.T) {
	s := webtest.NewServer(routes())
	defer s.Close()
	answer, err := s.Client().Get(s.URL + "/hello")
	exampletest.Body(t, answer, err)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{s.Config.Engine})
	families, err := registry.Gather()
	if err != nil || len(families) != len(figures) {
		t.Fatalf("%d metrics for %d figures, %v", len(families), len(figures), err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		if n := len(s.Config.Engine.Loops()); len(f.Metric) != n {
			t.Errorf("%s has %d values for %d loops", f.GetName(), len(f.Metric), n)
		}
		for _, m := range f.Metric {
			sums[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	if sums["myriad_loop_connections"] != 1 || sums["myriad_loop_accepts_total"] != 1 ||
		sums["myriad_loop_queued_bytes"] != 0 {
		t.Errorf("%v for one connection", sums)
	}
}

// The access log has a line for a request, a WebSocket and a stream, also behind the middleware
// that measures.
func TestAccessLog(t *testing.T) {
	ended := make(chan struct{})
	o := &websocket.Options{Dispatch: web.DispatchInline, OnClose: func(*websocket.Conn, error) { close(ended) }}
	mux := http.NewServeMux()
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) { _, _ = websocket.Accept(w, r, o) })
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		stream, err := web.Events(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		_ = stream.Send(web.Event{Data: []byte("hello")})
		_ = stream.Close()
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) })
	lines := make(chan []byte, 10)
	to := slog.New(slog.NewJSONHandler(writerFunc(func(p []byte) { lines <- bytes.Clone(p) }), nil))
	s := webtest.NewServer(logged(measured(mux, prometheus.NewRegistry()), to))
	defer s.Close()
	for _, want := range []struct {
		path   string
		status float64
		ask    func(r *http.Request)
	}{
		{"/", 418, func(r *http.Request) { s.Record(t, r).Rest() }},
		{"/ws", 101, func(r *http.Request) { s.Dial(t, r).Abort(nil) }},
		{"/events", 200, func(r *http.Request) { s.Record(t, r).Event() }},
	} {
		want.ask(httptest.NewRequest("GET", want.path, nil))
		var line struct {
			Path, Method, Proto, From string
			Status, Bytes             float64
		}
		if err := json.Unmarshal(<-lines, &line); err != nil || line.Path != want.path || line.Status != want.status ||
			line.Method != "GET" || line.From == "" {
			t.Errorf("%+v, %v, want %s with %v", line, err, want.path, want.status)
		}
	}
	<-ended
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// newCertificate writes a certificate for 127.0.0.1 and its key, and returns it.
func newCertificate(t *testing.T, certFile, keyFile string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// A new connection has the certificate that was read last. Files that are no certificate change
// nothing.
func TestCertificateIsReplaced(t *testing.T) {
	dir := t.TempDir()
	c := &certificate{certFile: filepath.Join(dir, "cert.pem"), keyFile: filepath.Join(dir, "key.pem")}
	if c.read() == nil {
		t.Error("files that do not exist can be read")
	}
	first := newCertificate(t, c.certFile, c.keyFile)
	if err := c.read(); err != nil {
		t.Fatal(err)
	}
	s := webtest.NewUnstartedServer(routes())
	s.Config.TLSConfig = c.config()
	s.StartTLS()
	defer s.Close()
	check := func(want *x509.Certificate) {
		t.Helper()
		roots := x509.NewCertPool()
		roots.AddCert(want)
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), &tls.Config{RootCAs: roots})
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}
	check(first)
	ctx, cancel := context.WithCancel(t.Context())
	hangups, ended := make(chan os.Signal), make(chan struct{})
	go func() { c.follow(ctx, hangups); close(ended) }()
	second := newCertificate(t, c.certFile, c.keyFile)
	check(first)
	hangups <- syscall.SIGHUP
	hangups <- nil // taken when the first has been done
	check(second)
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	if err := os.WriteFile(c.certFile, []byte("half of a certifi"), 0o600); err != nil {
		t.Fatal(err)
	}
	hangups <- syscall.SIGHUP
	hangups <- nil
	check(second)
	cancel()
	<-ended
}

// The handler changes between two requests of one connection.
func TestHandlerIsReplaced(t *testing.T) {
	var h switchable
	h.use(http.NotFoundHandler())
	s := webtest.NewServer(&h)
	defer s.Close()
	hc := s.Client()
	answer, err := hc.Get(s.URL + "/hello")
	if exampletest.Body(t, answer, err); answer.StatusCode != http.StatusNotFound {
		t.Errorf("before: %s", answer.Status)
	}
	h.use(routes())
	answer, err = hc.Get(s.URL + "/hello")
	if got := exampletest.Body(t, answer, err); got != "hello\n" {
		t.Errorf("afterwards: %s %q", answer.Status, got)
	}
}

// An *http.Transport that a library wants has its requests carried by a client.Transport. A clone
// does not.
func TestStandardTransport(t *testing.T) {
	plain, secured := webtest.NewServer(routes()), webtest.NewTLSServer(routes())
	defer plain.Close()
	defer secured.Close()
	var dialed atomic.Int32
	dial := new(net.Dialer).DialContext
	own := &client.Transport{TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool()},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed.Add(1)
			return dial(ctx, network, addr)
		}}
	own.TLSClientConfig.RootCAs.AddCert(secured.Certificate())
	defer own.CloseIdleConnections()
	s := standard(own)
	for i, url := range []string{plain.URL, secured.URL} {
		answer, err := (&http.Client{Transport: s}).Get(url + "/hello")
		if got := exampletest.Body(t, answer, err); got != "hello\n" || dialed.Load() != int32(i+1) {
			t.Errorf("%s: %q, %d connections", url, got, dialed.Load())
		}
	}
	clone := s.Clone()
	defer clone.CloseIdleConnections()
	answer, err := (&http.Client{Transport: clone}).Get(plain.URL + "/hello")
	if exampletest.Body(t, answer, err); dialed.Load() != 2 {
		t.Error("a clone uses the client.Transport, too: say so in the guide")
	}
}

// The program ends in order when it is told to.
func TestProgramEnds(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGTERM")
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	leaf := newCertificate(t, cert, key)
	cmd, url := exampletest.Program(t, "--admin", "127.0.0.1:0", "--cert", cert, "--key", key)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	hc := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer hc.CloseIdleConnections()
	answer, err := hc.Get("https" + strings.TrimPrefix(url, "http") + "/hello")
	if got := exampletest.Body(t, answer, err); got != "hello\n" {
		t.Errorf("got %q", got)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
