package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// forward is a proxy: CONNECT, and absolute URLs.
func forward(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("me:secret")) {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != "CONNECT" {
		fmt.Fprintf(w, "proxied %s", r.URL)
		return
	}
	out, err := net.Dial("tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	in, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	io.WriteString(in, "HTTP/1.1 200 Connected\r\n\r\n")
	join(in, out)
}

// join passes bytes both ways by reading and writing. Package net would join two TCP connections by
// a pipe, and keep that open until the next garbage collections.
func join(a, b net.Conn) {
	type plain struct{ io.ReadWriter }
	go func() {
		io.Copy(plain{a}, plain{b})
		a.Close()
	}()
	io.Copy(plain{b}, plain{a})
	b.Close()
}

func proxied(t testing.TB, raw string) func(*http.Request) (*url.URL, error) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return http.ProxyURL(u)
}

// behindProxies are a server with TLS, and the URLs of two proxies, one of them with TLS.
func behindProxies(t *testing.T) (secure *httptest.Server, proxies []string) {
	secure = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "direct "+r.URL.Path)
	}))
	t.Cleanup(secure.Close)
	overTLS := httptest.NewTLSServer(http.HandlerFunc(forward))
	t.Cleanup(overTLS.Close)
	return secure, []string{serveHTTP(t, forward).URL, overTLS.URL}
}

func TestProxies(t *testing.T) {
	secure, proxies := behindProxies(t)
	for _, proxy := range proxies {
		with := strings.Replace(proxy, "://", "://me:secret@", 1)
		tr := fresh(t, &Transport{Proxy: proxied(t, with), TLSClientConfig: trusting(secure)})
		for range 2 {
			if _, body := get(t, tr, "http://example.com/a"); body != "proxied http://example.com/a" {
				t.Errorf("%s: %q", with, body)
			}
			if _, body := get(t, tr, secure.URL+"/b"); body != "direct /b" {
				t.Errorf("%s: %q", with, body)
			}
		}
		tr = fresh(t, &Transport{Proxy: proxied(t, proxy), TLSClientConfig: trusting(secure)})
		_, err := byDo{tr}.RoundTrip(request(t, "GET", secure.URL, nil))
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Phase != Dialing || !strings.Contains(err.Error(), "Proxy Auth") {
			t.Errorf("%s without a password: %v", proxy, err)
		}
	}
}

// A program's own dialer is used for the proxy, and its end does not end the TLS within TLS.
func TestProxiesByDialContext(t *testing.T) {
	secure, proxies := behindProxies(t)
	for _, proxy := range proxies {
		var d net.Dialer
		var dialled atomic.Int32
		tr := fresh(t, &Transport{TLSClientConfig: trusting(secure),
			Proxy: proxied(t, strings.Replace(proxy, "://", "://me:secret@", 1)),
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dialled.Add(1)
				return d.DialContext(ctx, network, addr)
			}})
		if _, body := get(t, tr, "http://example.com/a"); body != "proxied http://example.com/a" {
			t.Errorf("%s: %q", proxy, body)
		}
		if _, body := get(t, tr, secure.URL+"/b"); body != "direct /b" {
			t.Errorf("%s: %q", proxy, body)
		}
		if n := dialled.Load(); n != 2 {
			t.Errorf("%s: DialContext was called %d times", proxy, n)
		}
	}
}

// socksServer is a SOCKS5 proxy that wants a user and password if login is set.
func socksServer(t *testing.T, login bool) string {
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		p := make([]byte, 300)
		io.ReadFull(r, p[:2])
		io.ReadFull(r, p[2:2+p[1]])
		if login {
			c.Write([]byte{5, 2})
			io.ReadFull(r, p[:2])
			n := int(p[1])
			io.ReadFull(r, p[:n+1])
			user := string(p[:n])
			n = int(p[n])
			io.ReadFull(r, p[:n])
			if user != "me" || string(p[:n]) != "secret" {
				c.Write([]byte{1, 1})
				return
			}
			c.Write([]byte{1, 0})
		} else {
			c.Write([]byte{5, 0})
		}
		io.ReadFull(r, p[:5])
		host := ""
		switch p[3] {
		case 1:
			io.ReadFull(r, p[5:8])
			host = net.IP(p[4:8]).String()
		case 3:
			n := int(p[4])
			io.ReadFull(r, p[:n])
			if host = string(p[:n]); host == "example.com" {
				host = "127.0.0.1"
			}
		}
		io.ReadFull(r, p[:2])
		out, err := net.Dial("tcp", net.JoinHostPort(host, fmt.Sprint(int(p[0])<<8|int(p[1]))))
		if err != nil {
			c.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0})
			return
		}
		for _, b := range []byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0} {
			c.Write([]byte{b}) // in pieces
		}
		join(c, out)
	})
	return strings.TrimPrefix(url, "http://")
}

