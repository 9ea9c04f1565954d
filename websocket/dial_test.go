package websocket

import (
	"bufio"
	"bytes"
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
