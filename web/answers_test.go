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
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// headOf splits an answer into status line, sorted-as-sent fields and body.
func headOf(answer string) (status string, fields []string, body string) {
	head, body, _ := strings.Cut(answer, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	return lines[0], lines[1:], body
}

func count(fields []string, want string) (n int) {
	for _, f := range fields {
		if strings.HasPrefix(f, want) {
			n++
		}
	}
	return n
}

// framings are handlers that set fields which say how an answer is framed, and the answers that
// follow.
var framings = []struct {
	name, request string
	handler       http.HandlerFunc
	with, without []string
	body          string
}{
	{"chunked is said once", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", "chunked")
		io.WriteString(w, "hello")
	}, []string{"Transfer-Encoding: chunked"}, []string{"Content-Length", "Content-Type"}, "5\r\nhello\r\n0\r\n\r\n"},
	{"identity ends with the connection", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", "identity")
		io.WriteString(w, "hello")
	}, []string{"Connection: close"}, []string{"Content-Length", "Transfer-Encoding"}, "hello"},
	{"another coding is inside chunks", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", "rot13")
		io.WriteString(w, "uryyb")
	}, []string{"Transfer-Encoding: rot13", "Transfer-Encoding: chunked"}, []string{"Content-Length", "Content-Type"},
		"5\r\nuryyb\r\n0\r\n\r\n"},
	{"no coding for 1.0", "GET / HTTP/1.0", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", "chunked")
		io.WriteString(w, "hello")
	}, nil, []string{"Transfer-Encoding", "Connection"}, "hello"},
	{"length against coding", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", "chunked")
		w.Header().Set("Content-Length", "5")
		io.WriteString(w, "hello")
	}, []string{"Transfer-Encoding: chunked"}, []string{"Content-Length"}, "5\r\nhello\r\n0\r\n\r\n"},
	{"length switched off", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Length"] = nil
		io.WriteString(w, "hello")
	}, []string{"Transfer-Encoding: chunked"}, []string{"Content-Length"}, "5\r\nhello\r\n0\r\n\r\n"},
	{"invalid length", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "five")
		io.WriteString(w, "hello")
	}, []string{"Content-Length: 5"}, []string{"Transfer-Encoding"}, "hello"},
	{"304 has no type", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/css")
		w.Header().Set("Content-Length", "77")
		w.Header().Set("Etag", `"x"`)
		w.WriteHeader(http.StatusNotModified)
	}, []string{`Etag: "x"`}, []string{"Content-Type", "Content-Length", "Transfer-Encoding"}, ""},
	{"204 keeps its type", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/css")
		w.WriteHeader(http.StatusNoContent)
	}, []string{"Content-Type: text/css"}, []string{"Content-Length", "Transfer-Encoding"}, ""},
	{"HEAD has no coding", "HEAD / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", "rot13")
		io.WriteString(w, "hello")
	}, nil, []string{"Transfer-Encoding", "Content-Length"}, ""},
	{"Connection is passed on", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "x-hop")
	}, []string{"Connection: x-hop", "Content-Length: 0"}, []string{"Connection: close"}, ""},
	{"unless the connection ends", "GET / HTTP/1.1\r\nConnection: close", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "x-hop")
	}, []string{"Connection: close"}, []string{"Connection: x-hop"}, ""},
	{"a list with close stays", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "x-hop, close")
	}, []string{"Connection: x-hop, close"}, []string{"Connection: close"}, ""},
	{"small writes after a flush are one chunk", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		for _, s := range []string{"a", "b", "c"} {
			io.WriteString(w, s)
		}
	}, []string{"Transfer-Encoding: chunked"}, []string{"Content-Type"}, "3\r\nabc\r\n0\r\n\r\n"},
	{"an announced trailer", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		io.WriteString(w, "abc")
		w.Header().Set("Sum", "6")
		w.Header().Set(http.TrailerPrefix+"Late", "yes")
	}, []string{"Trailer: Sum"}, []string{"Sum"}, "3\r\nabc\r\n0\r\nSum: 6\r\nLate: yes\r\n\r\n"},
	{"a trailer that nobody announced", "GET / HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/x")
		io.WriteString(w, "abc")
		w.Header().Set(http.TrailerPrefix+"Late", "yes")
	}, []string{"Transfer-Encoding: chunked"}, []string{"Content-Length"}, "3\r\nabc\r\n0\r\nLate: yes\r\n\r\n"},
}

