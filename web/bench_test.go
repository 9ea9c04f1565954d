package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

const (
	smallRequest   = "GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n"
	browserRequest = "GET /static/app.js?v=3 HTTP/1.1\r\nHost: www.example.org\r\n" +
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0\r\n" +
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n" +
		"Accept-Language: en-GB,en;q=0.7,de;q=0.3\r\nAccept-Encoding: gzip, deflate, br\r\n" +
		"Connection: keep-alive\r\nCookie: session=0123456789abcdef; theme=dark\r\n" +
		"Referer: https://www.example.org/\r\nUpgrade-Insecure-Requests: 1\r\n\r\n"
)

// BenchmarkServe is a whole request and answer without a kernel: one connection of a driver that
// has the next request ready as soon as an answer was sent. The handler runs on the loop, unless
// the name says otherwise.
func BenchmarkServe(b *testing.B) {
	for _, d := range []Dispatch{DispatchInline, DispatchPool, DispatchAuto} {
		behind := ""
		if d != DispatchInline {
			behind = "-" + d.String()
		}
		b.Run("small"+behind, func(b *testing.B) { benchmarkServe(b, d, smallRequest) })
		b.Run("browser"+behind, func(b *testing.B) { benchmarkServe(b, d, browserRequest) })
		b.Run("browsers"+behind, func(b *testing.B) { // of two kinds, so that no fields come twice in a row
			m := newMemory(browserRequest+strings.ReplaceAll(browserRequest, "130", "130.1"), 1, b.N/2)
			m.depth = 2
			m.serve(b, &Server{Dispatch: d, Handler: http.HandlerFunc(hello)})
		})
	}
}

// BenchmarkPipeline is the cost of each of 16 requests that come at once, for a handler behind a
// mux that sets a field.
func BenchmarkPipeline(b *testing.B) {
	mux := http.NewServeMux()
	mux.HandleFunc("/plaintext", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		hello(w, r)
	})
	for _, depth := range []int{1, 16} {
		for _, d := range []Dispatch{DispatchInline, DispatchPool, DispatchAuto} {
			b.Run(fmt.Sprint(d, "/", depth), func(b *testing.B) {
				m := newMemory("GET /plaintext HTTP/1.1\r\nHost: localhost:8080\r\n\r\n", depth, b.N)
				m.serve(b, &Server{Dispatch: d, Handler: mux})
			})
			b.Run(fmt.Sprint(d, "-reuse/", depth), func(b *testing.B) {
				m := newMemory("GET /plaintext HTTP/1.1\r\nHost: localhost:8080\r\n\r\n", depth, b.N)
				m.serve(b, &Server{Dispatch: d, Handler: mux, ReuseRequests: true})
			})
		}
	}
}

func hello(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "Hello, World!") }

func benchmarkServe(b *testing.B, d Dispatch, request string) {
	newMemory(request, 1, b.N).serve(b, &Server{Dispatch: d, Handler: http.HandlerFunc(hello)})
}

