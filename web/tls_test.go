package web

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/freeport"
	"github.com/myriad-go/myriad/tlsloop"
)

// pair is a self-signed certificate for localhost.
var pair = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
})

// pairFiles writes it as PEM.
func pairFiles(t testing.TB) (cert, key string) {
	der, err := x509.MarshalPKCS8PrivateKey(pair().PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: pair().Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func trusting() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(pair().Leaf)
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

// serveTLS runs s with the certificate until the test ends.
func serveTLS(t testing.TB, s *Server) *fixture {
	t.Helper()
	if s.TLSConfig == nil {
		s.TLSConfig = new(tls.Config)
	}
	s.TLSConfig.Certificates = []tls.Certificate{pair()}
	return serveTLSAs(t, s)
}

// serveTLSAs is serveTLS with the server's own certificates.
func serveTLSAs(t testing.TB, s *Server) *fixture {
	t.Helper()
	engine, err := myriad.Start(myriad.Config{Loops: 2})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Server: s, log: new(lockedLog)}
	s.Engine = engine
	s.LeanTLS = s.LeanTLS || os.Getenv(leanEnv) != ""
	if s.ErrorLog == nil {
		s.ErrorLog = log.New(f.log, "", 0)
	}
	ln, err := s.ListenTLS("tcp", "127.0.0.1:0", "", "")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	t.Cleanup(func() { f.stop(t, engine) })
	return f
}

func (f *fixture) dialTLS(t testing.TB, cfg *tls.Config) *tls.Conn {
	t.Helper()
	nc, err := tls.Dial("tcp", f.addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(hangs))
	t.Cleanup(func() { nc.Close() })
	return nc
}

var describe = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if r.TLS == nil {
		fmt.Fprint(w, "no TLS")
		return
	}
	fmt.Fprintf(w, "%s %s %q %v %d %v", r.Proto, tls.VersionName(r.TLS.Version), r.TLS.NegotiatedProtocol,
		r.TLS.HandshakeComplete, len(body), err)
})

// ALPN chooses HTTP/2 by itself, unless the server has it not. It is the same if a listener of
// Serve makes the handshake.
func TestHTTPS(t *testing.T) {
	only1 := new(http.Protocols)
	only1.SetHTTP1(true)
	for name, tt := range map[string]struct {
		server      *Server
		proto, alpn string
	}{
		"by itself":    {&Server{}, "HTTP/2.0", "h2"},
		"HTTP/1 alone": {&Server{Protocols: only1}, "HTTP/1.1", "http/1.1"},
		"the old way":  {&Server{TLSNextProto: map[string]nextProto{}}, "HTTP/1.1", "http/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.server.Handler, tt.server.TLSConfig = describe, &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
			agreedOn(t, serveTLS(t, tt.server), tt.proto, tt.alpn)
		})
	}
	t.Run("a listener of TLS", func(t *testing.T) {
		f := prepare(t, &Server{Handler: describe}, myriad.Config{Loops: 1})
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair()},
			NextProtos: []string{"h2", "http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		f.addr = l.Addr().String()
		go f.Serve(l)
		agreedOn(t, f, "HTTP/2.0", "h2")
	})
}

