package handover_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/handover"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
	"github.com/myriad-go/myriad/workers"
)

// These tests move connections of HTTP and WebSocket that are not at rest at first.

const patience = 30 * time.Second

// A site is a program with a web server. It answers with its name; /wait waits for released. /ws is
// a WebSocket that answers with the name, and how many messages have come.
type site struct {
	*handover.Program
	name     string
	web      *web.Server
	entered  chan struct{} // by requests for /wait
	released chan struct{}
}

func newSite(t *testing.T, name, driver string) *site {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 2, Driver: driver})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{name: name, entered: make(chan struct{}, 16), released: make(chan struct{})}
	o := &websocket.Options{
		Workers: workers.New(workers.Config{}),
		OnOpen:  func(c *websocket.Conn) { c.SetValue(0) },
		OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) {
			n := c.Value().(int) + 1
			c.SetValue(n)
			_ = c.Write(op, fmt.Appendf(nil, "%s %d %s", name, n, p))
		},
		FreezeValue: func(c *websocket.Conn, dst []byte) ([]byte, error) { return fmt.Append(dst, c.Value()), nil },
		ThawValue: func(c *websocket.Conn, state []byte) error {
			n, err := strconv.Atoi(string(state))
			c.SetValue(n)
			return err
		},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	mux.HandleFunc("/wait", func(w http.ResponseWriter, _ *http.Request) {
		s.entered <- struct{}{}
		<-s.released
		fmt.Fprint(w, name)
	})
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		if _, err := websocket.Accept(w, r, o); err != nil {
			t.Error(err)
		}
	})
	s.web = &web.Server{Engine: e, Handler: mux, Protocols: new(http.Protocols)}
	s.web.Protocols.SetHTTP1(true)
	s.web.Protocols.SetHTTP2(true)
	s.web.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() {
		over, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.web.Shutdown(over)
		_ = e.Shutdown(over)
		_ = o.Workers.Close(context.Background())
	})
	pages, err := s.web.Thawer()
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := o.Thawer()
	if err != nil {
		t.Fatal(err)
	}
	s.Program = &handover.Program{Engine: e, Servers: map[string]myriad.Thawer{"pages": pages, "sockets": sockets},
		RestWait: -1, Timeout: patience}
	return s
}

func (s *site) listen(t *testing.T, addr string) string {
	t.Helper()
	ln, err := s.web.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String()
}

// giveTo moves all that is at rest to next, which listens by relisten.
func (s *site) giveTo(t *testing.T, next *site, relisten func()) *handover.Given {
	t.Helper()
	path := t.TempDir() + "/s"
	l, err := handover.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := handover.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		given *handover.Given
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		given, err := handover.Give(mine, s.Program)
		done <- outcome{given, err}
	}()
	taken, err := handover.Take(theirs, next.Program)
	if err != nil {
		t.Fatal(err)
	}
	relisten()
	if err := taken.GoOn(); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.err != nil {
		t.Fatal(got.err)
	}
	return got.given
}

// A client is one connection that is read by hand.
type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return &client{nc, bufio.NewReader(nc)}
}

func (c *client) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// answer reads one answer of HTTP.
func (c *client) answer(t *testing.T) (text string, last bool) {
	t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body), resp.Close
}

func (c *client) get(t *testing.T, path string) string {
	t.Helper()
	c.send(t, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
	text, _ := c.answer(t)
	return text
}

// becomes asks until the answer is want.
func (c *client) becomes(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(patience); c.get(t, "/") != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the connection does not come to %q", want)
		}
	}
}

func (c *client) upgrade(t *testing.T) {
	t.Helper()
	c.send(t, "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
}

// frame is a client's text frame, with a mask of zeros.
func frame(text string) string {
	return string([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}) + text
}

// hears reads a frame of at most 125 bytes.
func (c *client) hears(t *testing.T) (op byte, p []byte) {
	t.Helper()
	var head [2]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		t.Fatal(err)
	}
	p = make([]byte, head[1])
	if _, err := io.ReadFull(c.r, p); err != nil {
		t.Fatal(err)
	}
	return head[0] & 15, p
}

func (c *client) hearsText(t *testing.T, want string) {
	t.Helper()
	if _, p := c.hears(t); string(p) != want {
		t.Fatalf("%q, want %q", p, want)
	}
}

func (s *site) enters(t *testing.T) {
	t.Helper()
	select {
	case <-s.entered:
	case <-time.After(patience):
		t.Fatal("no request comes to /wait")
	}
}

// unrest is a site with an idle connection, a request that waits and half a message of a WebSocket.
func unrest(t *testing.T, driver string) (old, next *site, addr string, idle, asking, talking *client) {
	t.Helper()
	old, next = newSite(t, "old", driver), newSite(t, "new", driver)
	addr = old.listen(t, "127.0.0.1:0")
	idle, asking, talking = dial(t, addr), dial(t, addr), dial(t, addr)
	if got := idle.get(t, "/"); got != "old" {
		t.Fatal(got)
	}
	talking.upgrade(t)
	talking.send(t, frame("a"))
	talking.hearsText(t, "old 1 a")
	half := frame("half")
	talking.send(t, half[:len(half)-1])
	asking.send(t, "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
	old.enters(t)
	// Half a frame is there when the connection is not at rest.
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		f, err := old.Engine.Freeze(0, old.Servers["pages"], old.Servers["sockets"])
		if err != nil {
			t.Fatal(err)
		}
		f.GoOn()
		if f.Left() == 2 {
			return old, next, addr, idle, asking, talking
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections are not at rest", f.Left())
		}
	}
}

