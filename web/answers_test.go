package web

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A misuse is logged with its place, and only a first WriteHeader is judged.
func TestWriteHeaderMisuse(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/twice" {
			w.WriteHeader(201)
			w.WriteHeader(0)
			return
		}
		defer func() {
			fmt.Fprint(w, recover())
		}()
		w.WriteHeader(77)
	})})
	if got := raw(t, f, get+end, true); !strings.HasSuffix(got, "\r\n\r\ninvalid WriteHeader code 77") {
		t.Errorf("got %q", got)
	}
	if got := raw(t, f, asks("/twice", ""), true); !strings.HasPrefix(got, "HTTP/1.1 201 Created\r\n") {
		t.Errorf("got %q", got)
	}
	if got := f.log.String(); !strings.Contains(got, "http: superfluous response.WriteHeader call from ") ||
		!strings.Contains(got, "answers_test.go:") {
		t.Errorf("log: %q", got)
	}
}

// The files of a multipart form are gone when the handler is.
func TestMultipartFilesAreRemoved(t *testing.T) {
	names := make(chan string, 1)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
			return
		}
		file, _, err := r.FormFile("f")
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		names <- file.(*os.File).Name()
	})})
	var body strings.Builder
	m := multipart.NewWriter(&body)
	part, _ := m.CreateFormFile("f", "f.txt")
	io.Copy(part, io.LimitReader(zeros{}, 11<<20))
	m.Close()
	r, err := client(t).Post(f.url("/"), m.FormDataContentType(), strings.NewReader(body.String()))
	mustBody(t, r, err)
	if _, err := os.Stat(<-names); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

// Files go out through ReadFrom, whatever stands before and behind them.
func TestReadFrom(t *testing.T) {
	content := []byte(strings.Repeat("0123456789abcdef", 20<<10))
	name := filepath.Join(t.TempDir(), "f.bin")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	handlers := map[string]func(w http.ResponseWriter, r *http.Request, f *os.File){
		"/serve": func(w http.ResponseWriter, r *http.Request, f *os.File) { http.ServeFile(w, r, name) },
		"/copy": func(w http.ResponseWriter, r *http.Request, f *os.File) {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			n, err := io.Copy(w, f)
			if n != int64(len(content)) || err != nil {
				t.Errorf("Copy: %d, %v", n, err)
			}
			if at, _ := f.Seek(0, io.SeekCurrent); at != n {
				t.Errorf("the file is at %d", at)
			}
		},
		"/chunked": func(w http.ResponseWriter, r *http.Request, f *os.File) { io.Copy(w, f) },
		"/parts": func(w http.ResponseWriter, r *http.Request, f *os.File) {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			w.Write(content[:3])
			f.Seek(3, io.SeekStart)
			io.CopyN(w, f, 100_000)
			w.Write(content[100_003:100_007])
			f.Seek(100_007, io.SeekStart)
			io.Copy(w, f)
		},
		"/toomuch": func(w http.ResponseWriter, r *http.Request, f *os.File) {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			io.Copy(w, f)
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrContentLength) {
				t.Errorf("Write beyond the length: %v", err)
			}
		},
	}
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		s := serve(t, &Server{Dispatch: d, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f, err := os.Open(name)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			handlers[r.URL.Path](w, r, f)
		})})
		c := client(t)
		for path := range handlers {
			if d == DispatchInline && path == "/chunked" {
				continue // more than a queue, in memory
			}
			r, err := c.Get(s.url(path))
			if got := mustBody(t, r, err); got != string(content) {
				t.Errorf("%s: %d bytes", path, len(got))
			}
		}
		r, err := c.Head(s.url("/serve"))
		if mustBody(t, r, err); r.ContentLength != int64(len(content)) {
			t.Errorf("HEAD: %d", r.ContentLength)
		}
		req, _ := http.NewRequest("GET", s.url("/serve"), nil)
		req.Header.Set("Range", "bytes=5-100004")
		r, err = c.Do(req)
		if got := mustBody(t, r, err); got != string(content[5:100_005]) || r.StatusCode != 206 {
			t.Errorf("range: %d, %d bytes", r.StatusCode, len(got))
		}
	})
}

// A listener is closed once, and ConnState knows a connection before Serve goes on.
func TestServeAndItsListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &oneConn{Listener: inner}
	var known atomic.Int32
	f := serve(t, &Server{Handler: http.NotFoundHandler(), ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			known.Add(1)
		}
	}})
	c, err := net.Dial("tcp", inner.Addr().String()) // the backlog takes it
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := f.Serve(l); err != io.EOF || known.Load() != 1 {
		t.Errorf("Serve: %v, %d connections known", err, known.Load())
	}
	if n := l.closed.Load(); n != 1 {
		t.Errorf("closed %d times", n)
	}
}