// agreedOn posts to describe and looks at the versions at both ends.
func agreedOn(t *testing.T, f *fixture, proto, alpn string) {
	transport := &http.Transport{TLSClientConfig: trusting(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: hangs}
	for _, n := range []int{0, 10, 1 << 20} {
		resp, err := client.Post("https://"+f.addr+"/", "text/plain", strings.NewReader(strings.Repeat("x", n)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := fmt.Sprintf(`%s TLS 1.3 %q true %d <nil>`, proto, alpn, n); err != nil || string(body) != want {
			t.Errorf("got %q, %v; want %q", body, err, want)
		}
		if resp.TLS == nil || resp.TLS.NegotiatedProtocol != alpn {
			t.Errorf("the client negotiated %+v", resp.TLS)
		}
	}
}

// Each way to serve, with what net/http says of a listener's end.
func TestServeTLSVariants(t *testing.T) {
	cert, key := pairFiles(t)
	for name, run := range map[string]func(s *Server, l net.Listener) error{
		"ServeTLS with files": func(s *Server, l net.Listener) error { return s.ServeTLS(l, cert, key) },
		"ServeTLS with TLSConfig": func(s *Server, l net.Listener) error {
			s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair()}}
			return s.ServeTLS(l, "", "")
		},
		"Serve of tls.NewListener": func(s *Server, l net.Listener) error {
			return s.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair()}}))
		},
		"Serve of tlsloop.NewListener": func(s *Server, l net.Listener) error {
			return s.Serve(tlsloop.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair()}}))
		},
		"ListenAndServeTLS": func(s *Server, l net.Listener) error {
			s.Addr = l.Addr().String()
			l.Close()
			return s.ListenAndServeTLS(cert, key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", freeport.For(t, 1)[0]) // one of the functions listens again
			if err != nil {
				t.Fatal(err)
			}
			engine, err := myriad.Start(myriad.Config{Loops: 2})
			if err != nil {
				t.Fatal(err)
			}
			var states sync.Map
			s := &Server{Handler: describe, Engine: engine, ConnState: func(_ net.Conn, state http.ConnState) {
				states.Store(state, true)
			}}
			served := make(chan error, 1)
			go func() { served <- run(s, l) }()
			transport := &http.Transport{TLSClientConfig: trusting()}
			client := &http.Client{Transport: transport, Timeout: hangs}
			var resp *http.Response
			within(t, "it is served", func() bool {
				resp, err = client.Get("https://" + l.Addr().String())
				return err == nil
			})
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if !strings.HasPrefix(string(body), "HTTP/1.1 TLS 1.3") {
				t.Errorf("got %q", body)
			}
			transport.CloseIdleConnections()
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			if err := errors.Join(s.Shutdown(ctx), engine.Shutdown(ctx)); err != nil {
				t.Error(err)
			}
			if err := <-served; err != http.ErrServerClosed {
				t.Errorf("serving ended with %v", err)
			}
			for _, state := range []http.ConnState{http.StateNew, http.StateActive, http.StateClosed} {
				if _, ok := states.Load(state); !ok {
					t.Errorf("ConnState was not called with %v", state)
				}
			}
		})
	}
}

// A server without a certificate leaves the listener to its owner, as net/http's does, also when it
// has been shut down.
func TestServeTLSWithoutCertificate(t *testing.T) {
	std, ours, gone := new(http.Server), serve(t, &Server{}).Server, new(Server)
	if err := gone.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	stdGone := new(http.Server)
	if err := stdGone.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, serveTLS := range map[string]func(net.Listener, string, string) error{
		"net/http": std.ServeTLS, "here": ours.ServeTLS, "net/http, shut down": stdGone.ServeTLS,
		"here, shut down": gone.ServeTLS,
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := serveTLS(l, "", ""); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: ServeTLS: %v", name, err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("%s: the listener has been closed: %v", name, err)
		}
	}
}

func TestPlainRequestToHTTPS(t *testing.T) {
	f := serveTLS(t, &Server{Handler: describe})
	nc, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(hangs))
	fmt.Fprint(nc, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	got, err := io.ReadAll(nc)
	if want := "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"; err != nil ||
		string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
	if text := f.log.String(); !strings.Contains(text, "TLS handshake error from 127.0.0.1:") {
		t.Errorf("logged: %q", text)
	}
}

