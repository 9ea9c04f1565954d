package websocket

import (
	"bufio"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/web"
)

func requestOf(t *testing.T, wire string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
	must(t, err)
	return r
}

// wrapped is a ResponseWriter in a framework's clothes.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// accepting is a handler that greets with a Write right after Accept and echoes.
func accepting(t *testing.T, o *Options) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wrapped" {
			w = wrapped{wrapped{w}}
		}
		c, err := AcceptWith(w, r, o, r.URL.Path)
		if err != nil {
			t.Logf("refused: %v", err)
			return
		}
		noError(t, c.Write(OpText, []byte("welcome to "+r.URL.Path)))
	}
}

// eachServer runs f against each kind of server that Accept works on.
func eachServer(t *testing.T, o *Options, f func(t *testing.T, addr string)) {
	for _, d := range []web.Dispatch{web.DispatchPool, web.DispatchInline} {
		t.Run("web, "+d.String(), func(t *testing.T) { onWeb(t, o, d, f) })
	}
	t.Run("net/http", func(t *testing.T) {
		s := httptest.NewServer(accepting(t, o))
		defer s.Close()
		f(t, s.Listener.Addr().String())
	})
}

func onWeb(t *testing.T, o *Options, d web.Dispatch, f func(t *testing.T, addr string)) {
	s := &web.Server{Engine: startEngine(t, myriad.Config{}), Dispatch: d, Handler: accepting(t, o)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	f(t, ln.Addr().String())
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	noError(t, s.Shutdown(ctx))
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

func TestAccept(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d web.Dispatch) {
		ended := make(chan string, 10)
		o := &Options{Engine: startEngine(t, myriad.Config{}), Dispatch: d, Workers: startPool(t), OnMessage: echoBack,
			Subprotocols: []string{"chat"},
			OnClose:      func(c *Conn, err error) { ended <- c.Value().(string) + " " + CloseStatus(err).String() }}
		eachServer(t, o, func(t *testing.T, addr string) {
			for _, path := range []string{"/chat", "/wrapped"} {
				p := dialRaw(t, addr)
				request := strings.Replace(sampleRequest, "/chat", path, 1)
				request = strings.Replace(request, "Upgrade:", "Sec-WebSocket-Protocol: chat\r\nUpgrade:", 1)
				p.write(request + clientFrame(true, OpText, "read ahead") + clientFrame(false, OpText, "fra"))
				if head := p.head(); !strings.HasPrefix(head, "HTTP/1.1 101 ") ||
					!strings.Contains(head, "Sec-WebSocket-Protocol: chat\r\n") {
					t.Fatalf("answered %q", head)
				}
				first, second := p.frame(), p.frame() // the greeting and the echo come from two goroutines
				if greeting := line(OpText, "welcome to "+path); (first != greeting || second != `text "read ahead"`) &&
					second != greeting {
					t.Errorf("read %q, %q", first, second)
				}
				p.write(clientFrame(true, opContinuation, "gment") + clientFrame(true, OpPing, "?"))
				p.wantInAnyOrder(`text "fragment"`, `pong "?"`)
				p.write(clientFrame(true, OpClose, closeWith(1000, "")))
				p.want(line(OpClose, closeWith(1000, "")), "EOF")
				p.Close()
				if got, want := <-ended, path+" 1000 (normal closure)"; got != want {
					t.Errorf("OnClose heard %q, want %q", got, want)
				}
			}
		})
	})
}

func (p *rawPeer) wantInAnyOrder(a, b string) {
	p.t.Helper()
	if x, y := p.frame(), p.frame(); (x != a || y != b) && (x != b || y != a) {
		p.t.Errorf("read %q and %q, want %q and %q", x, y, a, b)
	}
}

func TestAcceptRefusesOverServers(t *testing.T) {
	o := &Options{Engine: startEngine(t, myriad.Config{})}
	eachServer(t, o, func(t *testing.T, addr string) {
		p := dialRaw(t, addr)
		p.write(strings.Replace(sampleRequest, "Connection", "Origin: https://evil.example\r\nConnection", 1))
		if head := p.head(); !strings.HasPrefix(head, "HTTP/1.1 403 ") {
			t.Errorf("answered %q", head)
		}
		p.Close()
	})
}