type oneConn struct {
	net.Listener
	given, closed atomic.Int32
}

func (l *oneConn) Accept() (net.Conn, error) {
	if l.given.Add(1) > 1 {
		return nil, io.EOF
	}
	return l.Listener.Accept()
}

func (l *oneConn) Close() error {
	l.closed.Add(1)
	return l.Listener.Close()
}

// A connection that says what its TLS negotiated shows it to handlers; one whose address takes its
// time delays no other.
func TestForeignConns(t *testing.T) {
	l := &foreign{conns: make(chan net.Conn), done: make(chan struct{})}
	f := serve(t, &Server{ConnState: func(net.Conn, http.ConnState) {},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name := "plain"
			if r.TLS != nil {
				name = r.TLS.ServerName
			}
			fmt.Fprint(w, name, " ", r.RemoteAddr)
		})})
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()
	slow := make(chan net.Addr)
	ask := func(addr func() net.Addr) net.Conn {
		ours, theirs := net.Pipe()
		l.conns <- &foreignConn{theirs, addr}
		go io.WriteString(ours, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		return ours
	}
	answer := func(c net.Conn) string {
		defer c.Close()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		return mustBody(t, resp, err)
	}
	first := ask(sync.OnceValue(func() net.Addr { return <-slow }))
	second := ask(func() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 2} })
	if got := answer(second); got != "inner.example 10.0.0.2:2" {
		t.Errorf("got %q", got)
	}
	slow <- &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	if got := answer(first); got != "inner.example 10.0.0.1:1" {
		t.Errorf("got %q", got)
	}
	l.Close()
	if err := <-served; err != net.ErrClosed {
		t.Errorf("Serve: %v", err)
	}
}

type foreign struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *foreign) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *foreign) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *foreign) Addr() net.Addr { return &net.UnixAddr{Name: "foreign", Net: "unix"} }

type foreignConn struct {
	net.Conn
	addr func() net.Addr
}

func (c *foreignConn) RemoteAddr() net.Addr { return c.addr() }
func (c *foreignConn) ConnectionState() tls.ConnectionState {
	return tls.ConnectionState{ServerName: "inner.example"}
}

// The contexts that ConnContext and handlers see know the server and the address.
func TestContextValues(t *testing.T) {
	type key struct{}
	f := serve(t, &Server{
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), key{},
				"base")
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if _, ok := ctx.Value(http.ServerContextKey).(*http.Server); !ok {
				t.Error("ConnContext: no server")
			}
			return context.WithValue(ctx, key{}, ctx.Value(key{}).(string)+"+conn")
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s := r.Context().Value(http.ServerContextKey).(*http.Server)
			a := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
			fmt.Fprint(w, s.Handler != nil, " ", a, " ", r.Context().Value(key{}))
		})})
	r, err := client(t).Get(f.url("/"))
	if got := mustBody(t, r, err); got != "true "+f.addr+" base+conn" {
		t.Errorf("got %q", got)
	}
}

// A body without a declared length that a handler leaves is read to its end when that is near, so
// that the connection stays.
func TestLeftChunkedBody(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.ReadFull(r.Body, make([]byte, 3))
	})})
	c := dial(t, f)
	r := bufio.NewReader(c)
	for range 20 {
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
		time.Sleep(time.Millisecond)
		io.WriteString(c, "5\r\ndefgh\r\n0\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if mustBody(t, resp, err); resp.Close {
			t.Fatal("the connection is to be closed")
		}
	}
}

// Compressed answers go through untouched, and flushed pieces of them as they come.
func TestGzipThroughFlush(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		for range 3 {
			io.WriteString(z, "hello ")
			z.Flush()
			w.(http.Flusher).Flush()
		}
		z.Close()
	})})
	r, err := client(t).Get(f.url("/"))
	if got := mustBody(t, r, err); got != "hello hello hello " || r.Header.Get("Content-Type") != "" {
		t.Errorf("got %q, %v", got, r.Header)
	}
}

// A handler that answers before it has read the body is heard by a client that is still sending it.
func TestEarlyAnswerReachesASender(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	})})
	for _, size := range []int64{200 << 10, 400 << 10, 1 << 20, 5 << 20, 20 << 20} {
		for range 3 {
			c := client(t)
			r, err := c.Post(f.url("/"), "text/plain", io.LimitReader(zeros{}, size))
			if mustBody(t, r, err); r.StatusCode != http.StatusUnauthorized {
				t.Fatalf("%d bytes: %v", size, r.Status)
			}
			req, _ := http.NewRequest("POST", f.url("/"), io.LimitReader(zeros{}, size))
			req.ContentLength = size
			r, err = c.Do(req)
			if mustBody(t, r, err); r.StatusCode != http.StatusUnauthorized {
				t.Fatalf("%d bytes, declared: %v", size, r.Status)
			}
		}
	}
}