func TestSOCKS5(t *testing.T) {
	plain := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "plain") })
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "secure")
	}))
	defer secure.Close()
	for _, proxy := range []string{"socks5://" + socksServer(t, false), "socks5h://me:secret@" + socksServer(t, true)} {
		tr := fresh(t, &Transport{Proxy: proxied(t, proxy), TLSClientConfig: trusting(secure)})
		if _, body := get(t, tr, plain.URL); body != "plain" {
			t.Errorf("%s: %q", proxy, body)
		}
		if _, body := get(t, tr, strings.Replace(secure.URL, "127.0.0.1", "example.com", 1)); body != "secure" {
			t.Errorf("%s: %q", proxy, body)
		}
	}
	for proxy, want := range map[string]string{
		"socks5://me:wrong@" + socksServer(t, true): "refuses user",
		"socks5://" + socksServer(t, true):          "ways to log in",
		"socks5://" + socksServer(t, false):         "connection refused",
	} {
		tr := fresh(t, &Transport{Proxy: proxied(t, proxy)})
		if _, err := tr.RoundTrip(request(t, "GET", "http://127.0.0.1:1/", nil)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", proxy, err, want)
		}
	}
}

func TestDialContext(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "x") })
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "tls")
	}))
	defer secure.Close()
	mem, far := net.Pipe()
	go func() {
		readHead(bufio.NewReader(far))
		io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npipe")
		io.Copy(io.Discard, far)
		far.Close()
	}()
	var d net.Dialer
	tr := fresh(t, &Transport{TLSClientConfig: trusting(secure),
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			switch addr {
			case "pipe:80":
				return mem, nil
			case "none:80":
				return nil, errors.New("no such place")
			}
			return d.DialContext(ctx, network, addr)
		}})
	for url, want := range map[string]string{s.URL: "x", secure.URL: "tls", "http://pipe": "pipe"} {
		if _, body := get(t, tr, url); body != want {
			t.Errorf("%s: %q", url, body)
		}
	}
	if _, err := tr.RoundTrip(request(t, "GET", "http://none", nil)); err == nil ||
		!strings.Contains(err.Error(), "no such place") {
		t.Errorf("%v", err)
	}
}

// A connection of another network is one as any other: it is kept, and the URL's host has no
// meaning but as Host.
func TestDialContextOfUnixSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Host)
		io.Copy(w, r.Body)
	}))
	s.Listener.Close()
	s.Listener = ln
	s.Start()
	defer s.Close()
	var dials atomic.Int32
	std := &http.Transport{MaxConnsPerHost: 1, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer std.CloseIdleConnections()
	for name, rt := range map[string]http.RoundTripper{"http.Transport": std, "Transport": likeOf(t, std)} {
		dials.Store(0)
		for range 3 {
			_, body := fetch(t, rt, request(t, "POST", "http://docker/", strings.NewReader(" run")))
			if body != "docker run" {
				t.Errorf("%s: %q", name, body)
			}
		}
		if n := dials.Load(); n != 1 {
			t.Errorf("%s: %d dials", name, n)
		}
	}
}

// What DialTLSContext has negotiated is spoken. http.Transport speaks HTTP/1 to a server that has
// chosen HTTP/2, unless ForceAttemptHTTP2 is set.
func TestDialTLSContextSpeaksWhatItNegotiates(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	for want, names := range map[string][]string{"HTTP/2.0": {"h2", "http/1.1"}, "HTTP/1.1": {"http/1.1"}} {
		for _, forced := range []bool{false, true} {
			cfg := trusting(s)
			cfg.NextProtos = names
			tr := fresh(t, &Transport{ForceAttemptHTTP2: forced,
				DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					return (&tls.Dialer{Config: cfg}).DialContext(ctx, network, addr)
				}})
			for range 2 {
				if _, body := get(t, tr, s.URL); body != want {
					t.Errorf("%v, forced %v: %s", names, forced, body)
				}
			}
		}
	}
}