// Everything that can be done with a Conn before its connection has arrived at the loop.
func TestBeforeOpened(t *testing.T) {
	for name, f := range map[string]func(c *Conn){
		"close": func(c *Conn) {
			if err := c.Write(OpText, []byte("first")); err != nil || c.Queued() == 0 {
				t.Errorf("early Write: %v, %d queued", err, c.Queued())
			}
			if err := c.Close(4000, "early"); err != nil {
				t.Errorf("early Close: %v", err)
			}
			if err := c.Write(OpText, nil); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Write after an early Close: %v", err)
			}
		},
		"closenow": func(c *Conn) { c.Abort(nil) },
		"full": func(c *Conn) {
			for c.Write(OpBinary, make([]byte, 1000)) == nil {
			}
			if err := c.Write(OpBinary, make([]byte, 1000)); !errors.Is(err, myriad.ErrFull) || c.Queued() > 10_000 {
				t.Errorf("early Write without end: %v, %d queued", err, c.Queued())
			}
			if c.RemoteAddr() != nil || c.LocalAddr() != nil {
				t.Error("it has addresses already")
			}
			_ = c.Close(4000, "early")
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, heard := recorded(&Options{PingInterval: quiet, WriteLimit: 10_000, Overflow: OverflowFail})
			s, err := o.settings()
			must(t, err)
			c := newConn(s, deflateTerms{}, 0)
			f(c)
			w := newWorld(t, 1, sim.Calm(), myriad.Config{}, upgradeTo{c})
			p := w.client("")
			w.Settle()
			got := serverLines(t, append([]byte("HTTP/1.1 101 \r\n\r\n"), p.Received()...))
			if name != "closenow" && (len(got) == 0 || got[len(got)-1] != line(OpClose, closeWith(4000, "early"))) {
				t.Errorf("the client read %.200q", got)
			}
			p.send(OpClose, closeWith(4000, ""))
			p.CloseWrite()
			w.Run()
			if l := heard.all(); len(l) != 2 || l[0] != "open" || name == "closenow" && l[1] != "end 0" ||
				name != "closenow" && l[1] != "end 4000" {
				t.Errorf("heard %q", l)
			}
			w.stop()
		})
	}
}

// upgradeTo is a server that has answered the handshake already.
type upgradeTo struct{ c *Conn }

func (u upgradeTo) Opened(nc *myriad.Conn)        { nc.SetHandler((*handler)(u.c), nil) }
func (u upgradeTo) Received(*myriad.Conn, []byte) {}
func (u upgradeTo) Closed(*myriad.Conn, error)    {}

// The connection of a request that was upgraded holds neither goroutine nor request.
func TestConnectionsWithoutGoroutines(t *testing.T) {
	const n = 1000
	open, ended := make(chan *Conn, n), make(chan error, n)
	o := &Options{Workers: startPool(t), OnOpen: func(c *Conn) { open <- c }, OnMessage: echoBack,
		OnClose: func(_ *Conn, err error) { ended <- err }}
	e := startEngine(t, myriad.Config{})
	s := &web.Server{Engine: e,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = Accept(w, r, o) })}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	var peers []*rawPeer
	for range n {
		p := dialRaw(t, ln.Addr().String())
		p.write(sampleRequest + clientFrame(true, OpText, "hello"))
		peers = append(peers, p)
	}
	for _, p := range peers {
		p.head()
		p.want(`text "hello"`)
		if c := <-open; c.RemoteAddr() == nil || c.LocalAddr() == nil {
			t.Error("an open connection has no address")
		}
	}
	for end := time.Now().Add(hangs); ; time.Sleep(time.Millisecond) { // those that have just answered become idle
		stacks := slices.DeleteFunc(strings.Split(leaktest.Goroutines(), "\n\n"), func(stack string) bool {
			return strings.Contains(stack, "workers.(*worker).next(") // of one of two pools, and waits for any task
		})
		if len(stacks) <= 60 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines for %d idle connections:\n%.3000s", len(stacks), n, strings.Join(stacks, "\n\n"))
		}
	}
	for _, p := range peers {
		p.Close()
	}
	for range n {
		<-ended
	}
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	noError(t, s.Shutdown(ctx))
	<-done
}