// A handshake that takes too long ends with the server's own timeout, as in net/http.
func TestTLSHandshakeTimeout(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	f := serveTLS(t, &Server{Handler: describe, ReadTimeout: 50 * time.Millisecond,
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				close(closed)
			}
		}})
	nc, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(8 * time.Second)) // before tlsloop's own bound
	if got, err := io.ReadAll(nc); len(got) != 0 || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	<-closed
	want := fmt.Sprintf("http: TLS handshake error from %v: read tcp %[2]s->%[1]s: i/o timeout\n", nc.LocalAddr(),
		f.addr)
	if got := f.log.String(); got != want {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// An error that a callback of the configuration has met stays what it is.
func TestErrorsFromBelowHandshakes(t *testing.T) {
	failed := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	if got := fromBelow(nil, failed); got != failed {
		t.Errorf("%v has become %v", failed, got)
	}
}

// What ALPN has chosen is served by TLSNextProto, with the bytes that came right behind the
// handshake. It counts meanwhile, once, and ConnState is told of its end.
func TestTLSNextProto(t *testing.T) {
	t.Parallel()
	serving, states := make(chan struct{}), make(chan http.ConnState, 10)
	f := serveTLS(t, &Server{
		ConnState: func(_ net.Conn, s http.ConnState) { states <- s },
		TLSConfig: &tls.Config{NextProtos: []string{"shout", "h2"}},
		TLSNextProto: map[string]nextProto{"shout": func(s *http.Server, tc *tls.Conn, h http.Handler) {
			serving <- struct{}{}
			line, err := bufio.NewReader(tc).ReadString('\n')
			fmt.Fprint(tc, strings.ToUpper(line), err, s.TLSConfig != nil, h != nil)
		}},
	})
	cfg := trusting()
	cfg.NextProtos = []string{"h2", "shout"}
	nc := f.dialTLS(t, cfg)
	fmt.Fprint(nc, "hel")
	<-serving
	if n := f.state.Conns.Load(); n != 1 {
		t.Errorf("%d connections are counted while it is served", n)
	}
	fmt.Fprint(nc, "lo\n")
	if got, err := io.ReadAll(nc); err != nil || string(got) != "HELLO\n<nil> true true" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, want := range []http.ConnState{http.StateNew, http.StateClosed} {
		select {
		case got := <-states:
			if got != want {
				t.Errorf("state %v, want %v", got, want)
			}
		case <-time.After(hangs):
			t.Fatalf("ConnState does not hear of %v", want)
		}
	}
	if p := nc.ConnectionState().NegotiatedProtocol; p != "shout" {
		t.Errorf("negotiated %q", p)
	}
}

// leanEnv has the tests of this package that serve TLS do so with LeanTLS.
const leanEnv = "MYRIAD_LEAN_TLS"

// The tests of TLS pass with LeanTLS, too.
func TestWithLeanTLS(t *testing.T) {
	if testing.Short() || os.Getenv(leanEnv) != "" {
		t.Skip("runs many tests once more")
	}
	cmd := exec.Command(os.Args[0], "-test.short", "-test.timeout=8m",
		"-test.run=TLS|HTTPS|HTTP2|H2|ALPN|Handshake|Hijack|Curl|Wrk|Trunc")
	cmd.Env = append(os.Environ(), leanEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// A hijacked connection is the *tls.Conn itself, or has its methods.
func TestHijackTLS(t *testing.T) {
	for name, lean := range map[string]bool{"crypto/tls": false, "LeanTLS": true} {
		t.Run(name, func(t *testing.T) { testHijackTLS(t, lean) })
	}
}

func testHijackTLS(t *testing.T, lean bool) {
	if !lean && os.Getenv(leanEnv) != "" {
		t.Skip("this run has LeanTLS only")
	}
	f := serveTLS(t, &Server{LeanTLS: lean, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nc, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		line, _ := rw.ReadString('\n')
		more, _ := rw.ReadString('\n')
		_, standard := nc.(*tls.Conn)
		state := nc.(interface{ ConnectionState() tls.ConnectionState }).ConnectionState()
		fmt.Fprintf(nc, "%q %q %v %v", line, more, standard, state.HandshakeComplete)
	})})
	nc := f.dialTLS(t, trusting())
	fmt.Fprint(nc, "GET / HTTP/1.1\r\nHost: x\r\n\r\nfirst\n")
	fmt.Fprint(nc, "second\n")
	if got, err := io.ReadAll(nc); err != nil ||
		string(got) != fmt.Sprintf(`"first\n" "second\n" %v true`, !lean) {
		t.Errorf("got %q, %v", got, err)
	}
}

// shouting are ways to serve a protocol of TLSNextProto, "shout".
var shouting = map[string]func(testing.TB, *Server) *fixture{
	"ServeTLS": func(t testing.TB, s *Server) *fixture {
		s.TLSConfig = &tls.Config{NextProtos: []string{"shout"}}
		return serveTLS(t, s)
	},
	"a foreign listener": func(t testing.TB, s *Server) *fixture {
		return serveShaken(t, s, &tls.Config{NextProtos: []string{"shout"}})
	},
}

// shouts is the configuration of a client that speaks it.
func shouts() *tls.Config {
	cfg := trusting()
	cfg.NextProtos = []string{"shout"}
	return cfg
}

// A connection of TLSNextProto belongs to the server until the function returns: ConnState is told
// of its end, Shutdown waits for it, Close ends it, and a panic costs no other.
func TestTLSNextProtoIsLookedAfter(t *testing.T) {
	for name, begin := range shouting {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states := make(chan string, 20)
			run := make(chan func(tc *tls.Conn), 1)
			f := begin(t, &Server{
				ConnState: func(c net.Conn, s http.ConnState) {
					states <- s.String() + " " + c.RemoteAddr().String()
				},
				TLSNextProto: map[string]nextProto{"shout": func(_ *http.Server, tc *tls.Conn, _ http.Handler) {
					(<-run)(tc)
				}},
			})
			cfg := shouts()
			for _, do := range []func(*tls.Conn){
				func(*tls.Conn) {},
				func(*tls.Conn) { panic("shouted") },
				func(*tls.Conn) { panic(http.ErrAbortHandler) },
			} {
				nc := f.dialTLS(t, cfg)
				run <- do
				ended(t, nc, states)
			}
			f.dialTLS(t, cfg)
			begun, failed := make(chan bool), make(chan error)
			run <- func(tc *tls.Conn) {
				begun <- true
				_, err := tc.Read(make([]byte, 1))
				failed <- err
			}
			<-begun
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if err := f.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown beside a protocol: %v", err)
			}
			f.Close()
			if err := <-failed; err == nil {
				t.Error("a protocol reads on after Close")
			}
			if err := f.Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown behind it: %v", err)
			}
			if n := strings.Count(f.log.String(), "http: panic serving 127.0.0.1:"); n != 1 {
				t.Errorf("%d panics logged: %s", n, f.log)
			}
		})
	}
}