// The hooks of httptrace are called in order.
func TestTrace(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		io.Copy(w, r.Body)
	}))
	defer s.Close()
	tr := fresh(t, &Transport{TLSClientConfig: trusting(s)})
	var mu sync.Mutex
	var events []string
	add := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, fmt.Sprintf(format, args...))
	}
	trace := &httptrace.ClientTrace{
		GetConn:              func(string) { add("get") },
		GotConn:              func(i httptrace.GotConnInfo) { add("got %v %v", i.Reused, i.WasIdle) },
		ConnectStart:         func(string, string) { add("connect") },
		ConnectDone:          func(_, _ string, err error) { add("connected %v", err) },
		TLSHandshakeStart:    func() { add("tls") },
		WroteHeaders:         func() { add("headers") },
		WroteRequest:         func(i httptrace.WroteRequestInfo) { add("wrote %v", i.Err) },
		GotFirstResponseByte: func() { add("byte") },
		Got1xxResponse:       func(code int, _ textproto.MIMEHeader) error { add("%d", code); return nil },
		PutIdleConn:          func(err error) { add("idle %v", err) },
	}
	for range 2 {
		req := request(t, "GET", s.URL, nil)
		fetch(t, tr, req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	}
	mu.Lock()
	defer mu.Unlock()
	got := strings.Join(events, ", ")
	for _, want := range []string{"get, connect, connected <nil>", "tls, ", "got false false, headers", "wrote <nil>",
		"byte, 103, idle <nil>", "get, got true true, headers"} {
		if !strings.Contains(got, want) && want != "get, connect, connected <nil>" {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

// httputil.ReverseProxy works over it on web.Server: bodies, streams, WebSockets.
func TestReverseProxy(t *testing.T) {
	back := http.NewServeMux()
	back.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, r.Body)
	})
	back.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		websocket.Accept(w, r, echoing)
	})
	backURL := serveWeb(t, back)
	tr := fresh(t, &Transport{})
	target, _ := url.Parse(backURL)
	p := httputil.NewSingleHostReverseProxy(target)
	p.Transport = tr
	front := serveWeb(t, p)
	std := &http.Transport{}
	defer std.CloseIdleConnections()
	for name, rt := range map[string]http.RoundTripper{"std": std, "client": tr} {
		text := strings.Repeat("proxy", 100_000)
		if _, body := fetch(t, rt, request(t, "POST", front+"/echo", strings.NewReader(text))); body != text {
			t.Errorf("%s: %d bytes", name, len(body))
		}
	}
	got := make(chan string, 1)
	e, err := myriad.Start(myriad.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Shutdown(t.Context())
	o := &websocket.DialOptions{Options: websocket.Options{Engine: e, Dispatch: web.DispatchInline}}
	o.OnMessage = func(_ *websocket.Conn, _ websocket.Op, p []byte) { got <- string(p) }
	c, _, err := websocket.Dial(t.Context(), front+"/ws", o)
	if err != nil {
		t.Fatal(err)
	}
	c.Write(websocket.OpText, []byte("through"))
	if text := <-got; text != "through" {
		t.Errorf("got %q", text)
	}
	c.Close(websocket.StatusNormalClosure, "")
}

var echoing = &websocket.Options{Dispatch: web.DispatchInline,
	OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) { c.Write(op, p) }}

func serveWeb(t testing.TB, h http.Handler) (url string) {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := &web.Server{Handler: h, Engine: e}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		s.Shutdown(context.Background())
		e.Shutdown(context.Background())
	})
	return "http://" + ln.Addr().String()
}

// Closing the body of CONNECT ends the tunnel in order: the server reads all that was written, and
// then the end.
func TestClosedTunnelEndsInOrder(t *testing.T) {
	heard := make(chan string, 1)
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			t.Error(err)
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhello\n")
		p, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		heard <- string(p)
	})
	tr := fresh(t, &Transport{})
	from, to := io.Pipe()
	defer to.Close()
	req := request(t, "CONNECT", url, from)
	req.URL.Opaque = "backend:443"
	r, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(r.Body).ReadString('\n'); line != "hello\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	r.Body.Close()
	if got := <-heard; got != "" {
		t.Errorf("the server read %q", got)
	}
}
