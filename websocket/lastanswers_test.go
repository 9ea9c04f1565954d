package websocket

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/tlsloop"
	"github.com/myriad-go/myriad/web"
)

// Two messages, and nothing behind them but the peer's FIN: each is answered, as behind a close
// frame. Gorilla's and coder's servers do so.
var (
	twoMessages = clientFrame(true, OpText, "one") + clientFrame(true, OpText, "two")
	twoAnswers  = []string{line(OpText, "one"), line(OpText, "two")}
)

// A wayToAnswer is how the messages of a connection come to the program.
type wayToAnswer struct {
	name string
	d    web.Dispatch
	pull bool
}

var waysToAnswer = []wayToAnswer{
	{"pool", web.DispatchPool, false}, {"auto", web.DispatchAuto, false}, {"quickly", quickly, false},
	{"inline", web.DispatchInline, false}, {"pull", web.DispatchPool, true},
}

// options echo. start runs what reads from a connection with Pull.
func (w wayToAnswer) options(t testing.TB, o *Options, start func(f func())) *Options {
	t.Helper()
	o.Dispatch, o.Pull, o.PingInterval = w.d, w.pull, quiet
	if w.pull {
		o.OnOpen = func(c *Conn) {
			start(func() {
				for {
					op, p, err := c.Read(context.Background())
					if err != nil {
						return
					}
					_ = c.Write(op, p)
				}
			})
		}
	} else {
		o.OnMessage = echoBack
	}
	if o.Dispatch == quickly {
		o.Dispatch = web.DispatchAuto
		learn(t, o)
	}
	return o
}

// On the simulator, with the input cut anywhere, also behind the request, and the peer's FIN with
// it or later.
func TestLastAnswers(t *testing.T) {
	for _, way := range waysToAnswer {
		for seed := range soak.Size[uint64](t, 20, 200) {
			var w *world
			var ends []error
			o := way.options(t, &Options{OnClose: func(_ *Conn, err error) { ends = append(ends, err) }},
				func(f func()) { w.Go(f) })
			w = newWorld(t, seed, sim.Lossless(), myriad.Config{}, Handler(o))
			together, apart := w.client(sampleRequest+twoMessages), w.client(sampleRequest)
			together.CloseWrite()
			w.RunFor(time.Second)
			apart.Write([]byte(twoMessages))
			apart.CloseWrite()
			w.RunFor(DefaultCloseTimeout / 2)
			for name, c := range map[string]*client{"together": together, "apart": apart} {
				if got := c.lines(t); !slices.Equal(got, twoAnswers) || !c.Ended() {
					t.Fatalf("%s, seed %d, %s: the client got %q, end %v", way.name, seed, name, got, c.Ended())
				}
			}
			if len(ends) != 2 || ends[0] != errNoClose || ends[1] != errNoClose {
				t.Errorf("%s, seed %d: OnClose was called with %v", way.name, seed, ends)
			}
			w.stop()
		}
	}
}

// Over HTTP/2 it is END_STREAM.
func TestHTTP2LastAnswers(t *testing.T) {
	for _, way := range waysToAnswer {
		for seed := range soak.Size[uint64](t, 10, 100) {
			var w *muxWorld
			o := way.options(t, new(Options), func(f func()) { w.Go(f) })
			w = newMuxWorld(t, seed, sim.Lossless(), o)
			c := w.dial(plenty)
			c.open(1)
			c.open(3)
			c.frames(1, twoMessages, 1+int(seed), true)
			w.RunFor(time.Second)
			c.frames(3, twoMessages, 1000, true)
			w.RunFor(DefaultCloseTimeout / 2)
			for _, id := range []uint32{1, 3} {
				if got := c.lines(id); !slices.Equal(got, twoAnswers) || c.stream(id).end != "END_STREAM" {
					t.Fatalf("%s, seed %d, stream %d: the client got %q, end %q", way.name, seed, id, got,
						c.stream(id).end)
				}
			}
			w.stop(c)
		}
	}
}

// On real sockets: raw, upgraded on a web.Server, on net/http's, and with TLS, where the FIN comes
// with a close_notify and without.
func TestLastAnswersOnSockets(t *testing.T) {
	clients := soak.Size(t, 20, 100)
	for _, way := range waysToAnswer {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			e := startEngine(t, myriad.Config{})
			o := way.options(t, &Options{Engine: e, Workers: startPool(t)}, func(f func()) { go f() })
			accept := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := Accept(w, r, o); err != nil {
					t.Error(err)
				}
			})
			std := httptest.NewServer(accept)
			t.Cleanup(std.Close)
			server := &web.Server{Engine: e, Handler: accept}
			ln, err := server.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			t.Cleanup(func() { server.Close() })
			certified := httptest.NewUnstartedServer(nil)
			certified.StartTLS()
			t.Cleanup(certified.Close)
			secured := listen(t, e, tlsloop.Handler(&tls.Config{Certificates: certified.TLS.Certificates},
				func(tls.ConnectionState) myriad.Handler { return Handler(o) }))
			trust := certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			trust.ServerName, trust.NextProtos = "example.com", nil
			plain := func(nc net.Conn) (net.Conn, func() error) { return nc, nc.(*net.TCPConn).CloseWrite }
			for name, place := range map[string]struct {
				addr string
				wrap func(nc net.Conn) (net.Conn, func() error)
			}{
				"raw":      {listen(t, e, Handler(o)), plain},
				"web":      {ln.Addr().String(), plain},
				"net/http": {std.Listener.Addr().String(), plain},
				"TLS": {secured, func(nc net.Conn) (net.Conn, func() error) {
					c := tls.Client(nc, trust)
					return c, c.CloseWrite
				}},
				"TLS without close_notify": {secured, func(nc net.Conn) (net.Conn, func() error) {
					return tls.Client(nc, trust), nc.(*net.TCPConn).CloseWrite
				}},
			} {
				for range clients {
					p := dialRaw(t, place.addr)
					nc, end := place.wrap(p.Conn)
					p.Conn = nc
					p.open().write(twoMessages)
					must(t, end())
					if got := append([]string{}, p.frame(), p.frame(), p.frame()); !slices.Equal(got,
						append(slices.Clone(twoAnswers), io.EOF.Error())) {
						t.Fatalf("%s: the client got %q", name, got)
					}
				}
			}
		})
	}
}