// The time for a handshake is not that of the protocol. Where a busy machine takes longer for the
// handshake, the next attempt has more time.
func TestTLSNextProtoOutlivesTheHandshakesTime(t *testing.T) {
	for name, begin := range shouting {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for handshake := 250 * time.Millisecond; ; handshake *= 4 {
				f := begin(t, &Server{ReadTimeout: handshake,
					TLSNextProto: map[string]nextProto{"shout": func(_ *http.Server, tc *tls.Conn, _ http.Handler) {
						time.Sleep(handshake + 100*time.Millisecond) // that it passes is what is tested
						fmt.Fprint(tc, "still here")
					}}})
				nc := tls.Client(dial(t, f), shouts())
				if err := nc.Handshake(); err != nil && handshake < time.Minute {
					continue
				}
				if got, err := io.ReadAll(nc); err != nil || string(got) != "still here" {
					t.Errorf("when the handshake's time is over: %q, %v", got, err)
				}
				return
			}
		})
	}
}

// ended reads to the end of a connection whose server says nothing, and its two states.
func ended(t *testing.T, nc *tls.Conn, states <-chan string) {
	t.Helper()
	if got, err := io.ReadAll(nc); err != nil || len(got) > 0 {
		t.Errorf("got %q, %v", got, err)
	}
	for _, want := range []string{"new ", "closed "} {
		if got := <-states; got != want+nc.LocalAddr().String() {
			t.Errorf("ConnState: %s, want %s%v", got, want, nc.LocalAddr())
		}
	}
}

