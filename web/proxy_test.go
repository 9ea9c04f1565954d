package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/proxyproto"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

var (
	loopback  = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	elsewhere = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	viaProxy  = proxyproto.Header{
		Source: netip.MustParseAddrPort("203.0.113.9:51234"), Destination: netip.MustParseAddrPort("198.51.100.1:443"),
	}
	headers = map[string]string{"v1": string(viaProxy.AppendV1(nil)), "v2": string(viaProxy.AppendV2(nil))}
)

// tellAddrs answers with the addresses that a handler knows.
var tellAddrs = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s to %v", r.RemoteAddr, r.Context().Value(http.LocalAddrContextKey))
})

const toldText = "203.0.113.9:51234 to 198.51.100.1:443"

// answerOn sends request on nc, and reads one answer's body.
func answerOn(t *testing.T, nc net.Conn, request string) string {
	t.Helper()
	io.WriteString(nc, request)
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	return mustBody(t, resp, err)
}

// On every kind of server requests have the client's address, all of the connection, also after
// hibernation.
func TestProxyProtocol(t *testing.T) {
	for name, header := range headers {
		t.Run(name, func(t *testing.T) {
			f := serve(t, &Server{Handler: tellAddrs, ProxyProtocol: loopback})
			first, second := dial(t, f), dial(t, f)
			for i, nc := range []net.Conn{first, second, first, second} {
				request := get + end
				if i < 2 {
					request = header + request
				}
				if got := answerOn(t, nc, request); got != toldText {
					t.Errorf("request %d: %s", i, got)
				}
			}
			if got := f.log.String(); got != "" {
				t.Errorf("logged %q", got)
			}
		})
	}
}

// The same before TLS, and for connections that a listener has accepted.
func TestProxyProtocolVariants(t *testing.T) {
	cert, key := pairFiles(t)
	listen := func(t *testing.T, serve func(l net.Listener) error) (net.Addr, func() error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l.Addr(), func() error { return serve(l) }
	}
	for name, begin := range map[string]func(t *testing.T, s *Server) (net.Addr, func() error){
		"Serve": func(t *testing.T, s *Server) (net.Addr, func() error) { return listen(t, s.Serve) },
		"ServeTLS": func(t *testing.T, s *Server) (net.Addr, func() error) {
			return listen(t, func(l net.Listener) error { return s.ServeTLS(l, cert, key) })
		},
		"ListenTLS": func(t *testing.T, s *Server) (net.Addr, func() error) {
			ln, err := s.ListenTLS("tcp", "127.0.0.1:0", cert, key)
			if err != nil {
				t.Fatal(err)
			}
			return ln.Addr(), ln.Wait
		},
	} {
		for version, header := range headers {
			t.Run(name+" "+version, func(t *testing.T) {
				var heard record
				s := &Server{Handler: tellAddrs, ProxyProtocol: loopback}
				s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
					heard.add("context %v", nc.RemoteAddr())
					return ctx
				}
				s.ConnState = func(nc net.Conn, state http.ConnState) { heard.add("%v %v", state, nc.RemoteAddr()) }
				f := prepare(t, s, myriad.Config{Loops: 2})
				addr, run := begin(t, s)
				f.addr = addr.String()
				var ended sync.WaitGroup
				ended.Go(func() {
					if err := run(); err != http.ErrServerClosed {
						t.Error(err)
					}
				})
				nc := dial(t, f)
				io.WriteString(nc, header)
				if name != "Serve" {
					nc = tls.Client(nc, trusting())
				}
				if got := answerOn(t, nc, last); got != toldText {
					t.Errorf("got %s", got)
				}
				nc.Close()
				f.Shutdown(t.Context())
				ended.Wait()
				want := "new 203.0.113.9:51234; context 203.0.113.9:51234; active 203.0.113.9:51234; closed " +
					"203.0.113.9:51234"
				if name == "Serve" {
					want = "context 203.0.113.9:51234; new" + want[len("new 203.0.113.9:51234; context"):]
				}
				if got := heard.String(); got != want {
					t.Errorf("ConnContext and ConnState: %s\nwant %s", got, want)
				}
			})
		}
	}
}

