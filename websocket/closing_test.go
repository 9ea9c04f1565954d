package websocket

import (
	"bufio"
	"context"
	"crypto/tls"
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
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/tlsloop"
	"github.com/myriad-go/myriad/web"
)

// held is a server on a calm world with one open connection, which the test also has in its hand.
type held struct {
	*world
	conn   *Conn
	client *client
	heard  *logLines
	ended  error
}

func hold(t *testing.T, o *Options, cfg myriad.Config) *held {
	t.Helper()
	h := &held{}
	open := o.OnOpen
	o.OnOpen = func(c *Conn) {
		h.conn = c
		if open != nil {
			open(c)
		}
	}
	o, h.heard = recorded(o)
	o.OnClose = func(_ *Conn, err error) {
		if h.ended != nil {
			t.Errorf("OnClose twice: %v, %v", h.ended, err)
		}
		h.ended = err
	}
	h.world = newWorld(t, 1, sim.Calm(), cfg, handlerOf(t, o))
	h.client = h.world.client(sampleRequest)
	h.Settle()
	if h.conn == nil {
		t.Fatalf("not opened; the client read %q", h.client.Received())
	}
	return h
}

func (h *held) wantRead(want ...string) {
	h.t.Helper()
	if got := h.client.lines(h.t); !slices.Equal(got, want) {
		h.t.Errorf("the client read %q, want %q", got, want)
	}
}

func (h *held) wantEnd(code StatusCode, is error) {
	h.t.Helper()
	if CloseStatus(h.ended) != code || is != nil && !errors.Is(h.ended, is) || h.ended == nil {
		h.t.Errorf("OnClose got %v, want status %d and %v", h.ended, code, is)
	}
}

// A peer that reads nothing cannot hold the close up either: what waits is dropped.
func TestCloseTimeoutOfSlowReader(t *testing.T) {
	h := hold(t, &Options{CloseTimeout: 3 * time.Second, PingInterval: quiet, WriteLimit: 1 << 20}, myriad.Config{})
	h.client.StopReading()
	h.Settle()
	for n := 60 << 10; n > 0; n /= 2 {
		for h.conn.Write(OpBinary, make([]byte, n)) == nil {
			h.Settle()
		}
	}
	for h.conn.Write(OpBinary, nil) == nil {
		h.Settle()
	}
	if err := h.conn.Close(1000, "kept above the limit"); err != nil {
		t.Fatalf("Close with a full queue: %v", err)
	}
	h.RunFor(3100 * time.Millisecond)
	h.wantEnd(0, os.ErrDeadlineExceeded)
	h.stop()
}

// A peer that reads slowly gets all that was written before the close, however many times
// CloseTimeout that takes, and may answer.
func TestCloseTimeoutOfMovingOutput(t *testing.T) {
	h := hold(t, &Options{CloseTimeout: 3 * time.Second, PingInterval: quiet, WriteLimit: 1 << 20}, myriad.Config{})
	h.client.StopReading()
	h.client.OnReceived = func([]byte) { h.client.StopReading() }
	h.Settle()
	const size = 10 << 10
	sent := 0
	for ; h.conn.Write(OpBinary, make([]byte, size)) == nil; sent++ {
		h.Settle()
	}
	must(t, h.conn.Close(1000, ""))
	steps := 0
	for before := -1; h.conn.Queued() > 0; steps++ {
		if queued := h.conn.Queued(); queued == before || h.ended != nil {
			t.Fatalf("%d bytes are stuck after %d steps, ended with %v", queued, steps, h.ended)
		} else {
			before = queued
		}
		h.client.Resume() // for one look
		h.RunFor(2900 * time.Millisecond)
	}
	if steps < 5 {
		t.Fatalf("read in %d steps: the test shows nothing", steps)
	}
	h.client.OnReceived = nil
	h.client.Resume()
	h.RunFor(time.Millisecond)
	h.client.send(OpClose, closeWith(1000, ""))
	h.Run()
	h.wantEnd(1000, nil)
	if got := len(h.client.lines(t)); got != sent+1 {
		t.Errorf("the client read %d messages and closes, %d were written", got, sent+1)
	}
	h.stop()
}

