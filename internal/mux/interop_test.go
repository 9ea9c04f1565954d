//lint:file-ignore SA1019 x/net is deprecated for programs; here it is the peer, and its knobs are needed

package mux

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/flow"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// These tests run over real sockets, with x/net's HTTP/2 at the other end.

// An echoStream answers a request with its body and trailers, on a goroutine as a handler does; at
// a client it is what reads the response.
type echoStream struct {
	Stream
	in       flow.Inbox
	head     chan h2.Head
	room     chan struct{}
	ended    chan error
	trailers []hpack.Field
}

func newEcho() *echoStream {
	s := &echoStream{head: make(chan h2.Head, 9), room: make(chan struct{}, 1), ended: make(chan error, 1)}
	s.in.Reset(64<<10, true)
	s.Init(s)
	return s
}

func (s *echoStream) Head(h *h2.Head, last bool) h2.Code {
	if last {
		s.in.Put(nil, true)
	}
	copied := *h
	copied.Fields = append([]hpack.Field(nil), h.Fields...)
	s.head <- copied
	return h2.NoError
}
func (s *echoStream) Data(p []byte, last bool) { s.in.Put(p, last) }
func (s *echoStream) Trailers(fields []hpack.Field) {
	s.trailers = append(s.trailers, fields...)
	s.in.Put(nil, true)
}
func (s *echoStream) Credit() int { return s.in.Credit() }
func (s *echoStream) Room() {
	select {
	case s.room <- struct{}{}:
	default:
	}
}
func (s *echoStream) Ended(_ h2.Code, err error) {
	if err != nil {
		s.in.Fail(err)
	}
	s.ended <- err
	s.Room()
	close(s.head)
}

// Read implements io.Reader.
func (s *echoStream) Read(p []byte) (int, error) {
	for parker := (driver.Process{}).NewParker(); ; {
		n, tell, err := s.in.Read(p)
		if tell {
			s.Notify()
		}
		if n > 0 || err != nil {
			return n, err
		}
		s.in.Wait(parker, nil)
	}
}

// write is Put that waits.
func (s *echoStream) write(head, p []byte, last bool) error {
	for {
		err := s.Put(head, p, last)
		if !errors.Is(err, flow.ErrFull) {
			return err
		}
		<-s.room
	}
}

// serve answers one request.
func (s *echoStream) serve() {
	defer s.Release()
	h := <-s.head
	head := pairs(":status", "200", "x-path", h.Path, "x-method", h.Method)
	p := make([]byte, 10000)
	for {
		n, err := s.Read(p)
		if n > 0 || head != nil {
			if err := s.write(head, p[:n], false); err != nil {
				return
			}
			head = nil
		}
		if err == io.EOF {
			_ = s.End(pairs("x-done", "yes"))
			return
		}
		if err != nil {
			return
		}
	}
}

// An echoConn is the server's end.
type echoConn struct {
	Conn
	wg   *sync.WaitGroup
	gone chan error
}

func (h *echoConn) Accept(uint32) *Stream {
	s := newEcho()
	h.wg.Go(s.serve)
	return &s.Stream
}
func (h *echoConn) Settings()              {}
func (h *echoConn) GoAway(uint32, h2.Code) {}
func (h *echoConn) Idle()                  {}
func (h *echoConn) Gone(err error) {
	if h.gone != nil {
		h.gone <- err
	}
}

type acceptor struct {
	cfg *Config
	wg  *sync.WaitGroup
}

func (a *acceptor) Opened(c *myriad.Conn) {
	h := &echoConn{wg: a.wg}
	h.Init(a.cfg, h)
	c.SetHandler(h, nil)
}
func (*acceptor) Received(*myriad.Conn, []byte) {}
func (*acceptor) Closed(*myriad.Conn, error)    {}

func startEngine(t *testing.T) *myriad.Engine {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 2, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return e
}

func TestXNetClient(t *testing.T) {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	e := startEngine(t)
	cfg := &Config{Now: time.Now}
	cfg.Take(nil)
	ln, err := e.Listen("tcp", "127.0.0.1:0", &acceptor{cfg, &handlers})
	if err != nil {
		t.Fatal(err)
	}
	tr := &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, addr string,
		_ *tls.Config) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, ln.Addr().String())
	}}
	defer tr.CloseIdleConnections()
	var clients sync.WaitGroup
	for i := range 60 {
		clients.Go(func() {
			body := bytes.Repeat([]byte{byte('a' + i%26)}, i*i*100)
			resp, err := tr.RoundTrip(mustRequest("POST", fmt.Sprintf("http://host/%d", i), bytes.NewReader(body)))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Equal(got, body) || resp.Header.Get("X-Path") != fmt.Sprintf("/%d", i) ||
				resp.Trailer.Get("X-Done") != "yes" {
				t.Errorf("%d: %d of %d bytes, %v, %v %v", i, len(got), len(body), err, resp.Header, resp.Trailer)
			}
		})
	}
	clients.Wait()
}

func mustRequest(method, url string, body io.Reader) *http.Request {
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		panic(err)
	}
	return r
}

// serveXNet has x/net's server serve one connection; its handler echoes.
func serveXNet(t *testing.T) (net.Listener, chan struct{}) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		new(http2.Server).ServeConn(nc, &http2.ServeConnOpts{Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Trailer", "X-Sum")
				w.Header().Set("X-Path", r.URL.Path)
				n, err := io.Copy(w, r.Body)
				w.Header().Set("X-Sum", fmt.Sprint(n, err, r.Trailer))
			})})
	}()
	return ln, served
}

func TestXNetServer(t *testing.T) {
	ln, served := serveXNet(t)
	defer ln.Close()
	e := startEngine(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	h := &echoConn{wg: &wg, gone: make(chan error, 1)}
	cfg := &Config{Client: true, Now: time.Now}
	cfg.Take(nil)
	h.Init(cfg, h)
	c, err := e.Dial(context.Background(), "tcp", ln.Addr().String(), h)
	if err != nil {
		t.Fatal(err)
	}
	var requests sync.WaitGroup
	for i := range 50 {
		requests.Go(func() {
			s := newEcho()
			opened := make(chan error)
			if err := c.Loop().Do(func() { opened <- h.Open(&s.Stream) }); err != nil {
				t.Error(err)
				return
			}
			if err := <-opened; err != nil {
				t.Error(err)
				return
			}
			defer s.Release()
			body := strings.Repeat("x", i*i*100)
			head := pairs(":method", "POST", ":scheme", "http", ":authority", "h", ":path", fmt.Sprintf("/%d", i))
			go func() {
				for p := []byte(body); len(p) > 0 || head != nil; {
					n := min(len(p), 5000)
					if err := s.write(head, p[:n], n == len(p)); err != nil {
						t.Errorf("write: %v", err)
					}
					head, p = nil, p[n:]
				}
			}()
			resp := <-s.head
			got, err := io.ReadAll(s)
			if err != nil || string(got) != body || resp.Status != 200 {
				t.Errorf("%d: status %d, %d of %d bytes, %v", i, resp.Status, len(got), len(body), err)
			}
			want := fmt.Sprintf("[{x-sum %d <nil> map[] false}]", len(body))
			if err := <-s.ended; err != nil || fmt.Sprint(s.trailers) != want {
				t.Errorf("%d: %v, trailers %v, want %s", i, err, s.trailers, want)
			}
		})
	}
	requests.Wait()
	if err := c.Loop().Do(h.Shutdown); err != nil {
		t.Fatal(err)
	}
	if err := <-h.gone; err != nil {
		t.Errorf("the connection has ended by %v", err)
	}
	<-served
}