// dialWhenUp dials until the server listens.
func dialWhenUp(t *testing.T, f *fixture) net.Conn {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		nc, err := net.Dial("tcp", f.addr)
		if err == nil {
			nc.SetDeadline(time.Now().Add(hangs))
			t.Cleanup(func() { nc.Close() })
			return nc
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal(err)
		}
	}
}

// From elsewhere a header is no header, and no address; others are served as ever.
func TestProxyHeaderOfUntrusted(t *testing.T) {
	f := serve(t, &Server{Handler: tellAddrs, ProxyProtocol: elsewhere})
	nc := dial(t, f)
	if got := answerOn(t, nc, get+end); got != fmt.Sprintf("%v to %v", nc.LocalAddr(), nc.RemoteAddr()) {
		t.Errorf("without a header: %s", got)
	}
	for name, header := range headers {
		if got := raw(t, f, header+last, false); !strings.HasPrefix(got, "HTTP/1.1 400 ") ||
			strings.Count(got, "HTTP/") != 1 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A connection that should have a header is refused without one, and logged once in a while.
func TestNoProxyHeader(t *testing.T) {
	handled := false
	f := serve(t, &Server{ProxyProtocol: loopback})
	f.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled = true })
	for _, request := range []string{last, "PROXY TCP4 localhost " + last,
		headers["v2"][:12] + strings.Repeat("\xff", 20)} {
		nc := dial(t, f)
		io.WriteString(nc, request)
		if got, err := io.ReadAll(nc); len(got) > 0 || err == nil {
			t.Errorf("%.20q is answered %q, %v; want a reset", request, got, err)
		}
	}
	if logged := f.log.String(); strings.Count(logged, "\n") != 1 || !strings.Contains(logged,
		`does not begin with a PROXY header: "GET /last`) {
		t.Errorf("logged %q", logged)
	}
	if handled {
		t.Error("the handler was called")
	}
}

// proxySim serves in a simulated world. Its connections are trusted.
func proxySim(t *testing.T, s *Server) (w *sim.World, addr net.Addr) {
	t.Helper()
	w = newWorld(1, sim.Calm())
	engine, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	s.Engine, s.ProxyProtocol, s.Dispatch = engine, []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, DispatchInline
	ln, err := s.Listen("tcp", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f := &fixture{Server: s}
		f.stop(t, engine)
		w.Run()
		w.Check(t)
	})
	return w, ln.Addr()
}

// The wait for a header is bounded as that for a first head.
func TestProxyHeaderInTime(t *testing.T) {
	for _, c := range []struct {
		s    *Server
		time time.Duration
	}{
		{&Server{}, time.Minute}, {&Server{ReadHeaderTimeout: 3 * time.Second}, 3 * time.Second},
		{&Server{ReadTimeout: 4 * time.Second}, 4 * time.Second},
	} {
		var logged lockedLog
		c.s.ErrorLog = log.New(&logged, "", 0)
		w, addr := proxySim(t, c.s)
		p := w.Dial(addr)
		p.Write([]byte("PROXY "))
		if w.RunFor(c.time - 50*time.Millisecond); p.Err() != nil {
			t.Errorf("%v: it has ended too soon: %v", c.time, p.Err())
		}
		w.RunFor(100 * time.Millisecond)
		if p.Err() == nil || !strings.Contains(logged.String(), fmt.Sprintf("no complete header within %v", c.time)) {
			t.Errorf("%v: %v, logged %q", c.time, p.Err(), logged.String())
		}
	}
}

// Shutdown gives a connection that waits for its header the time of one that waits for its first
// request, and Close none.
func TestShutdownBeforeProxyHeader(t *testing.T) {
	for _, header := range []string{"", headers["v1"] + get + end} {
		s := &Server{Handler: tellAddrs, ErrorLog: log.New(io.Discard, "", 0)}
		w, addr := proxySim(t, s)
		p := w.Dial(addr)
		w.RunFor(time.Second)
		var took time.Duration
		w.Go(func() {
			began := w.Now()
			if err := s.Shutdown(atLength(t)); err != nil {
				t.Error(err)
			}
			took = w.Now().Sub(began)
		})
		w.RunFor(time.Second)
		p.Write([]byte(header))
		w.RunFor(20 * time.Second)
		got := string(p.Received())
		if header != "" && !strings.HasSuffix(got, toldText) || took == 0 || took > exchange.NewConnGrace+time.Second {
			t.Errorf("%d bytes of header: answered %q, Shutdown took %v", len(header), got, took)
		}
	}
	f := serve(t, &Server{Handler: tellAddrs, ProxyProtocol: loopback})
	nc := dial(t, f)
	io.WriteString(nc, "PROXY ")
	for f.Engine.Stats().BytesIn < 6 {
		time.Sleep(time.Millisecond)
	}
	f.Close()
	if got, err := io.ReadAll(nc); len(got) > 0 || err == nil {
		t.Errorf("after Close: %q, %v", got, err)
	}
}