// A client leaves it to the server to close the connection, for as long as CloseTimeout, and what
// was agreed stays the reason.
func TestClientWaitsForServer(t *testing.T) {
	for _, serverCloses := range []bool{true, false} {
		w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(&Options{}))
		var peer *sim.Peer
		ln := w.listenPeer(func(p *sim.Peer, key string) {
			peer = p
			p.Write([]byte(switching(key)))
		})
		var ended error
		o := &DialOptions{Random: seeded(1)}
		o.Engine, o.CloseTimeout, o.PingInterval = w.e, 3*time.Second, quiet
		o.OnClose = func(_ *Conn, err error) { ended = err }
		if _, _, err := Dial(context.Background(), "ws://"+ln.Addr().String(), o); err != nil {
			t.Fatal(err)
		}
		peer.Write(appendFrame(nil, frameHeader{fin: true, op: OpClose}, []byte(closeWith(4000, "bye"))))
		w.RunFor(2900 * time.Millisecond)
		if peer.Ended() || ended != nil {
			t.Fatalf("the client has closed already: %v", ended)
		}
		if serverCloses {
			peer.CloseWrite()
		}
		w.RunFor(200 * time.Millisecond)
		if !peer.Ended() {
			t.Error("the client has not closed")
		}
		peer.CloseWrite()
		w.Run()
		if CloseStatus(ended) != 4000 {
			t.Errorf("OnClose got %v", ended)
		}
		noError(t, ln.Close())
		w.stop()
	}
}

