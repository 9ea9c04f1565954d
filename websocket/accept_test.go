package websocket

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

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

// Upgrades on net/http that come faster than the loop takes them wait. None is refused.
func TestAcceptLosesNoneOfABurst(t *testing.T) {
	const intake, all = 1024, 1100
	e := startEngine(t, myriad.Config{Loops: 1})
	o := &Options{Engine: e, Workers: startPool(t)}
	var entered, taken sync.WaitGroup
	entered.Add(all)
	taken.Add(intake)
	var returned atomic.Int64
	results := make(chan error, all)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered.Done()
		_, err := Accept(w, r, o)
		results <- err
		if returned.Add(1) <= intake {
			taken.Done()
		}
	}))
	defer s.Close()
	held, release := make(chan struct{}), make(chan struct{})
	must(t, e.Loops()[0].Do(func() { close(held); <-release }))
	<-held
	for range all {
		nc, err := net.Dial("tcp", s.Listener.Addr().String())
		must(t, err)
		defer nc.Close()
		if _, err := io.WriteString(nc, sampleRequest); err != nil {
			t.Fatal(err)
		}
	}
	entered.Wait()
	taken.Wait()
	close(release)
	for range all {
		must(t, <-results)
	}
}

// An openingCase is a case of testdata/openings.txt.
type openingCase struct {
	name       string
	request    string
	status     int
	header     string // in the answer
	says       string
	compressed bool
	raw        bool
}

func openingCases(t *testing.T) (all []openingCase) {
	t.Helper()
	eachLine(t, "openings.txt", func(word string, p *script) {
		if word == "case" {
			all = append(all, openingCase{name: p.all()})
			return
		}
		switch c := &all[len(all)-1]; word {
		case "replace":
			old := p.term()
			p.skip(" ")
			c.request = strings.Replace(sampleRequest, old, p.payload(0), 1)
		case "answer":
			c.status, c.header = p.number(), p.all()
		case "says":
			c.says = p.all()
		case "compressed":
			c.compressed = true
		case "raw":
			c.raw = true
		default:
			p.wrong()
		}
	})
	return all
}

func (c *openingCase) options() *Options {
	return &Options{PingInterval: quiet, Subprotocols: []string{"v2", "v1"}, Compression: Compression{Enabled: true},
		OriginPatterns: []string{"*.friend.example"}}
}

// check looks at the answer's head.
func (c *openingCase) check(t *testing.T, answer string) {
	t.Helper()
	head, _, _ := strings.Cut(answer, "\r\n\r\n")
	head += "\r\n"
	want := []string{fmt.Sprintf("HTTP/1.1 %d %s\r\n", c.status, http.StatusText(c.status)), c.header}
	if c.says != "" {
		want = append(want, "\r\nSec-WebSocket-Protocol: "+c.says+"\r\n")
	}
	if c.compressed {
		want = append(want, "\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "+
			"client_no_context_takeover\r\n")
	}
	for _, part := range want {
		if !strings.Contains(head, part) {
			t.Errorf("%s: the answer has no %q: %.300q", c.name, part, head)
		}
	}
	if strings.Contains(head, "-Protocol:") != (c.says != "") ||
		strings.Contains(head, "-Extensions:") != c.compressed {
		t.Errorf("%s: the answer says too much: %.300q", c.name, head)
	}
}

// Each opening on a raw connection that is cut anywhere, and gets no more than its answer.
func TestRawOpenings(t *testing.T) {
	for _, c := range openingCases(t) {
		for seed := range uint64(4) {
			o := c.options()
			says := "not opened"
			o.OnOpen = func(opened *Conn) { says = opened.Subprotocol() }
			o, heard := recorded(o)
			w := newWorld(t, seed, sim.Lossless(), myriad.Config{}, Handler(o))
			p := w.client(c.request)
			if c.status != http.StatusSwitchingProtocols {
				p.Write([]byte(strings.Repeat("and goes on sending", 100)))
			}
			p.CloseWrite()
			w.Run()
			c.check(t, string(p.Received()))
			if opens := c.status == http.StatusSwitchingProtocols; opens != (len(heard.all()) > 0) ||
				opens && says != c.says || !p.Ended() {
				t.Errorf("%s, seed %d: heard %q, subprotocol %s, ended %v", c.name, seed, heard.all(), says, p.Ended())
			}
			w.stop()
		}
	}
}

