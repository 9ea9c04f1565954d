package websocket

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/tlsloop"
	"github.com/myriad-go/myriad/web"
)

// seeded is a reproducible source of keys and masks.
func seeded(seed uint64) io.Reader {
	var key [32]byte
	key[0] = byte(seed)
	return rand.NewChaCha8(key)
}

// A client and a server of this package, in worlds that lose nothing, under both dispatches, up to
// the closing handshake.
func TestDialOnSim(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d web.Dispatch) {
		for seed := range uint64(20) {
			so, served := recorded(&Options{Dispatch: d, PingInterval: quiet, OnMessage: echoBack,
				Subprotocols: []string{"b", "a"}})
			w := newWorld(t, seed, sim.Lossless(), myriad.Config{}, Handler(so))
			co, heard := recorded(&Options{Dispatch: d, PingInterval: quiet})
			do := &DialOptions{Random: seeded(seed)}
			do.OnOpen, do.OnMessage, do.OnClose = co.OnOpen, co.OnMessage, co.OnClose
			do.Dispatch, do.PingInterval, do.Engine, do.Subprotocols = d, quiet, w.e, []string{"a", "b"}
			c, resp, err := Dial(context.Background(), "ws://"+w.ln.Addr().String()+"/chat?x=1", do)
			if err != nil || resp.StatusCode != 101 || c.Subprotocol() != "b" {
				t.Fatalf("seed %d: %v, %v", seed, resp, err)
			}
			m, err := Prepare(OpBinary, []byte("prepared"))
			must(t, err)
			for _, err := range []error{c.Write(OpText, []byte("Hello")), c.Write(OpText, nil), c.WritePrepared(m),
				c.Ping([]byte("?"))} {
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
			m.Release()
			w.RunFor(20 * time.Second)
			if err := c.Close(4000, "enough"); err != nil {
				t.Errorf("seed %d: Close: %v", seed, err)
			}
			w.Run()
			want := lines("open", `text "Hello"`, `text ""`, `binary "prepared"`, "end 4000")
			if got := heard.all(); !slices.Equal(got, want) {
				t.Errorf("seed %d: the client heard %q, want %q", seed, got, want)
			}
			if got := served.all(); !slices.Equal(got, want) {
				t.Errorf("seed %d: the server heard %q, want %q", seed, got, want)
			}
			w.stop()
		}
	})
}

// switching is the answer that a client with this key expects.
func switching(key string) string {
	return string(appendSwitching(nil, key, "", deflateTerms{}, nil))
}

// A serverAnswer is a case of testdata/answers.txt.
type serverAnswer struct {
	name   string
	parts  [2]string // of the answer; the accept line is between them, if the second is not empty
	err    string
	status int // of the response that is returned with the error; 0: none
	body   string
	opens  string
}

func serverAnswers(t *testing.T) (all []serverAnswer) {
	t.Helper()
	eachLine(t, "answers.txt", func(word string, p *script) {
		if word == "case" {
			all = append(all, serverAnswer{name: p.all()})
			return
		}
		switch c := &all[len(all)-1]; word {
		case "<":
			if c.parts[0] = p.payload(0); p.skip("accept ") {
				c.parts[1] = p.payload(0)
			}
		case "fails":
			c.err = p.all()
		case "response":
			c.status, c.body = p.number(), p.payload(0)
		case "opens":
			c.opens = p.payload(0)
		default:
			p.wrong()
		}
	})
	return all
}

func (c *serverAnswer) to(key string) string {
	if c.parts[1] == "" {
		return c.parts[0]
	}
	return c.parts[0] + "Sec-WebSocket-Accept: " + string(appendAcceptKey(nil, key)) + "\r\n" + c.parts[1]
}