// What a handler's own framing fields become: as net/http has it, field by field.
func TestHandlersFraming(t *testing.T) {
	for _, c := range framings {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, &Server{Handler: c.handler})
			status, fields, body := headOf(raw(t, f, c.request+"\r\nHost: h\r\n\r\n", true))
			for _, want := range c.with {
				if count(fields, want) != 1 {
					t.Errorf("%s %q: not once %q", status, fields, want)
				}
			}
			for _, not := range c.without {
				if count(fields, not) > 0 {
					t.Errorf("%s %q: has %q", status, fields, not)
				}
			}
			if c.name == "an announced trailer" {
				c.body = strings.Replace(c.body, "Sum: 6\r\nLate: yes", "Sum: 6\r\nLate: yes", 1)
				if !strings.Contains(body, "Sum: 6\r\n") || !strings.Contains(body, "Late: yes\r\n") ||
					!strings.HasPrefix(body, "3\r\nabc\r\n0\r\n") {
					t.Errorf("body %q", body)
				}
			} else if body != c.body {
				t.Errorf("body %q, want %q", body, c.body)
			}
		})
	}
}

// A request to a CONNECT authority needs no Host field, and a head with no field at all is one.
func TestHeadsWithoutFields(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %d", r.Method, r.Host, r.RequestURI, len(r.Header))
	})})
	for request, want := range map[string]string{
		"CONNECT example.org:443 HTTP/1.1\r\n\r\n": "CONNECT example.org:443 example.org:443 0",
		"GET http://a.example/x HTTP/1.0\r\n\r\n":  "GET a.example http://a.example/x 0",
		"GET / HTTP/1.0\r\n\r\n":                   "GET  / 0",
	} {
		if _, _, body := headOf(raw(t, f, request, true)); body != want {
			t.Errorf("%q: got %q, want %q", request, body, want)
		}
	}
}

// The preface of HTTP/2 is a request that handlers may take up, as golang.org/x/net/http2/h2c does.
func TestPrefaceReachesHandlers(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "PRI" || r.ProtoMajor != 2 || r.Proto != "HTTP/2.0" || !r.Close {
			t.Errorf("got %s %s, close %v", r.Method, r.Proto, r.Close)
		}
		nc, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		rest := make([]byte, len("SM\r\n\r\n"))
		io.ReadFull(rw, rest)
		fmt.Fprintf(nc, "%q", rest)
	})})
	c := dial(t, f)
	for _, p := range []string{"PRI * HTTP/2.0\r\n", "\r", "\nSM\r\n\r\n"} { // in pieces
		io.WriteString(c, p)
		time.Sleep(time.Millisecond)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != `"SM\r\n\r\n"` {
		t.Errorf("got %q, %v", got, err)
	}
}

// A coding that the server does not know is refused in the words of net/http, with the fields that
// an answer has.
func TestUnknownCodingsWords(t *testing.T) {
	f := serve(t, &Server{Handler: http.NotFoundHandler()})
	const want = "HTTP/1.1 501 Not Implemented\r\nDate: now\r\nContent-Type: text/plain; charset=utf-8\r\n" +
		"Content-Length: 50\r\n" +
		"Connection: close\r\n\r\n501 Not Implemented: Unsupported transfer encoding"
	got := raw(t, f, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: rot13\r\n\r\n", false)
	if got = regexp.MustCompile(`Date: .*GMT`).ReplaceAllString(got, "Date: now"); got != want {
		t.Errorf("got %q", got)
	}
}

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
	if _, _, body := headOf(raw(t, f, "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		true)); body != "invalid WriteHeader code 77" {
		t.Errorf("got %q", body)
	}
	if status, _, _ := headOf(raw(t, f, "GET /twice HTTP/1.1\r\nHost: h\r\n\r\n",
		true)); status != "HTTP/1.1 201 Created" {
		t.Errorf("got %q", status)
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

// Past its write deadline an answer goes nowhere, for good, and what was sent before stays in
// order.
func TestPastWriteDeadline(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		io.WriteString(w, "one")
		if err := c.Flush(); err != nil {
			t.Errorf("in time: %v", err)
		}
		for _, by := range []time.Time{time.Now().Add(-time.Minute), time.Now().Add(time.Minute)} {
			c.SetWriteDeadline(by)
			io.WriteString(w, "two")
			if err := c.Flush(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("late: %v", err)
			}
		}
	})})
	if answer := raw(t, f, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", false); !strings.HasSuffix(answer,
		"\r\n\r\n3\r\none\r\n") {
		t.Errorf("got %q", answer)
	}
}

// A handler that overstays WriteTimeout without having written ends its connection without an
// answer, in order.
func TestWriteTimeoutOfASilentHandler(t *testing.T) {
	done := make(chan error, 1)
	f := serve(t, &Server{WriteTimeout: 20 * time.Millisecond,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond) // longer than the timeout is what is tested
			_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
			done <- err
		})})
	if answer := raw(t, f, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", false); answer != "" {
		t.Errorf("got %q", answer)
	}
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write: %v", err)
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

// A trailer that is announced twice is still one field.
func TestTrailerAnnouncedTwice(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Trailer"] = []string{"A, a", "A"}
		w.WriteHeader(http.StatusOK)
		w.Header().Set("A", "1")
	})})
	if got := raw(t, f, get+"Connection: close\r\n\r\n", false); !strings.HasSuffix(got, "\r\n0\r\nA: 1\r\n\r\n") {
		t.Errorf("got %q", got)
	}
}