// The same at the client's end: what the server has sent before its FIN is answered.
func TestLastAnswersOfClients(t *testing.T) {
	for _, way := range waysToAnswer {
		e := startEngine(t, myriad.Config{})
		pool := startPool(t)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer ln.Close()
		for range 20 {
			o := &DialOptions{Options: Options{Engine: e, Workers: pool}}
			way.options(t, &o.Options, func(f func()) { go f() })
			answers := make(chan []byte, 1)
			go func() { answers <- serveTwoMessages(t, ln) }()
			c, _, err := Dial(t.Context(), "ws://"+ln.Addr().String(), o)
			must(t, err)
			if got := transcript(t, &serverRules, <-answers); !slices.Equal(got, twoAnswers) {
				t.Fatalf("%s: the server got %q", way.name, got)
			}
			c.Abort(nil)
		}
	}
}

// serveTwoMessages accepts one client, and returns what that has sent behind the two messages and
// the FIN that it gets with the 101.
func serveTwoMessages(t *testing.T, ln net.Listener) []byte {
	nc, err := ln.Accept()
	if err != nil {
		t.Error(err)
		return nil
	}
	defer nc.Close()
	r, err := http.ReadRequest(bufio.NewReader(nc))
	if err != nil {
		t.Error(err)
		return nil
	}
	wire := appendSwitching(nil, r.Header.Get("Sec-WebSocket-Key"), "", deflateTerms{}, nil)
	wire = append(wire, "\x81\x03one\x81\x03two"...)
	if _, err = nc.Write(wire); err != nil {
		t.Error(err)
	}
	_ = nc.(*net.TCPConn).CloseWrite()
	p, err := io.ReadAll(nc)
	noError(t, err)
	return p
}

// Callbacks of messages before the end have CloseTimeout, each of them. One that takes longer finds
// the connection closed, and its context ended, also if it has waited for just that.
func TestLastAnswersAreBounded(t *testing.T) {
	for _, pull := range []bool{false, true} {
		for name, end := range map[string]func(c *client){
			"close frame": func(c *client) { c.send(OpClose, closeWith(1000, "")) },
			"FIN":         func(c *client) { c.CloseWrite() },
			"both":        func(c *client) { c.send(OpClose, closeWith(1000, "")); c.CloseWrite() },
		} {
			for _, mode := range []string{"slow", "stuck"} {
				var w *world
				answer := func(c *Conn, op Op, p []byte) {
					if mode == "stuck" {
						for c.Context().Err() == nil {
							w.NewParker().ParkFor(time.Second / 10)
						}
					} else {
						w.NewParker().ParkFor(DefaultCloseTimeout * 3 / 4)
					}
					_ = c.Write(op, p)
				}
				o := &Options{Dispatch: web.DispatchPool, Pull: pull, PingInterval: quiet}
				if !pull {
					o.OnMessage = answer
				} else {
					o.OnOpen = func(c *Conn) {
						w.Go(func() {
							for {
								op, p, err := c.Read(context.Background())
								if err != nil {
									return
								}
								answer(c, op, p)
							}
						})
					}
				}
				ended := time.Time{}
				o.OnClose = func(*Conn, error) { ended = w.Now() }
				w = newWorld(t, 1, sim.Lossless(), myriad.Config{}, Handler(o))
				c := w.client(sampleRequest)
				w.RunFor(time.Second)
				began := w.Now()
				c.Write([]byte(twoMessages + twoMessages))
				end(c)
				w.RunFor(time.Minute)
				want, most := append(slices.Clone(twoAnswers), twoAnswers...), 4*DefaultCloseTimeout
				if mode == "stuck" {
					want, most = nil, 2*DefaultCloseTimeout+time.Second
				}
				got := c.lines(t)
				if name != "FIN" {
					want = append(want, line(OpClose, closeWith(1000, "")))
				}
				if !slices.Equal(got, want) || !c.Ended() {
					t.Errorf("%s, %s, pull %v: the client got %q, end %v", name, mode, pull, got, c.Ended())
				}
				if ended.IsZero() || ended.Sub(began) > most {
					t.Errorf("%s, %s, pull %v: OnClose after %v", name, mode, pull, ended.Sub(began))
				}
				w.finish(c)
			}
		}
	}
}
