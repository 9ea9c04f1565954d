package websocket

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// A toldServer is a server of net/http that upgrades what comes to /echo, tells what it was asked,
// and redirects the rest.
type toldServer struct {
	*httptest.Server
	mu   sync.Mutex
	seen []http.Header
}

func startTold(t *testing.T, e *myriad.Engine, secure bool, redirect func(path string) string) *toldServer {
	t.Helper()
	s := &toldServer{}
	o := &Options{Engine: e, Workers: startPool(t), OnMessage: echoBack}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Header.Clone())
		s.mu.Unlock()
		if r.URL.Path == "/echo" {
			if _, err := Accept(w, r, o); err != nil {
				t.Error(err)
			}
			return
		}
		http.Redirect(w, r, redirect(r.URL.Path), http.StatusFound)
	})
	s.Server = httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = nil
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *toldServer) ws(path string) string { return "ws" + strings.TrimPrefix(s.URL, "http") + path }

// dialer is options of a client that trusts the test's servers.
func dialer(t *testing.T, e *myriad.Engine, heard chan string) *DialOptions {
	o := &DialOptions{TLSConfig: &tls.Config{InsecureSkipVerify: true}}
	o.Engine, o.Workers, o.HandshakeTimeout = e, startPool(t), hangs
	o.OnMessage = func(_ *Conn, _ Op, p []byte) { heard <- string(p) }
	return o
}

// wantEcho says something on a new connection and waits for it to come back.
func wantEcho(t *testing.T, address string, o *DialOptions, heard chan string) *http.Response {
	t.Helper()
	c, resp, err := Dial(context.Background(), address, o)
	must(t, err)
	must(t, c.Write(OpText, []byte("Hello "+address)))
	if got := <-heard; got != "Hello "+address {
		t.Errorf("heard %q", got)
	}
	_ = c.Close(StatusNormalClosure, "")
	return resp
}

func TestDialSecure(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	heard := make(chan string, 1)
	s := startTold(t, e, true, nil)
	wantEcho(t, s.ws("/echo"), dialer(t, e, heard), heard)

	own := &Options{Workers: startPool(t), OnMessage: echoBack}
	pair := s.TLS.Certificates
	ln, err := e.Listen("tcp", "127.0.0.1:0", tlsloop.Handler(&tls.Config{Certificates: pair},
		func(tls.ConnectionState) myriad.Handler { return Handler(own) }))
	must(t, err)
	wantEcho(t, "wss://"+ln.Addr().String(), dialer(t, e, heard), heard)

	distrustful := dialer(t, e, heard)
	distrustful.TLSConfig = nil
	var unknown *tls.CertificateVerificationError
	if _, _, err := Dial(context.Background(), "wss://"+ln.Addr().String(), distrustful); !errors.As(err, &unknown) {
		t.Errorf("a certificate that nobody trusts: %v", err)
	}
	plain := startTold(t, e, false, nil)
	if _, _, err := Dial(context.Background(), "wss"+strings.TrimPrefix(plain.ws("/echo"), "ws"),
		dialer(t, e, heard)); err == nil {
		t.Error("TLS with a server that does not speak it")
	}
}

// A proxy is a minimal one that tells where it was asked to connect.
type proxy struct {
	net.Listener
	mu    sync.Mutex
	asked []string
}

func startProxy(t *testing.T, answer string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{Listener: ln}
	var running sync.WaitGroup
	t.Cleanup(func() { ln.Close(); running.Wait() })
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(c, answer) })
		}
	})
	return p
}

func (p *proxy) serve(c net.Conn, answer string) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(hangs))
	in := bufio.NewReader(c)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Header.Get("Proxy-Authorization")))
	p.mu.Unlock()
	io.WriteString(c, answer)
	if !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
		return
	}
	server, err := net.Dial("tcp", r.RequestURI)
	if err != nil {
		return
	}
	defer server.Close()
	var both sync.WaitGroup
	both.Go(func() {
		pass(server, in)
		_ = server.(*net.TCPConn).CloseWrite()
	})
	pass(c, server)
	_ = c.Close()
	both.Wait()
}

// pass copies all without the pipes that package net would use, and keep until the garbage
// collector has come twice: a run that ends before would have descriptors left.
func pass(to io.Writer, from io.Reader) {
	_, _ = io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
}

// A proxy that is TLS itself is asked in the same way, also for a server that is TLS.
func TestDialThroughTLSProxy(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	heard := make(chan string, 1)
	plain, secure := startTold(t, e, false, nil), startTold(t, e, true, nil)
	p := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	behind := startProxy(t, "HTTP/1.1 200 OK\r\n\r\n")
	p.StartTLS()
	defer p.Close()
	ln := relay(t, p.TLS, behind.Addr().String())
	o := dialer(t, e, heard)
	o.Proxy = func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: "https", Host: ln}, nil }
	wantEcho(t, plain.ws("/echo"), o, heard)
	wantEcho(t, secure.ws("/echo"), o, heard)
}