// The whole of it on the simulator: web.Server, Accept, seeds.
func TestAcceptOnSim(t *testing.T) {
	for seed := range uint64(20) {
		w := sim.New(seed, sim.Lossless())
		e, err := myriad.Start(myriad.Config{Loops: 2, System: w})
		must(t, err)
		o, heard := recorded(&Options{PingInterval: quiet, OnMessage: echoBack})
		s := &web.Server{Engine: e, Handler: accepting(t, o)}
		ln, err := s.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		world := &world{World: w, t: t, e: e}
		c := &client{w.Dial(ln.Addr())}
		c.Write([]byte(sampleRequest + clientFrame(true, OpText, "1") + clientFrame(true, OpText, "2")))
		w.RunFor(20 * time.Second)
		read := c.lines(t)
		if len(read) != 3 {
			t.Errorf("seed %d: the client read %q", seed, read)
		}
		c.send(OpClose, closeWith(1000, ""))
		c.CloseWrite()
		w.RunFor(20 * time.Second)
		if got := strings.Join(heard.all(), ","); got != `open,text "1",text "2",end 1000` {
			t.Errorf("seed %d: heard %s", seed, got)
		}
		world.stop()
	}
}

// On a hijacked connection the addresses are there when Accept returns.
func TestAcceptHasAddresses(t *testing.T) {
	o := &Options{Engine: startEngine(t, myriad.Config{}), Workers: startPool(t)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r, o)
		if err != nil || c.RemoteAddr().String() != r.RemoteAddr || c.LocalAddr() == nil {
			t.Errorf("%v, from %v", err, r.RemoteAddr)
			return
		}
		_ = c.Close(StatusNormalClosure, "")
	}))
	defer s.Close()
	p := dialRaw(t, s.Listener.Addr().String()).open()
	p.want(line(OpClose, closeWith(1000, "")))
}

// Fields that a handler or middleware has set before Accept go out with the 101.
func TestAcceptKeepsFields(t *testing.T) {
	o := &Options{Engine: startEngine(t, myriad.Config{})}
	logged := &lockedLines{}
	accepted := make(chan struct{}, 1) // by a handler, which ends after the client has its answer
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "abc"})
		w.Header().Add("Set-Cookie", "other=1")
		w.Header().Set("X-Request-Id", "7")
		w.Header().Set("Content-Length", "5")
		w.Header().Set("Connection", "close")
		w.Header().Set("Sec-WebSocket-Accept", "forged")
		w.Header()["upgrade"] = []string{"other"}
		w.Header().Set("X-Split", "a\r\nX-Injected: 1")
		seen := &statusWriter{ResponseWriter: w}
		if _, err := Accept(seen, r, o); err != nil {
			t.Error(err)
		}
		if seen.status != http.StatusSwitchingProtocols {
			t.Errorf("middleware saw the status %d, want 101", seen.status)
		}
		accepted <- struct{}{}
	})
	eachHandler(t, h, logged, func(t *testing.T, addr string) {
		p := dialRaw(t, addr)
		p.write(sampleRequest)
		r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(p.head())), nil)
		if err != nil || r.StatusCode != 101 {
			t.Fatal(r, err)
		}
		for name, want := range map[string][]string{
			"Set-Cookie": {"session=abc", "other=1"}, "X-Request-Id": {"7"}, "Content-Length": nil,
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
			"Sec-Websocket-Accept": {"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}, "X-Split": {"a  X-Injected: 1"},
		} {
			if got := r.Header[name]; !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		p.Close()
		<-accepted
	})
	if lines := logged.all(); len(lines) > 0 {
		t.Errorf("the servers logged %q", lines)
	}
}

// A statusWriter is middleware that records the status, as access logs do.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// eachHandler runs f against h on a web.Server and on net/http's, whose error logs go to logged.
func eachHandler(t *testing.T, h http.Handler, logged *lockedLines, f func(t *testing.T, addr string)) {
	errorLog := log.New(logged, "", 0)
	t.Run("web", func(t *testing.T) {
		s := &web.Server{Engine: startEngine(t, myriad.Config{}), Handler: h, ErrorLog: errorLog}
		ln, err := s.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		f(t, ln.Addr().String())
		noError(t, s.Close())
	})
	t.Run("net/http", func(t *testing.T) {
		s := httptest.NewUnstartedServer(h)
		s.Config.ErrorLog = errorLog
		s.Start()
		defer s.Close()
		f(t, s.Listener.Addr().String())
	})
}

// lockedLines is what an error log is given.
type lockedLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *lockedLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func (l *lockedLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}