// No step undoes what an earlier one has said: output that has ended stays so, and so do callbacks
// that no longer come, and a connection that is gone.
func TestPhasesOnlyGoOn(t *testing.T) {
	for p := range phases {
		for s := range steps {
			var before, after closer
			before.now.Store(uint32(p))
			after.now.Store(uint32(transitions[p][s]))
			if !before.writable() && after.writable() || before.muted() && !after.muted() ||
				before.gone() && after.phase() != p || before.over() && !after.over() {
				t.Errorf("phase %d, step %d: phase %d", p, s, after.phase())
			}
			if s == vanishes && !after.gone() || (s == closes || s == answers) && after.writable() ||
				s == drops && !after.over() {
				t.Errorf("phase %d: step %d leads to phase %d", p, s, after.phase())
			}
		}
	}
}

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
			secure := func(o tlsloop.Options, h myriad.Handler) string {
				return listen(t, e, o.Handler(&tls.Config{Certificates: certified.TLS.Certificates},
					func(tls.ConnectionState) myriad.Handler { return h }))
			}
			secured := secure(tlsloop.Options{}, Handler(o))
			lean := secure(tlsloop.Options{LeanTLS: true}, Handler(o))
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
				"LeanTLS": {lean, func(nc net.Conn) (net.Conn, func() error) {
					c := tls.Client(nc, trust)
					return c, c.CloseWrite
				}},
				"LeanTLS without close_notify": {lean, func(nc net.Conn) (net.Conn, func() error) {
					return tls.Client(nc, trust), nc.(*net.TCPConn).CloseWrite
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

// overTLS serves o over TLS, without web, and gives a client behind its handshake.
func overTLS(t *testing.T, o *Options) *tls.Conn {
	t.Helper()
	borrowed := httptest.NewUnstartedServer(nil)
	borrowed.StartTLS()
	defer borrowed.Close()
	ln, err := startEngine(t, myriad.Config{}).Listen("tcp", "127.0.0.1:0", tlsloop.Handler(
		&tls.Config{Certificates: borrowed.TLS.Certificates},
		func(tls.ConnectionState) myriad.Handler { return Handler(o) }))
	must(t, err)
	tc, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	must(t, err)
	_ = tc.SetDeadline(time.Now().Add(hangs))
	t.Cleanup(func() { tc.Close() })
	return tc
}

// A peer whose FIN comes behind its close frame, but without a close_notify, has ended in order:
// what its messages lead to is sent, then the
// close frame, as over TCP. One without a close frame has not.
func TestPeerEndsTLSByFIN(t *testing.T) {
	for _, closes := range []bool{true, false} {
		ended := make(chan error, 1)
		o := &Options{Workers: startPool(t), PingInterval: -1, OnClose: func(_ *Conn, err error) { ended <- err }}
		o.OnMessage = func(c *Conn, op Op, p []byte) {
			for end := time.Now().Add(hangs); closes && !finSeen(c) && time.Now().Before(end); {
				time.Sleep(time.Millisecond) // until the FIN has come
			}
			_ = c.Write(op, p)
		}
		tc := overTLS(t, o)
		frames := clientFrame(true, OpText, "last words")
		if closes {
			frames += clientFrame(true, OpClose, closeWith(1000, ""))
		}
		io.WriteString(tc, sampleRequest+frames)
		_ = tc.NetConn().(*net.TCPConn).CloseWrite()
		in := bufio.NewReader(tc)
		if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 101 {
			t.Fatal(resp, err)
		}
		got, err := io.ReadAll(in)
		end := <-ended
		if !closes {
			if !errors.Is(end, io.ErrUnexpectedEOF) {
				t.Errorf("without a close frame: OnClose(%v)", end)
			}
			continue
		}
		if want := "\x81\x0alast words\x88\x02\x03\xe8"; string(got) != want || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
		if CloseStatus(end) != 1000 {
			t.Errorf("OnClose(%v)", end)
		}
	}
}

func finSeen(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cold != nil && c.cold.fin
}

// After the end every method fails or does nothing, however often it is called, and in whichever
// way the connection has ended.
func TestMethodsBehindTheEnd(t *testing.T) {
	ends := map[string]func(h *held){
		"Close":        func(h *held) { _ = h.conn.Close(1000, ""); h.client.send(OpClose, closeWith(1000, "")) },
		"Abort":        func(h *held) { h.conn.Abort(nil) },
		"peer's close": func(h *held) { h.client.send(OpClose, closeWith(1000, "")) },
		"reset":        func(h *held) { h.client.Reset() },
		"violation":    func(h *held) { h.client.Write([]byte("\xff\xff")) },
		"no answer":    func(h *held) { _ = h.conn.Close(1000, "") },
	}
	for name, end := range ends {
		for _, k := range []Compression{{}, {Enabled: true, Threshold: -1, WriteWindowBits: 15, ReadWindowBits: 15}} {
			var group Group
			h := hold(t, &Options{PingInterval: quiet, Compression: k}, myriad.Config{})
			if _, err := group.Join(h.conn); err != nil {
				t.Fatal(err)
			}
			end(h)
			h.Run()
			if h.ended == nil {
				t.Fatalf("%s: OnClose was not called", name)
			}
			prepared, err := Prepare(OpText, []byte("text"))
			must(t, err)
			for range 3 {
				w, err := h.conn.NextWriter(OpText)
				if err == nil {
					_, _ = w.Write(make([]byte, 1<<20))
					err = w.Close()
				}
				for _, err := range []error{err, h.conn.Write(OpText, []byte("text")), h.conn.Ping([]byte("?")),
					h.conn.WritePrepared(prepared), h.conn.WriteContext(context.Background(), OpText, []byte("text")),
					h.conn.Close(1000, "")} {
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("%s: %v", name, err)
					}
				}
				h.conn.Abort(nil)
				if err := group.Send(OpText, []byte("text")); err != nil {
					t.Errorf("%s: Send: %v", name, err)
				}
			}
			prepared.Release()
			h.Run()
			if n := group.Len(); n != 0 {
				t.Errorf("%s: %d members are left", name, n)
			}
			if n := h.e.Stats().Conns; n != 0 {
				t.Errorf("%s: %d connections are left", name, n)
			}
			h.stop()
		}
	}
}

// A connection that its server closes while the peer's messages wait unread, or for slow callbacks,
// gets its peer's answer at once, and not after CloseTimeout.
func TestCloseBesideUnread(t *testing.T) {
	many := strings.Repeat(clientFrame(true, OpText, strings.Repeat("x", 1000)), 600)
	t.Run("Read", func(t *testing.T) {
		h := hold(t, &Options{Pull: true, PingInterval: quiet, CloseTimeout: time.Hour}, myriad.Config{})
		closeUnread(t, h, many)
	})
	t.Run("callbacks", func(t *testing.T) {
		var h *held
		o := &Options{PingInterval: quiet, CloseTimeout: time.Hour, Dispatch: web.DispatchPool}
		o.OnMessage = func(*Conn, Op, []byte) { h.NewParker().ParkFor(time.Second) }
		h = hold(t, o, myriad.Config{})
		closeUnread(t, h, many)
	})
}

func closeUnread(t *testing.T, h *held, many string) {
	h.client.Write([]byte(many))
	h.RunFor(100 * time.Millisecond)
	must(t, h.conn.Close(4000, "enough"))
	h.client.send(OpClose, closeWith(4000, ""))
	h.RunFor(10 * time.Second)
	h.wantEnd(4000, nil)
	h.stop()
}

// A writer that waits for a peer that does not read is let go by each kind of end, and none of them
// waits for the peer. TestWriteContextLeavesNothing has the end of a context.
func TestEndsBesideWriters(t *testing.T) {
	for name, end := range map[string]func(h *held){
		"Close": func(h *held) { _ = h.conn.Close(1000, "") },
		"Abort": func(h *held) { h.conn.Abort(nil) },
		"reset": func(h *held) { h.client.Reset() },
	} {
		for _, k := range []Compression{{}, {Enabled: true, Threshold: -1, WriteWindowBits: 15}} {
			h := hold(t, &Options{PingInterval: quiet, WriteLimit: 4 << 10, WriteTimeout: time.Hour, Compression: k,
				CloseTimeout: time.Second}, myriad.Config{})
			h.client.StopReading()
			var errs []error
			h.Go(func() {
				for range 1000 {
					if err := h.conn.Write(OpBinary, make([]byte, 3000)); err != nil {
						errs = append(errs, err)
						break
					}
				}
				w, err := h.conn.NextWriter(OpBinary)
				if err == nil {
					_, err = w.Write(make([]byte, 100_000))
				}
				errs = append(errs, err)
			})
			h.RunFor(time.Minute)
			if len(errs) > 0 {
				t.Fatalf("%s: the writer does not wait: %v", name, errs)
			}
			end(h)
			h.RunFor(100 * time.Millisecond)
			if len(errs) != 2 || !errors.Is(errs[0], net.ErrClosed) || !errors.Is(errs[1], net.ErrClosed) {
				t.Errorf("%s: the writer got %v", name, errs)
			}
			h.RunFor(10 * time.Second)
			if h.ended == nil {
				t.Errorf("%s: OnClose was not called", name)
			}
			h.stop()
		}
	}
}

// A Read that waits ends when the peer does not answer pings. A peer that answers them stays,
// although its messages are not read.
func TestKeepaliveBesideRead(t *testing.T) {
	o := func() *Options {
		return &Options{Pull: true, PingInterval: time.Second, PongTimeout: time.Second}
	}
	h := hold(t, o(), myriad.Config{})
	var got error
	h.Go(func() { _, _, got = h.conn.Read(context.Background()) })
	h.RunFor(5 * time.Second)
	if !errors.Is(got, os.ErrDeadlineExceeded) || !errors.Is(h.ended, os.ErrDeadlineExceeded) {
		t.Errorf("silent: Read got %v, OnClose %v", got, h.ended)
	}
	h.stop()

	h = hold(t, o(), myriad.Config{})
	h.client.send(OpText, "unread")
	for range 20 {
		h.RunFor(900 * time.Millisecond)
		h.client.send(OpPong, "")
	}
	if h.ended != nil {
		t.Errorf("unread: the connection has ended: %v", h.ended)
	}
	h.client.Write([]byte(strings.Repeat(clientFrame(true, OpText, "x"), 200))) // more than are read ahead
	h.RunFor(time.Minute)
	if h.ended != nil {
		t.Errorf("held up: the connection has ended: %v", h.ended)
	}
	h.conn.Abort(nil)
	h.Run()
	h.stop()
}

// Pings are answered while messages are dropped or refused for want of room, when the peer reads
// again.
func TestPingsBesideOverflow(t *testing.T) {
	for policy := range outbox.Policies {
		if policy == OverflowBlock || policy == OverflowClose {
			continue
		}
		h := hold(t, &Options{PingInterval: quiet, WriteLimit: 8 << 10, Overflow: policy}, myriad.Config{})
		h.client.StopReading()
		for i := range 10_000 {
			_ = h.conn.Write(OpText, numbered(i))
			if i%100 == 0 {
				h.Settle()
			}
		}
		h.client.send(OpPing, "still there?")
		h.RunFor(time.Second)
		h.client.Resume()
		h.RunFor(time.Second)
		if got := h.client.lines(t); !slices.Contains(got, `pong "still there?"`) {
			t.Errorf("%v: no pong among %d frames", policy, len(got))
		}
		h.conn.Abort(nil)
		h.Run()
		h.stop()
	}
}

// The end of a WriteContext's context leaves nothing of its message, and the connection as it is,
// with and without windows.
func TestWriteContextLeavesNothing(t *testing.T) {
	for _, k := range []Compression{{}, {Enabled: true, Threshold: -1},
		{Enabled: true, Threshold: -1, WriteWindowBits: 15}} {
		conns := make(chan *Conn, 1)
		o := &Options{PingInterval: quiet, WriteLimit: 4 << 10, Compression: k, Workers: startPool(t),
			OnOpen: func(c *Conn) { conns <- c }}
		p := dialRaw(t, listen(t, startEngine(t, myriad.Config{Loops: 1}), Handler(o)))
		p.write(compressingRequest())
		c := <-conns
		var want []string
		rng := rand.New(rand.NewPCG(1, 2))
		write := func(ctx context.Context) error {
			text := string(randomText(rng, 20_000))
			err := c.WriteContext(ctx, OpText, []byte(text))
			if err == nil {
				want = append(want, text)
			}
			return err
		}
		var err error
		for err == nil { // until the peer's system takes no more
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			err = write(ctx)
			cancel()
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%+v: %v", k, err)
		}
		received := make(chan []byte)
		go func() {
			all, _ := io.ReadAll(p)
			received <- all
		}()
		for range 5 {
			if err := write(context.Background()); err != nil {
				t.Fatalf("%+v: %v", k, err)
			}
		}
		noError(t, c.Close(1000, ""))
		p.write(clientFrame(true, OpClose, closeWith(1000, "")))
		if got := unpackAll(t, <-received, k.WriteWindowBits > 0); !slices.Equal(got, want) {
			t.Errorf("%+v: %d of %d messages have come", k, len(got), len(want))
		}
	}
}

// Messages that wait for slow callbacks when the peer has gone are heard like others. So are
// compressed ones with references to those before them.
func TestEndsBesideWindows(t *testing.T) {
	const messages = 20
	same := string(sampleText(rand.New(rand.NewPCG(1, 2)), 500))
	var wire string
	var window []byte
	texts := []string{"open"}
	for i := range messages {
		text := fmt.Sprint(i, ": ", same)
		if i%5 == 4 {
			wire += clientFrame(true, OpText, text)
		} else {
			wire += packedFrame(OpText, text, window, 1)
			window = slide(window, []byte(text), 1<<maxWindowBits)
		}
		texts = append(texts, line(OpText, text))
	}
	for name, end := range map[string]func(c *client){
		"reset": func(c *client) { c.Reset() },
		"FIN":   func(c *client) { c.CloseWrite() },
		"close": func(c *client) { c.send(OpClose, closeWith(1000, "")) },
	} {
		eachWay(t, func(t *testing.T, d web.Dispatch) {
			var w *world
			o := &Options{Dispatch: d, PingInterval: quiet,
				Compression: Compression{Enabled: true, Threshold: -1, ReadWindowBits: 15}}
			var conn *Conn
			o.OnMessage = func(c *Conn, _ Op, _ []byte) {
				conn = c
				if d != web.DispatchInline {
					w.NewParker().ParkFor(10 * time.Millisecond)
				}
			}
			o, heard := recorded(o)
			w = newWorld(t, 1, sim.Calm(), myriad.Config{}, handlerOf(t, o))
			c := w.client(compressingRequest() + wire)
			w.RunFor(20 * time.Millisecond)
			end(c)
			w.RunFor(time.Minute)
			got := heard.all()
			if n := len(got); n == 0 || !strings.HasPrefix(got[n-1], "end") || !slices.Equal(got[:n-1], texts) {
				t.Errorf("%s: heard %d of %d, at last %.60q", name, n-2, messages, got[max(0, n-2):])
			}
			conn.mu.Lock()
			if conn.cold != nil && conn.cold.windows != nil {
				t.Errorf("%s: the connection keeps its windows", name)
			}
			conn.mu.Unlock()
			w.finish(c)
		})
		t.Run("Read", func(t *testing.T) {
			h := &held{}
			o := &Options{Pull: true, PingInterval: quiet, OnOpen: func(c *Conn) { h.conn = c },
				OnClose:     func(*Conn, error) {},
				Compression: Compression{Enabled: true, Threshold: -1, ReadWindowBits: 15}}
			h.world = newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
			c := h.world.client(compressingRequest() + wire)
			h.Settle()
			end(c)
			h.RunFor(time.Second)
			got := []string{"open"}
			h.Go(func() {
				for {
					op, p, err := h.conn.Read(context.Background())
					if err != nil {
						return
					}
					got = append(got, describe(op, false, p))
				}
			})
			h.RunFor(time.Minute)
			if !slices.Equal(got, texts) {
				t.Errorf("%s: read %d of %d", name, len(got)-1, messages)
			}
			c.Close()
			h.Run()
			h.stop()
		})
	}
}

// A message that would fit waits behind those that did not: WriteContext, and a policy that was
// changed meanwhile, keep the order.
func TestSmallMessagesWaitTheirTurn(t *testing.T) {
	for _, policy := range []Overflow{OverflowDropOldest, OverflowLatest} {
		for name, write := range map[string]func(c *Conn) error{
			"WriteContext": func(c *Conn) error { return c.WriteContext(context.Background(), OpText, []byte("last")) },
			"SetOverflow": func(c *Conn) error {
				if err := c.SetOverflow(OverflowBlock, 0); err != nil {
					return err
				}
				return c.Write(OpText, []byte("last"))
			},
		} {
			h := hold(t, &Options{PingInterval: quiet, Overflow: policy, WriteLimit: 4 << 10, WriteTimeout: time.Hour},
				myriad.Config{})
			h.client.StopReading()
			for i := range 1000 { // the peer's system takes some
				must(t, h.conn.Write(OpText, numbered(i)))
				h.Settle()
			}
			written := false
			h.Go(func() {
				noError(t, write(h.conn))
				written = true
			})
			h.RunFor(time.Second)
			if written && name == "WriteContext" {
				t.Errorf("%v, %s: it does not wait", policy, name)
			}
			h.client.Resume()
			h.RunFor(time.Second)
			got := h.client.lines(t)
			if n := len(got); got[n-1] != `text "last"` || got[n-2] != line(OpText, string(numbered(999))) {
				t.Errorf("%v, %s: the last messages are %.20q", policy, name, got[n-2:])
			}
			h.conn.Abort(nil)
			h.Run()
			h.stop()
		}
	}
}

// A Close beside a message in parts goes its way: the writer fails, and the peer's answer is waited
// for, and is what OnClose gets.
func TestCloseBesideParts(t *testing.T) {
	for _, k := range []Compression{{}, {Enabled: true, Threshold: -1, WriteWindowBits: 15}} {
		o := &Options{PingInterval: quiet, Compression: k, CloseTimeout: time.Hour}
		h := &held{}
		o.OnOpen = func(c *Conn) { h.conn = c }
		o.OnClose = func(_ *Conn, err error) { h.ended = err }
		h.world = newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
		h.client = h.world.client(compressingRequest())
		h.Settle()
		w, err := h.conn.NextWriter(OpBinary)
		must(t, err)
		noise := randomBytes(rand.New(rand.NewPCG(1, 2)), 100_000)
		if _, err := w.Write(noise); err != nil {
			t.Fatal(err)
		}
		must(t, h.conn.Close(4000, "enough"))
		_, err = w.Write(noise)
		if closing := w.Close(); !errors.Is(err, net.ErrClosed) || !errors.Is(closing, net.ErrClosed) {
			t.Errorf("%+v: Write %v, Close %v", k, err, closing)
		}
		h.RunFor(time.Minute)
		if h.ended != nil || h.client.Ended() {
			t.Errorf("%+v: the connection has ended before its peer's answer: %v", k, h.ended)
		}
		h.client.send(OpClose, closeWith(4000, ""))
		h.RunFor(time.Minute)
		h.t = t
		h.wantEnd(4000, nil)
		h.finish()
	}
}