// A takeover has the client's address: by Hijack, by Upgrade, by ALPN; over TLS, too.
func TestProxyProtocolOfTakenOver(t *testing.T) {
	told := make(chan string, 10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/upgrade" {
			if err := Upgrade(w, []byte("HTTP/1.1 101 Switching Protocols\r\n\r\n"), addrHandler{told}); err != nil {
				t.Error(err)
			}
			return
		}
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		told <- nc.RemoteAddr().String()
		nc.Close()
	})
	plain := serve(t, &Server{Handler: handler, ProxyProtocol: loopback})
	secure := serveTLS(t, &Server{
		Handler: handler, ProxyProtocol: loopback, TLSConfig: &tls.Config{NextProtos: []string{"other", "http/1.1"}},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){
			"other": func(_ *http.Server, tc *tls.Conn, _ http.Handler) { told <- tc.RemoteAddr().String() },
		},
	})
	other := trusting()
	other.NextProtos = []string{"other"}
	for name, do := range map[string]func() (net.Conn, string){
		"Hijack":       func() (net.Conn, string) { return announcedBy(t, plain, nil), "/hijack" },
		"Upgrade":      func() (net.Conn, string) { return announcedBy(t, plain, nil), "/upgrade" },
		"Hijack, TLS":  func() (net.Conn, string) { return announcedBy(t, secure, trusting()), "/hijack" },
		"Upgrade, TLS": func() (net.Conn, string) { return announcedBy(t, secure, trusting()), "/upgrade" },
		"ALPN":         func() (net.Conn, string) { return announcedBy(t, secure, other), "/" },
	} {
		nc, path := do()
		fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
		select {
		case got := <-told:
			if got != "203.0.113.9:51234" {
				t.Errorf("%s: %s", name, got)
			}
		case <-time.After(hangs):
			t.Errorf("%s: not called", name)
		}
		nc.Close()
	}
}

// announcedBy is a client that has sent its header, and makes a handshake if there is a cfg.
func announcedBy(t *testing.T, f *fixture, cfg *tls.Config) net.Conn {
	nc := dial(t, f)
	io.WriteString(nc, headers["v2"])
	if cfg != nil {
		return tls.Client(nc, cfg)
	}
	return nc
}

// An addrHandler says whose connection it was given, and closes it.
type addrHandler struct{ told chan string }

func (h addrHandler) Opened(c *myriad.Conn) {
	h.told <- c.RemoteAddr().String()
	c.Close()
}
func (addrHandler) Received(*myriad.Conn, []byte) {}
func (addrHandler) Closed(*myriad.Conn, error)    {}

// Connections with a header cost no goroutine, and hibernate like others.
func TestProxyProtocolCostsNoGoroutine(t *testing.T) {
	f := serve(t, &Server{Handler: tellAddrs, ProxyProtocol: loopback, Dispatch: DispatchInline})
	answerOn(t, dial(t, f), headers["v1"]+get+end)
	before := runtime.NumGoroutine()
	const n = 200
	for range n {
		answerOn(t, dial(t, f), headers["v2"]+get+end)
	}
	if os.Getenv("MYRIAD_DRIVER") != "std" {
		if after := runtime.NumGoroutine(); after > before+2 {
			t.Errorf("%d goroutines more for %d connections", after-before, n)
		}
		if asleep := f.Engine.Stats().Hibernating; asleep < n/2 {
			t.Errorf("%d of %d connections hibernate", asleep, n)
		}
	}
}