// What a client makes of each answer. A connection that is opened has what came with the 101.
func TestAnswersOfServers(t *testing.T) {
	for _, c := range serverAnswers(t) {
		for seed := range uint64(4) {
			o := &DialOptions{Random: seeded(seed), Options: Options{Subprotocols: []string{"chat"}}}
			heard, opened := "", false
			o.OnOpen = func(*Conn) { opened = true }
			o.OnMessage = func(_ *Conn, _ Op, p []byte) { heard += string(p) }
			w, _, resp, err := dialScripted(t, seed, o, c.to)
			w.RunFor(time.Minute)
			if c.err == "" && (err != nil || heard != c.opens) || c.err != "" && (opened || err == nil ||
				!strings.Contains(err.Error(), c.err)) {
				t.Errorf("%s, seed %d: %v, heard %q; want %q or an error with %q", c.name, seed, err, heard, c.opens,
					c.err)
			}
			if c.err != "" {
				checkResponse(t, resp, c.status, c.body)
			}
			w.stop()
		}
	}
}

// dialScripted dials a server that answers the handshake with answer, and then ends the connection.
func dialScripted(t *testing.T, seed uint64, o *DialOptions, answer func(key string) string) (*world, *Conn,
	*http.Response, error) {
	t.Helper()
	w := newWorld(t, seed, sim.Lossless(), myriad.Config{}, Handler(&Options{}))
	ln := w.listenPeer(func(p *sim.Peer, key string) {
		p.Write([]byte(answer(key)))
		p.CloseWrite()
	})
	defer ln.Close()
	o.Engine, o.PingInterval = w.e, quiet
	c, resp, err := Dial(context.Background(), "ws://"+ln.Addr().String(), o)
	return w, c, resp, err
}

// listenPeer has answered called with the key of each handshake.
func (w *world) listenPeer(answered func(p *sim.Peer, key string)) *sim.Listener {
	w.t.Helper()
	ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) {
		p.OnReceived = func([]byte) {
			if r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(p.Received()))); err == nil {
				p.OnReceived = nil
				answered(p, r.Header.Get("Sec-WebSocket-Key"))
			}
		}
	})
	must(w.t, err)
	return ln
}

func checkResponse(t *testing.T, resp *http.Response, status int, body string) {
	t.Helper()
	if (resp == nil) != (status == 0) || resp != nil && resp.StatusCode != status {
		t.Errorf("response %v, want status %d", resp, status)
	}
	if resp == nil {
		return
	}
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != body {
		t.Errorf("body %.50q, %v, want %.50q", got, err, body)
	}
}

func TestDialTimeout(t *testing.T) {
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(&Options{}))
	ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(*sim.Peer) {})
	must(t, err)
	o := &DialOptions{}
	o.Engine, o.HandshakeTimeout = w.e, 3*time.Second
	before := w.Now()
	_, _, err = Dial(context.Background(), "ws://"+ln.Addr().String(), o)
	if took := w.Now().Sub(before); !errors.Is(err, os.ErrDeadlineExceeded) || took < 3*time.Second ||
		took > 4*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	w.Run()
	noError(t, ln.Close())
	w.stop()
}

func TestDialGivesUpWithItsContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	o := &DialOptions{}
	o.Engine = startEngine(t, myriad.Config{Loops: 1})
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		nc, err := ln.Accept()
		cancel(errors.New("changed my mind"))
		if err == nil {
			defer nc.Close()
			_, _ = io.Copy(io.Discard, nc)
		}
	}()
	if c, _, err := Dial(ctx, "ws://"+ln.Addr().String(), o); c != nil || err == nil {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestDialRefuses(t *testing.T) {
	for address, want := range map[string]string{
		"ftp://example.com":      "use ws",
		"example.com":            "no host",
		"ws://":                  "no host",
		"ws://:80/":              "no host",
		"ws://example.com/#here": "fragment",
		"ws://a:b@example.com":   "Authorization",
		"ws://exa mple.com":      "invalid",
	} {
		if _, _, err := Dial(context.Background(), address, &DialOptions{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	for _, header := range []http.Header{{"Host": {"x"}}, {"Upgrade": {"x"}}, {"Sec-Websocket-Key": {"x"}},
		{"Content-Length": {"1"}},
		{"X-Bad": {"a\r\nInjected: b"}}, {"Bad Name": {"x"}}} {
		if _, _, err := Dial(context.Background(), "ws://127.0.0.1", &DialOptions{Header: header}); err == nil ||
			!strings.Contains(err.Error(), "DialOptions.Header") {
			t.Errorf("%v: %v", header, err)
		}
	}
	for _, o := range []*DialOptions{nil, {Host: "two words"}, {Options: Options{MaxMessage: -1}},
		{Random: strings.NewReader("short")}} {
		if _, _, err := Dial(context.Background(), "ws://127.0.0.1:1", o); err == nil {
			t.Errorf("options %v were taken", o)
		}
	}
}

// Dial to both kinds of servers, over real sockets.
func TestDialServers(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	so := &Options{Engine: e, Workers: startPool(t), OnMessage: echoBack, OriginPatterns: []string{"app.example"}}
	eachServer(t, so, func(t *testing.T, addr string) {
		heard := make(chan string, 10)
		o := &DialOptions{Header: http.Header{"Origin": {"https://app.example"}}, Host: "chat.example"}
		o.Engine, o.Workers = e, so.Workers
		o.OnMessage = func(_ *Conn, op Op, p []byte) { heard <- describe(op, false, p) }
		o.OnClose = func(_ *Conn, err error) { heard <- fmt.Sprint("end ", CloseStatus(err)) }
		c, _, err := Dial(context.Background(), "ws://"+addr+"/x", o)
		must(t, err)
		if c.RemoteAddr().String() != addr {
			t.Errorf("RemoteAddr is %v", c.RemoteAddr())
		}
		_ = c.Write(OpText, []byte("over and out"))
		got := lines(<-heard, <-heard) // the greeting and the echo come from two goroutines
		slices.Sort(got)
		if want := lines(`text "over and out"`, `text "welcome to /x"`); !slices.Equal(got, want) {
			t.Errorf("heard %q, want %q", got, want)
		}
		_ = c.Close(StatusNormalClosure, "")
		if got, want := <-heard, "end 1000 (normal closure)"; got != want {
			t.Errorf("heard %s, want %s", got, want)
		}
	})
}

func TestDialGetsTheRefusal(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "not today", http.StatusTeapot)
	}))
	defer s.Close()
	o := &DialOptions{}
	o.Engine = startEngine(t, myriad.Config{Loops: 1})
	_, resp, err := Dial(context.Background(), "ws://"+s.Listener.Addr().String(), o)
	if err == nil {
		t.Fatal("no error")
	}
	checkResponse(t, resp, http.StatusTeapot, "not today\n")
}

// DialContext opens the connection, and the value of DialWith is there from the first callback on.
func TestDialByOtherMeans(t *testing.T) {
	e := startEngine(t, myriad.Config{Loops: 1})
	so := &Options{Engine: e, Workers: startPool(t), OnMessage: echoBack}
	eachServer(t, so, func(t *testing.T, addr string) {
		opened, greeted, closed, asked := make(chan any, 1), make(chan struct{}, 1), make(chan error, 1), ""
		o := &DialOptions{DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			asked = network + " " + to
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
		o.Engine, o.Workers = e, so.Workers
		o.OnOpen = func(c *Conn) { opened <- c.Value() }
		o.OnMessage = func(*Conn, Op, []byte) { greeted <- struct{}{} }
		o.OnClose = func(_ *Conn, err error) { closed <- err }
		ctx, cancel := context.WithCancel(t.Context())
		c, _, err := DialWith(ctx, "ws://somewhere.example/", o, "a value")
		cancel() // it bounds DialWith, and not the connection
		must(t, err)
		if asked != "tcp somewhere.example:80" {
			t.Errorf("DialContext was asked for %q", asked)
		}
		if v := <-opened; v != "a value" {
			t.Errorf("OnOpen saw the value %v", v)
		}
		<-greeted // else the server's greeting may find the connection closed
		_ = c.Close(StatusNormalClosure, "")
		if err := <-closed; CloseStatus(err) != StatusNormalClosure {
			t.Errorf("closed with %v", err)
		}
	})
	o := &DialOptions{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no way there")
	}}
	o.Engine = e
	if _, _, err := Dial(t.Context(), "ws://somewhere.example/", o); err == nil || !strings.Contains(err.Error(),
		"no way") {
		t.Errorf("the error was %v", err)
	}
}

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