// newMemory asks n times, depth at once.
func newMemory(request string, depth, n int) *memory {
	return &memory{
		request: []byte(strings.Repeat(request, depth)), depth: depth, left: (n + depth - 1) / depth,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

func (m *memory) serve(b *testing.B, s *Server) {
	engine, err := myriad.Start(myriad.Config{Loops: 1, System: memorySystem{driver.Process{}, m}})
	if err != nil {
		b.Fatal(err)
	}
	s.Engine = engine
	b.ReportAllocs()
	if _, err := s.Listen("tcp", "memory"); err != nil {
		b.Fatal(err)
	}
	<-m.done
	b.StopTimer()
	s.Close()
	engine.Shutdown(context.Background())
}

// memory is a system and its one driver, with one connection that asks for the same again and
// again.
type memory struct {
	request []byte
	depth   int // requests in it
	left    int // times to ask
	wake    chan struct{}
	done    chan struct{}

	waiting                     int // for so many answers
	sent                        []byte
	accepted, answered, closing bool
	last                        []driver.ID
}

var memoryConn, memoryListener = driver.MakeID(0, 1, 1), driver.MakeID(0, 2, 1)

type memorySystem struct {
	driver.Process
	m *memory
}

func (memorySystem) Name() string                                        { return "memory" }
func (s memorySystem) Open(uint8, driver.Options) (driver.Driver, error) { return s.m, nil }
func (memorySystem) Import(net.Conn) (driver.Socket, error)              { return nil, driver.ErrUnsupported }
func (memorySystem) Duplicate(*os.File) (driver.File, error)             { return nil, driver.ErrUnsupported }
func (memorySystem) Listen(context.Context, string, string) (driver.Listener, error) {
	return memoryAddress{}, nil
}

func (m *memory) Listen(driver.Listener) (driver.ID, error) {
	m.accepted = true
	return memoryListener, nil
}
func (m *memory) Attach(driver.Socket) (driver.ID, error) { m.answered = true; return memoryConn, nil }
func (m *memory) Dial(net.Addr) (driver.ID, error)        { return 0, driver.ErrUnsupported }
func (m *memory) StopAccept(driver.ID)                    {}
func (m *memory) ResumeAccept(driver.ID)                  {}
func (m *memory) CloseListener(id driver.ID)              { m.last = append(m.last, id) }
func (m *memory) CloseWrite(driver.ID)                    {}
func (m *memory) Pause(driver.ID)                         {}
func (m *memory) Resume(driver.ID)                        {}
func (m *memory) Close(id driver.ID)                      { m.last = append(m.last, id) }
func (m *memory) Abort(id driver.ID)                      { m.last = append(m.last, id) }
func (m *memory) Detach(driver.ID) error                  { return driver.ErrUnsupported }
func (m *memory) Capabilities() driver.Capabilities       { return driver.Capabilities{} }
func (m *memory) Shutdown() error                         { return nil }
func (m *memory) Wake()                                   { trySend(m.wake) }
func (m *memory) SendFile(driver.ID, driver.File, int64, int64) (int64, error) {
	return 0, driver.ErrUnsupported
}

func trySend(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (m *memory) Send(_ driver.ID, c *buf.Chain) int64 {
	if m.waiting > 1 {
		m.sent = c.AppendTo(m.sent[:0])
		m.waiting -= bytes.Count(m.sent, []byte("HTTP/1.1 200"))
	} else {
		m.waiting = 0
	}
	c.Release()
	m.answered = m.waiting == 0
	return 0
}

func (m *memory) Poll(wait time.Duration, ev driver.Events) (int, error) {
	for i, last := 0, m.last; i < len(last); i++ {
		m.last = m.last[1:]
		ev.Closed(last[i], nil)
		return 1, nil
	}
	switch {
	case m.accepted:
		m.accepted = false
		ev.Accepted(memoryListener, memorySocket{})
		return 1, nil
	case m.answered && m.left > 0:
		m.answered = false
		m.left--
		m.waiting = m.depth
		ev.Received(memoryConn, m.request[:len(m.request):len(m.request)])
		return 1, nil
	case m.answered && !m.closing:
		m.closing = true
		close(m.done)
	}
	if wait != 0 {
		<-m.wake
	}
	return 0, nil
}

type memoryAddress struct{}

func (memoryAddress) Addr() net.Addr          { return &net.UnixAddr{Name: "memory", Net: "unix"} }
func (memoryAddress) File() (*os.File, error) { return nil, driver.ErrUnsupported }
func (memoryAddress) Refuse()                 {}
func (memoryAddress) Unshare()                {}
func (memoryAddress) Close() error            { return nil }

type memorySocket struct{}

func (memorySocket) Local() driver.Addr      { return driver.UnixAddr }
func (memorySocket) Remote() driver.Addr     { return driver.AddrFrom4([4]byte{127, 0, 0, 1}, 12345) }
func (memorySocket) Conn() (net.Conn, error) { return nil, driver.ErrUnsupported }
func (memorySocket) Close() error            { return nil }