func TestAcceptRefuses(t *testing.T) {
	for _, c := range openingCases(t) {
		if c.raw || c.status == http.StatusSwitchingProtocols {
			continue
		}
		o, heard := recorded(c.options())
		w := httptest.NewRecorder()
		conn, err := Accept(w, requestOf(t, c.request), o)
		if conn != nil || err == nil || !strings.Contains(err.Error(), fmt.Sprint(c.status)) || len(heard.all()) > 0 {
			t.Errorf("%s: %v, %v; heard %q", c.name, conn, err, heard.all())
		}
		if name, value, ok := strings.Cut(c.header, ": "); w.Code != c.status || ok && w.Header().Get(name) != value {
			t.Errorf("%s: status %d and %v, want %d and %s", c.name, w.Code, w.Header(), c.status, c.header)
		}
	}
}

func TestAcceptWithoutHijacker(t *testing.T) {
	w := httptest.NewRecorder()
	e := startEngine(t, myriad.Config{Loops: 1})
	if c, err := Accept(w, requestOf(t, sampleRequest), &Options{Engine: e}); c != nil || err == nil || w.Code != 500 {
		t.Errorf("got %v, %v and status %d, want 500", c, err, w.Code)
	}
}

// Any split of the request gives the same answer.
func TestRequestAnySplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	cases := openingCases(t)
	for range 300 {
		b := cases[rng.IntN(len(cases))]
		wire := []byte(b.request)
		if rng.IntN(2) == 0 {
			wire = []byte(sampleRequest)
		}
		var whole opening[[]byte]
		n, bad := parseRequest(wire, &whole)
		var p []byte
		for _, piece := range cutAtRandom(rng, wire) {
			p = append(p, piece...)
			var o opening[[]byte]
			gotN, gotBad := parseRequest(p, &o)
			if gotN == 0 && gotBad == nil {
				continue
			}
			if gotN != n || (gotBad == nil) != (bad == nil) || string(o.key) != string(whole.key) && bad == nil {
				t.Fatalf("%s: in pieces %d, %v; whole %d, %v", b.name, gotN, gotBad, n, bad)
			}
			break
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(sampleRequest), 10)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 3)
	f.Add([]byte("G"), 0)
	f.Fuzz(func(t *testing.T, p []byte, cut int) {
		var o opening[[]byte]
		n, bad := parseRequest(p, &o)
		if n < 0 || n > len(p) || n > maxHead+4 || bad != nil && n != 0 {
			t.Fatalf("%d of %d bytes, %v", n, len(p), bad)
		}
		if n == 0 && bad == nil && len(p) >= maxHead {
			t.Fatal("no end of an endless head")
		}
		if n == 0 || cut <= 0 || cut >= n {
			return
		}
		if early, bad := parseRequest(p[:cut], &o); early != 0 || bad != nil {
			t.Fatalf("complete with %d bytes (%v), and with %d", cut, bad, n)
		}
	})
}

func TestRawHandshakeTimeout(t *testing.T) {
	for _, wire := range []string{"", sampleRequest[:50]} {
		w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(&Options{HandshakeTimeout: 2 * time.Second}))
		c := w.client(wire)
		w.RunFor(1900 * time.Millisecond)
		if len(c.Received()) > 0 {
			t.Errorf("answered early: %q", c.Received())
		}
		w.RunFor(200 * time.Millisecond)
		if got := string(c.Received()); !strings.HasPrefix(got, "HTTP/1.1 408 ") || !c.Ended() {
			t.Errorf("after the timeout the client read %q", got)
		}
		w.Run()
		w.stop()
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for text, o := range map[string]*Options{
		"nil":            nil,
		"Dispatch":       {Dispatch: 9},
		"MaxMessage":     {MaxMessage: -1},
		"WriteLimit":     {WriteLimit: -1},
		"256":            {Subprotocols: slices.Repeat([]string{"x"}, 256)},
		`"a b"`:          {Subprotocols: []string{"a b"}},
		"origin pattern": {OriginPatterns: []string{"[::1]:8080["}},
	} {
		w := httptest.NewRecorder()
		if _, err := Accept(w, requestOf(t, sampleRequest), o); err == nil || !strings.Contains(err.Error(), text) ||
			w.Code != 500 {
			t.Errorf("Accept: %v, status %d, want an error that names %s", err, w.Code, text)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Handler took options with a wrong %s", text)
				}
			}()
			Handler(o)
		}()
	}
}

func TestConnIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Conn{}); size > 96 {
		t.Errorf("a Conn has %d bytes", size)
	}
}