// A server that speaks h2 is not offered it, and the user's Config stays as it is.
func TestDialOffersHTTP1(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	own := &Options{Engine: e, Workers: startPool(t), OnMessage: echoBack}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := Accept(w, r, own); err != nil {
			t.Error(err)
		}
	}))
	s.EnableHTTP2 = true
	var offered []string
	s.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1", "chat"},
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			offered = h.SupportedProtos
			return nil, nil
		}}
	s.StartTLS()
	defer s.Close()
	for _, tt := range []struct{ given, offered []string }{
		{nil, nil},
		{[]string{"h2", "http/1.1"}, []string{"http/1.1"}},
		{[]string{"http/1.1", "h2"}, []string{"http/1.1"}},
		{[]string{"h2"}, []string{"http/1.1"}},
		{[]string{"http/1.1"}, []string{"http/1.1"}},
		{[]string{"h2", "chat", "http/1.1"}, []string{"chat", "http/1.1"}},
	} {
		heard := make(chan string, 1)
		o := dialer(t, e, heard)
		o.TLSConfig.NextProtos = slices.Clone(tt.given)
		wantEcho(t, "wss"+strings.TrimPrefix(s.URL, "https")+"/echo", o, heard)
		if !slices.Equal(offered, tt.offered) || !slices.Equal(o.TLSConfig.NextProtos, tt.given) {
			t.Errorf("%q: offered %q; the Config has %q then", tt.given, offered, o.TLSConfig.NextProtos)
		}
	}
}

// HandshakeTimeout ends each part of Dial in time, although the peer does not close.
func TestHandshakeTimeoutIsExact(t *testing.T) {
	const timeout, tick = 300 * time.Millisecond, 10 * time.Millisecond
	for _, tt := range []struct {
		address, proxy string
		connects       bool // the proxy does its part
	}{
		{"ws", "", false}, {"wss", "", false}, {"ws", "http", false}, {"wss", "http", false}, {"ws", "https", false},
		{"wss", "https", false}, {"wss", "socks5", false}, {"ws", "http", true}, {"wss", "http", true},
	} {
		w := sim.New(1, sim.Calm())
		e, err := myriad.Start(myriad.Config{Loops: 1, System: w})
		must(t, err)
		ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) {
			if tt.connects {
				p.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
			}
		})
		must(t, err)
		o := &DialOptions{Options: Options{Engine: e, HandshakeTimeout: timeout}, Random: seeded(1)}
		if tt.proxy != "" {
			proxy := &url.URL{Scheme: tt.proxy, Host: ln.Addr().String()}
			o.Proxy = func(*http.Request) (*url.URL, error) { return proxy, nil }
		}
		began, took := w.Now(), time.Duration(-1)
		w.Go(func() {
			_, _, err = Dial(context.Background(), tt.address+"://"+ln.Addr().String(), o)
			took = w.Now().Sub(began)
		})
		w.RunFor(time.Minute)
		if !errors.Is(err, os.ErrDeadlineExceeded) || took < timeout || took > timeout+tick {
			t.Errorf("%+v: after %v: %v", tt, took, err)
		}
		noError(t, errors.Join(ln.Close(), e.Shutdown(context.Background())))
		w.Run()
		w.Check(t)
	}
}