// What is not at rest goes on in the old process, and follows when it comes to rest.
func TestRestFollows(t *testing.T) {
	for _, driver := range []string{"epoll", "std"} {
		t.Run(driver, func(t *testing.T) {
			old, next, addr, idle, asking, talking := unrest(t, driver)
			given := old.giveTo(t, next, func() { next.listen(t, "127.0.0.1:0") })
			if given.Moved != 1 || given.Left != 2 {
				t.Errorf("%+v", given.Result)
			}
			if got := idle.get(t, "/"); got != "new" {
				t.Errorf("the idle connection is answered by %q", got)
			}
			if got := dial(t, addr).get(t, "/"); got != "new" {
				t.Errorf("a new one is answered by %q", got)
			}
			done := make(chan handover.Result, 1)
			go func() {
				r, err := given.MoveRest(context.Background())
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			talking.send(t, "f")
			talking.hearsText(t, "old 2 half")
			for n, house := 3, "old"; house == "old"; n++ {
				talking.send(t, frame("a"))
				_, p := talking.hears(t)
				house = string(p[:3])
				if want := fmt.Sprintf("%s %d a", house, n); string(p) != want {
					t.Fatalf("%q, want %q", p, want)
				}
			}
			select {
			case r := <-done:
				t.Fatalf("%+v, while a request runs", r)
			default:
			}
			close(old.released)
			if got, last := asking.answer(t); got != "old" || last {
				t.Errorf("the request is answered by %q, last %v", got, last)
			}
			asking.becomes(t, "new")
			if r := <-done; r.Moved != 3 || r.Left != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// When the wait is over, Shutdown ends the other connections: the request is answered, and the
// WebSocket gets 1001.
func TestRestEnds(t *testing.T) {
	old, next, _, idle, asking, talking := unrest(t, "")
	given := old.giveTo(t, next, func() { next.listen(t, "127.0.0.1:0") })
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := given.MoveRest(over); err != nil || r.Moved != 1 || r.Left != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- errors.Join(old.web.Shutdown(context.Background()), old.Engine.Shutdown(context.Background()))
	}()
	close(old.released)
	if got, _ := asking.answer(t); got != "old" {
		t.Errorf("the request is answered by %q", got)
	}
	if _, err := asking.r.ReadByte(); err != io.EOF {
		t.Errorf("behind its answer: %v", err)
	}
	asking.Close()
	if op, p := talking.hears(t); op != 8 || len(p) < 2 ||
		websocket.StatusCode(binary.BigEndian.Uint16(p)) != websocket.StatusGoingAway {
		t.Errorf("the WebSocket hears %x % x", op, p)
	}
	talking.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := idle.get(t, "/"); got != "new" {
		t.Errorf("the idle connection is answered by %q", got)
	}
}

// If the new process ends meanwhile, connections that have not moved go on in the old one.
func TestRestStaysIfTheNewProcessEnds(t *testing.T) {
	old, next, _, _, asking, _ := unrest(t, "")
	given := old.giveTo(t, next, func() {})
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = next.Engine.Shutdown(over)
	close(old.released)
	if got, _ := asking.answer(t); got != "old" {
		t.Errorf("the request is answered by %q", got)
	}
	if r, err := given.MoveRest(context.Background()); err == nil || r.Moved != 1 || r.Left != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if got := asking.get(t, "/"); got != "old" {
		t.Errorf("the next one is answered by %q", got)
	}
}

// HTTP/2 gets a GOAWAY when the others have moved, and HTTP/1 over TLS closes behind its answers.
// What runs is answered, and clients go on with the new process.
func TestOthersEndInOrder(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	for name, tc := range map[string]struct {
		scheme    string
		protocols func(p *http.Protocols)
	}{
		"HTTP/2":          {"http", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }},
		"HTTP/2 and TLS":  {"https", func(p *http.Protocols) { p.SetHTTP2(true) }},
		"HTTP/1 over TLS": {"https", func(p *http.Protocols) { p.SetHTTP1(true) }},
	} {
		t.Run(name, func(t *testing.T) {
			old, next := newSite(t, "old", ""), newSite(t, "new", "")
			serve := func(s *site, addr string) string {
				if tc.scheme == "http" {
					return s.listen(t, addr)
				}
				s.web.TLSConfig = &tls.Config{Certificates: certified.TLS.Certificates}
				ln, err := s.web.ListenTLS("tcp", addr, "", "")
				if err != nil {
					t.Fatal(err)
				}
				return ln.Addr().String()
			}
			addr := serve(old, "127.0.0.1:0")
			transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{RootCAs: roots}}
			tc.protocols(transport.Protocols)
			defer transport.CloseIdleConnections()
			get := func(path string) string {
				c := &http.Client{Transport: transport, Timeout: patience}
				resp, err := c.Get(tc.scheme + "://" + addr + path)
				if err != nil {
					t.Error(err)
					return ""
				}
				defer resp.Body.Close()
				p, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Error(err)
				}
				return string(p)
			}
			waits := make(chan string, 1)
			go func() { waits <- get("/wait") }()
			old.enters(t)
			get("/") // over TLS a second connection, which is idle then
			given := old.giveTo(t, next, func() { serve(next, "127.0.0.1:0") })
			done := make(chan error, 1)
			go func() {
				_, err := given.MoveRest(context.Background())
				done <- err
			}()
			for end := time.Now().Add(patience); get("/") != "new"; time.Sleep(time.Millisecond) {
				if t.Failed() || time.Now().After(end) {
					t.Fatal("the client does not come to the new process")
				}
			}
			close(old.released)
			if got := <-waits; got != "old" {
				t.Errorf("the request that ran is answered by %q", got)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(patience); old.Engine.Stats().Conns > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d connections are left", old.Engine.Stats().Conns)
				}
			}
		})
	}
}