func TestAppendUpgrade(t *testing.T) {
	o := &Options{Subprotocols: []string{"v2", "v1"}, Compression: Compression{Enabled: true}}
	request := strings.Replace(compressingRequest(), "Connection", "Sec-WebSocket-Protocol: v1\r\nConnection", 1)
	for short := range len(request) {
		if got, _, err := AppendUpgrade(nil, []byte(request[:short]), o); !errors.Is(err, ErrIncomplete) ||
			len(got) > 0 {
			t.Fatalf("%d bytes: %q, %v", short, got, err)
		}
	}
	got, h, err := AppendUpgrade([]byte("before "), []byte(request+"behind"), o)
	if err != nil || h != (Handshake{len(request), "v1", true}) || !strings.HasPrefix(string(got),
		"before HTTP/1.1 101 ") {
		t.Errorf("%q, %+v, %v", got, h, err)
	}
	for _, c := range openingCases(t) {
		got, h, err := AppendUpgrade(nil, []byte(c.request), c.options())
		c.check(t, string(got))
		if (err == nil) != (c.status == http.StatusSwitchingProtocols) || h.Subprotocol != c.says ||
			h.Compressed != c.compressed {
			t.Errorf("%s: %+v, %v", c.name, h, err)
		}
	}
	if _, _, err := AppendUpgrade(nil, nil, nil); err == nil {
		t.Error("nil Options were taken")
	}
}

func TestAppendUpgradeDoesNotAllocate(t *testing.T) {
	dst := make([]byte, 0, switchingRoom)
	for name, o := range map[string]*Options{"plain": {}, "compressed": {Compression: Compression{Enabled: true}}} {
		for _, request := range []string{sampleRequest, browserRequest} {
			p := []byte(request)
			if n := testing.AllocsPerRun(100, func() { _, _, _ = AppendUpgrade(dst, p, o) }); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	}
}

const browserRequest = "GET /chat HTTP/1.1\r\nHost: example.com\r\nConnection: keep-alive, Upgrade\r\n" +
	"Pragma: no-cache\r\nCache-Control: no-cache\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:142.0) Gecko/20100101 Firefox/142.0\r\nUpgrade: websocket\r\n" +
	"Origin: https://example.com\r\n" +
	"Sec-WebSocket-Version: 13\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.5\r\n" +
	"Sec-WebSocket-Key: " + sampleKey +
	"\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"

func BenchmarkUpgrade(b *testing.B) {
	dst := make([]byte, 0, switchingRoom)
	for name, o := range map[string]*Options{"plain": {}, "compressed": {Compression: Compression{Enabled: true}}} {
		for kind, request := range map[string]string{"minimal": sampleRequest, "browser": browserRequest} {
			b.Run(kind+" "+name, func(b *testing.B) {
				p := []byte(request)
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := AppendUpgrade(dst, p, o); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// CheckOrigin decides alone, for Accept, Handler and AppendUpgrade alike, and sees the request.
func TestCheckOrigin(t *testing.T) {
	var asked *http.Request
	o := &Options{Engine: startEngine(t, myriad.Config{}), PingInterval: quiet,
		CheckOrigin: func(r *http.Request) bool {
			asked = r
			return r.Header.Get("X-Token") == "good"
		}}
	foreign := strings.Replace(sampleRequest, "Upgrade:", "Origin: https://evil.example\r\nX-Token: good\r\nUpgrade:",
		1)
	own := strings.Replace(sampleRequest, "Upgrade:", "Origin: https://example.com\r\nUpgrade:", 1)
	for _, c := range []struct {
		name, request string
		asks, allowed bool
	}{
		{"foreign", foreign, true, true},
		{"own", own, true, false},
		{"none", sampleRequest, true, false},
		{"not a handshake", strings.Replace(foreign, "Version: 13", "Version: 12", 1), false, false},
	} {
		judge := func(way string, ok bool) {
			t.Helper()
			if ok != c.allowed || (asked != nil) != c.asks {
				t.Errorf("%s, %s: allowed %v, want %v; CheckOrigin was asked: %v, want %v", c.name, way, ok, c.allowed,
					asked != nil, c.asks)
			}
			if asked != nil && (asked.Host != "example.com" || asked.URL.Path != "/chat") {
				t.Errorf("%s, %s: CheckOrigin saw %v", c.name, way, asked)
			}
			asked = nil
		}
		_, _, err := AppendUpgrade(nil, []byte(c.request), o)
		judge("AppendUpgrade", err == nil)

		w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
		p := w.client(c.request)
		w.RunFor(time.Second)
		judge("Handler", strings.HasPrefix(string(p.Received()), "HTTP/1.1 101 "))
		w.finish(p)

		rec := httptest.NewRecorder()
		_, err = Accept(rec, requestOf(t, c.request), o) // a recorder cannot be hijacked: what is allowed fails later
		judge("Accept", err != nil && rec.Code == http.StatusInternalServerError)
	}
}

func TestCheckOriginBesidePatterns(t *testing.T) {
	o := &Options{OriginPatterns: []string{"*"}, CheckOrigin: func(*http.Request) bool { return true }}
	if _, err := o.settings(); err == nil || !strings.Contains(err.Error(), "CheckOrigin") {
		t.Errorf("both ways of deciding were accepted: %v", err)
	}
}