// relay takes TLS off connections, which go on to another address.
func relay(t *testing.T, cfg *tls.Config, to string) (addr string) {
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: cfg.Certificates})
	must(t, err)
	var running sync.WaitGroup
	t.Cleanup(func() { ln.Close(); running.Wait() })
	running.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			running.Go(func() {
				pass(out, in)
				_ = out.(*net.TCPConn).CloseWrite()
			})
			running.Go(func() {
				pass(in, out)
				_ = in.Close()
				_ = out.Close()
			})
		}
	})
	return ln.Addr().String()
}

func TestDialThroughProxy(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	heard := make(chan string, 1)
	plain, secure := startTold(t, e, false, nil), startTold(t, e, true, nil)
	p := startProxy(t, "HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
	o := dialer(t, e, heard)
	var schemes []string
	o.Proxy = func(r *http.Request) (*url.URL, error) {
		schemes = append(schemes, r.URL.Scheme)
		return &url.URL{Scheme: "http", Host: p.Addr().String(), User: url.UserPassword("me", "secret")}, nil
	}
	wantEcho(t, plain.ws("/echo"), o, heard)
	wantEcho(t, secure.ws("/echo"), o, heard)
	const auth = " Basic bWU6c2VjcmV0"
	want := fmt.Sprint([]string{"CONNECT " + plain.Listener.Addr().String() + auth,
		"CONNECT " + secure.Listener.Addr().String() + auth})
	if got := fmt.Sprint(p.asked); got != want || fmt.Sprint(schemes) != "[http https]" {
		t.Errorf("the proxy was asked %s for %v, want %s", got, schemes, want)
	}
}

func TestDialProxyFails(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	for answer, want := range map[string]string{
		"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 3\r\n\r\nno.": "407",
		"HTTP/1.1 200 OK\r\n\r\nand more":                                            "before it was sent any",
		"SSH-2.0-OpenSSH\r\n\r\n":                                                    "not a response",
		// and a proxy that waits: the context ends it
		"HTTP/1.1 200 OK\r\n": "",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxResponse): "above",
	} {
		p := startProxy(t, answer)
		o := dialer(t, e, nil)
		o.Proxy = func(*http.Request) (*url.URL,
			error) {
			return &url.URL{Scheme: "http", Host: p.Addr().String()}, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		if want == "" {
			cancel()
		}
		if _, _, err := Dial(ctx, "ws://127.0.0.1:1/", o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", answer, err, want)
		}
		cancel()
	}
	o := dialer(t, e, nil)
	o.Proxy = func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: "socks4", Host: "x:1"}, nil }
	if _, _, err := Dial(context.Background(), "ws://127.0.0.1:1/", o); !errors.Is(err, myriad.ErrUnsupported) {
		t.Errorf("socks4: %v", err)
	}
}

func TestDialFollowsRedirects(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	heard := make(chan string, 1)
	var plain, secure *toldServer
	to := func(path string) string {
		return map[string]string{"/a": "b", "/b": plain.URL + "/echo", "/up": secure.ws("/echo"), "/loop": "/loop",
			"/down": plain.ws("/echo"), "/file": "file:///etc/passwd",
			"/other": strings.Replace(plain.URL, "127.0.0.1", "localhost", 1) + "/echo"}[path]
	}
	plain, secure = startTold(t, e, false, to), startTold(t, e, true, to)
	o := dialer(t, e, heard)
	o.MaxRedirects = 3
	o.Header = http.Header{"Authorization": {"Bearer x"}, "X-Kept": {"yes"}}
	wantEcho(t, plain.ws("/a"), o, heard)
	if h := plain.seen[2]; h.Get("Authorization") != "Bearer x" {
		t.Errorf("on the same host: %v", h)
	}
	wantEcho(t, plain.ws("/up"), o, heard)
	plain.seen = nil
	wantEcho(t, plain.ws("/other"), o, heard)
	if h := plain.seen[1]; h.Get("Authorization") != "" || h.Get("X-Kept") != "yes" {
		t.Errorf("on another host: %v", h)
	}
	for path, of := range map[string]*toldServer{"/loop": plain, "/file": plain, "/down": secure} {
		_, resp, err := Dial(context.Background(), of.ws(path), o)
		if err == nil || resp == nil || resp.StatusCode != http.StatusFound {
			t.Errorf("%s: %v, %v", path, resp, err)
		}
	}
	plain.seen = nil
	if _, resp, err := Dial(context.Background(), plain.ws("/a"), dialer(t, e, heard)); err == nil ||
		resp.StatusCode != http.StatusFound || len(plain.seen) != 1 {
		t.Errorf("without MaxRedirects: %v, %d requests", err, len(plain.seen))
	}
}

// An HTTPS server of net/http whose listener is tlsloop's: adopted connections have no goroutine.
func TestAcceptSecureWithoutGoroutines(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	heard := make(chan string, 1)
	o := &Options{Engine: e, Workers: startPool(t), OnMessage: echoBack}
	borrowed := startTold(t, e, true, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := Accept(w, r, o); err != nil {
			t.Error(err)
		}
	})}
	var serving sync.WaitGroup
	serving.Go(func() {
		_ = server.Serve(tlsloop.NewListener(ln, &tls.Config{Certificates: borrowed.TLS.Certificates,
			NextProtos: []string{"http/1.1"}}))
	})
	for range 5 {
		wantEcho(t, "wss://"+ln.Addr().String(), dialer(t, e, heard), heard)
	}
	_ = server.Close()
	serving.Wait()
}
