package websocket

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
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

// misbehaviours are answers to a client's handshake that open no connection. Dial returns the
// response, if status says one, and an error that contains err.
var misbehaviours = map[string]struct {
	answer func(key string) string
	status int    // of the response that is returned, 0: none
	body   string // of it
	err    string
}{
	"refused": {func(string) string { return "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno" },
		401, "no", "401"},
	"refused at length": {func(string) string {
		return "HTTP/1.1 404 Not Found\r\n\r\n" + strings.Repeat("x", 5000)
	}, 404, strings.Repeat("x", 1024), "404"},
	"refused in chunks": {func(string) string {
		return "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n5\r\n, you\r\n0\r\n\r\n"
	}, 403, "no, you", "403"},
	"cut in a chunk": {func(string) string {
		return "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nno"
	}, 403, "no", "403"},
	"early hints first": {func(string) string {
		return "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n" +
			"\r\nno"
	}, 401, "no", "401"},
	"endless hints": {func(string) string {
		return strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1000)
	}, 0, "", "above"},
	"two lengths": {func(string) string {
		return "HTTP/1.1 401 x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nno"
	}, 0, "", "not a response"},
	"no http": {func(string) string { return "SSH-2.0-OpenSSH\r\n\r\n" }, 0, "", "not a response"},
	"wrong accept": {func(string) string { return switching("AAAAAAAAAAAAAAAAAAAAAA==") }, 101, "",
		"Sec-WebSocket-Accept"},
	"no upgrade": {func(key string) string {
		return strings.Replace(switching(key), "Upgrade: websocket", "Upgrade: h2c", 1)
	}, 101, "", "does not upgrade"},
	"extension": {func(key string) string {
		return strings.Replace(switching(key), "\r\n\r\n", "\r\nSec-WebSocket-Extensions: x\r\n\r\n", 1)
	}, 101, "", "extensions"},
	"subprotocol": {func(key string) string {
		return string(appendSwitching(nil, key, "other", deflateTerms{}, nil))
	}, 101, "", "not offered"},
	"opened after hints": {func(key string) string {
		return "HTTP/1.1 103 Early Hints\r\n\r\n" +
			strings.Replace(switching(key), "Upgrade: websocket", "Upgrade: h2c", 1)
	}, 101, "", "does not upgrade"},
	"endless": {func(string) string { return "HTTP/1.1 101 x\r\nX: " + strings.Repeat("x", maxResponse) }, 0, "",
		"above"},
	"hangs up": {func(string) string { return "" }, 0, "", "without a response"},
}

func TestDialPeerThatMisbehaves(t *testing.T) {
	for name, c := range misbehaviours {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				w := newWorld(t, seed, sim.Lossless(), myriad.Config{}, Handler(&Options{}))
				ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) {
					answered := false
					p.OnReceived = func([]byte) {
						r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(p.Received()))))
						if err != nil || answered {
							return
						}
						answered = true
						p.Write([]byte(c.answer(r.Header.Get("Sec-WebSocket-Key"))))
						p.CloseWrite()
					}
				})
				must(t, err)
				o := &DialOptions{Random: seeded(seed)}
				o.Engine, o.Subprotocols = w.e, []string{"chat"}
				o.OnOpen = func(*Conn) { t.Error("opened") }
				conn, resp, err := Dial(context.Background(), "ws://"+ln.Addr().String(), o)
				if conn != nil || err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("seed %d: %v, %v, want an error with %q", seed, conn, err, c.err)
				}
				checkResponse(t, resp, c.status, c.body)
				w.RunFor(time.Minute)
				noError(t, ln.Close())
				w.stop()
			}
		})
	}
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