// A program may be upgraded again while an earlier process waits for its last requests.
func TestUpgradeBesideAWait(t *testing.T) {
	old, next, addr, idle, asking, _ := unrest(t, "")
	third := newSite(t, "third", "")
	first := old.giveTo(t, next, func() { next.listen(t, "127.0.0.1:0") })
	done := make(chan error, 1)
	over, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, err := first.MoveRest(over)
		done <- err
	}()
	second := next.giveTo(t, third, func() { third.listen(t, "127.0.0.1:0") })
	if got := idle.get(t, "/"); got != "third" {
		t.Errorf("the idle connection is answered by %q", got)
	}
	if got := dial(t, addr).get(t, "/"); got != "third" {
		t.Errorf("a new one is answered by %q", got)
	}
	close(old.released)
	if got, _ := asking.answer(t); got != "old" {
		t.Errorf("the request that ran is answered by %q", got)
	}
	asking.becomes(t, "new") // it follows to the process that its own one knows
	if r, err := second.MoveRest(context.Background()); err != nil || r.Left != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	asking.becomes(t, "third") // and on from there
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The program is upgraded again and again under load: clients ask on kept and on new connections,
// and by WebSockets. Every question is answered once.
func TestHandOversUnderLoad(t *testing.T) {
	for _, driver := range []string{"epoll", "std"} {
		t.Run(driver, func(t *testing.T) { handOversUnderLoad(t, driver, soak.Size(t, 10, 100)) })
	}
}

func handOversUnderLoad(t *testing.T, driver string, upgrades int) {
	now := newSite(t, "0", driver)
	addr := now.listen(t, "127.0.0.1:0")
	over := make(chan struct{})
	running := func() bool {
		select {
		case <-over:
			return false
		default:
			return !t.Failed()
		}
	}
	var clients sync.WaitGroup
	run := func(f func() error) {
		clients.Go(func() {
			for running() {
				if err := f(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		kept := dial(t, addr)
		run(func() error {
			_ = kept.SetDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(kept, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
				return fmt.Errorf("a kept connection: %w", err)
			}
			resp, err := http.ReadResponse(kept.r, nil)
			if err != nil {
				return fmt.Errorf("a kept connection: %w", err)
			}
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		})
		run(func() error {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				return fmt.Errorf("a new connection: %w", err)
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(patience))
			if _, err = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
				return fmt.Errorf("a new connection: %w", err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
			if err != nil {
				return fmt.Errorf("a new connection: %w", err)
			}
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		})
		talking := dial(t, addr)
		talking.upgrade(t)
		n := 0
		run(func() error {
			_ = talking.SetDeadline(time.Now().Add(patience))
			n++
			if _, err := io.WriteString(talking, frame("a")); err != nil {
				return fmt.Errorf("a WebSocket: %w", err)
			}
			var head [2]byte
			if _, err := io.ReadFull(talking.r, head[:]); err != nil {
				return fmt.Errorf("a WebSocket: %w", err)
			}
			p := make([]byte, head[1])
			if _, err := io.ReadFull(talking.r, p); err != nil {
				return fmt.Errorf("a WebSocket: %w", err)
			}
			if _, count, _ := strings.Cut(string(p), " "); count != fmt.Sprintf("%d a", n) {
				return fmt.Errorf("a WebSocket: message %d is answered by %q", n, p)
			}
			return nil
		})
	}
	for i := 1; i <= upgrades && !t.Failed(); i++ {
		next := newSite(t, strconv.Itoa(i), driver)
		given := now.giveTo(t, next, func() { next.listen(t, "127.0.0.1:0") })
		if r, err := given.MoveRest(context.Background()); err != nil || r.Left != 0 {
			t.Errorf("upgrade %d: %+v, %v", i, r, err)
		}
		if err := errors.Join(now.web.Shutdown(context.Background()),
			now.Engine.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
		now = next
	}
	close(over)
	clients.Wait()
}