// A client reads all that comes in one segment with the 101, although its peer has ended the
// connection meanwhile, and whenever it begins to read.
func TestFramesWithTheAnswer(t *testing.T) {
	var wire []byte
	var want []string
	for i := range 200 {
		text := fmt.Sprint(i)
		wire = appendFrame(wire, frameHeader{fin: true, op: OpText}, []byte(text))
		wire = appendFrame(wire, frameHeader{fin: true, op: OpPing}, nil)
		want = append(want, text)
	}
	wire = appendFrame(wire, frameHeader{fin: true, op: OpClose}, appendCloseBody(nil, 1000, ""))
	answer := func(key string) string { return switching(key) + string(wire) }
	for _, pull := range []bool{false, true} {
		var got []string
		var end error
		o := &DialOptions{}
		if o.Pull = pull; !pull {
			o.OnMessage = func(_ *Conn, _ Op, p []byte) { got = append(got, string(p)) }
			o.OnClose = func(_ *Conn, err error) { end = err }
		}
		w, c, _, err := dialScripted(t, 1, o, answer)
		must(t, err)
		w.RunFor(time.Second)
		if pull {
			w.Go(func() {
				for {
					_, p, err := c.Read(context.Background())
					if end = err; err != nil {
						return
					}
					got = append(got, string(p))
				}
			})
		}
		w.RunFor(time.Minute)
		if !slices.Equal(got, want) || CloseStatus(end) != StatusNormalClosure {
			t.Errorf("pull %v: %d of %d messages, and the end %v", pull, len(got), len(want), end)
		}
		w.stop()
	}
}

// Each frame of a client has a mask of its own.
func TestMasksAreFresh(t *testing.T) {
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(&Options{}))
	var peer *sim.Peer
	ln := w.listenPeer(func(p *sim.Peer, key string) {
		peer = p
		p.Write([]byte(switching(key)))
	})
	o := &DialOptions{}
	o.Engine, o.PingInterval = w.e, quiet // Random is crypto/rand
	c, _, err := Dial(context.Background(), "ws://"+ln.Addr().String(), o)
	must(t, err)
	const frames = 1000
	prepared, err := Prepare(OpText, []byte("same"))
	must(t, err)
	for range frames / 2 {
		must(t, c.Write(OpText, []byte("same")))
		must(t, c.WritePrepared(prepared))
	}
	prepared.Release()
	w.Settle()
	_, wire, _ := bytes.Cut(peer.Received(), []byte("\r\n\r\n"))
	keys := map[uint32]int{}
	for ; len(wire) >= 10; wire = wire[10:] {
		keys[binary.BigEndian.Uint32(wire[2:])]++
	}
	if len(keys) < frames-1 { // two of 2^32 may be equal
		t.Errorf("%d masks for %d frames", len(keys), frames)
	}
	c.Abort(nil)
	w.Run()
	_ = ln.Close()
	w.stop()
}

// The server's limits for requests end with the upgrade, over both versions of HTTP.
func TestServerTimeoutsEndWithTheUpgrade(t *testing.T) {
	limit := func(s *web.Server) {
		s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = time.Second, time.Second, time.Second
		s.ReadHeaderTimeout = time.Second
	}
	o, heard := recorded(&Options{PingInterval: quiet, OnMessage: echoBack})
	check := func(w *world, speak func()) {
		for range 5 {
			w.RunFor(time.Minute)
			speak()
		}
		w.RunFor(time.Minute)
		if got := heard.all(); !slices.Equal(got, append([]string{"open"}, slices.Repeat([]string{`text "x"`}, 5)...)) {
			t.Errorf("heard %q", got)
		}
		heard.lines = nil
	}
	mux := newMuxWorld(t, 1, sim.Calm(), o)
	limit(mux.s)
	two := mux.dial(plenty)
	two.open(1)
	check(mux.world, func() { two.frames(1, clientFrame(true, OpText, "x"), 1, false) })
	if got := two.lines(1); len(got) != 5 {
		t.Errorf("HTTP/2: read %q", got)
	}
	mux.stop(two)

	heard.lines = nil
	o, heard = recorded(&Options{PingInterval: quiet, OnMessage: echoBack})
	w := &world{World: sim.New(1, sim.Calm()), t: t}
	var err error
	if w.e, err = myriad.Start(myriad.Config{Loops: 1, System: w.World}); err != nil {
		t.Fatal(err)
	}
	s := &web.Server{Engine: w.e, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = Accept(rw, r, o)
	})}
	limit(s)
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	one := &client{w.Dial(ln.Addr())}
	one.Write([]byte(sampleRequest))
	check(w, func() { one.send(OpText, "x") })
	if got := one.lines(t); len(got) != 5 {
		t.Errorf("HTTP/1: read %q", got)
	}
	w.finish(one)
}