// HTTP/2 is offered if TLSNextProto serves it and Protocols does not say otherwise.
func TestProtocols(t *testing.T) {
	t.Parallel()
	set := func(one, two bool) *http.Protocols {
		p := new(http.Protocols)
		p.SetHTTP1(one)
		p.SetHTTP2(two)
		return p
	}
	h2 := map[string]nextProto{"h2": func(_ *http.Server, tc *tls.Conn, _ http.Handler) {
		io.WriteString(tc, "2")
	}}
	for _, tt := range []struct {
		protocols *http.Protocols
		next      map[string]func(*http.Server, *tls.Conn, http.Handler)
		asked     []string
		want      string
	}{
		{nil, nil, []string{"h2"}, "h2"},
		{nil, nil, nil, "h2"},
		{nil, map[string]nextProto{}, nil, "http/1.1"},
		{nil, h2, nil, "h2"},
		{nil, h2, []string{"http/1.1", "h2"}, "http/1.1"},
		{set(true, true), nil, nil, "h2"},
		{set(false, true), nil, nil, "h2"},
		{set(true, true), h2, nil, "h2"},
		{set(true, false), nil, nil, "http/1.1"},
		{set(true, false), h2, []string{"h2"}, "http/1.1"},
	} {
		f := serveTLS(t, &Server{Protocols: tt.protocols, TLSNextProto: tt.next,
			TLSConfig: &tls.Config{NextProtos: tt.asked}})
		cfg := trusting()
		cfg.NextProtos = []string{"h2", "http/1.1"}
		if got := f.dialTLS(t, cfg).ConnectionState().NegotiatedProtocol; got != tt.want {
			t.Errorf("Protocols %v, TLSNextProto for HTTP/2 %t, NextProtos %q: negotiated %q, want %q", tt.protocols,
				tt.next != nil, tt.asked, got, tt.want)
		}
	}
	for _, p := range []*http.Protocols{set(false, false)} {
		for name, begin := range map[string]func(*Server) error{
			"Listen":         func(s *Server) error { _, err := s.Listen("tcp", "127.0.0.1:0"); return err },
			"ListenAndServe": (*Server).ListenAndServe,
			"ListenTLS":      func(s *Server) error { _, err := s.ListenTLS("tcp", "127.0.0.1:0", "", ""); return err },
			"Serve":          func(s *Server) error { l, _ := net.Listen("tcp", "127.0.0.1:0"); return s.Serve(l) },
		} {
			s := &Server{Addr: "127.0.0.1:0", Protocols: p, TLSNextProto: h2}
			if err := begin(s); err == nil || !strings.Contains(err.Error(), "Server.Protocols is "+p.String()) {
				t.Errorf("%s with Protocols %v: %v", name, p, err)
			}
		}
	}
}

// The log says in the words of net/http that a client has sent http:// to https://.
func TestPlainRequestInTheLog(t *testing.T) {
	f := serveTLS(t, &Server{Handler: describe})
	raw(t, f, "GET / HTTP/1.0\r\n\r\n", false)
	for f.log.String() == "" {
		time.Sleep(time.Millisecond)
	}
	if got := f.log.String(); !strings.HasSuffix(got, ": client sent an HTTP request to an HTTPS server\n") {
		t.Errorf("the log says %q", got)
	}
}

// A client that has typed https:// for http:// learns it, as far as it looks, and so does the log:
// at once, and then once in ten seconds.
func TestTLSToPlainPort(t *testing.T) {
	f := serve(t, &Server{Handler: describe})
	if _, err := http.Get("https://" + f.addr); err == nil || !strings.HasSuffix(err.Error(),
		"server gave HTTP response to HTTPS client") {
		t.Errorf("the client of net/http says %v", err)
	}
	got := raw(t, f, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", false)
	if statusOf(got) != "400" ||
		!strings.HasSuffix(got, "400 Bad Request: client sent a TLS handshake to an HTTP server") {
		t.Errorf("got %q", got)
	}
	lines := strings.Split(strings.TrimSpace(f.log.String()), "\n")
	if len(lines) != 1 { // two came within ten seconds
		t.Errorf("the log has %q", lines)
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "http: TLS handshake error from 127.0.0.1:") ||
			!strings.HasSuffix(line, ": client sent a TLS handshake to an HTTP server") {
			t.Errorf("the log says %q", line)
		}
	}
}
