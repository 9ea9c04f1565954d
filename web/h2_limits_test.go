package web

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/myriad-go/myriad"
	muxed "github.com/myriad-go/myriad/web/internal/http2"
)

// The writer of an HTTP/2 request has what net/http's has, without Hijack; what needs a connection
// says so.
func TestHTTP2Surface(t *testing.T) {
	eachHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		_, hijacks := w.(http.Hijacker)
		_, pushes := w.(http.Pusher)
		_, flushes := w.(http.Flusher)
		_, _, err := http.NewResponseController(w).Hijack()
		upgrade := Upgrade(w, nil, nil)
		w.Header().Set("Connection", "keep-alive")
		w.Header().Set("Upgrade", "x")
		fmt.Fprint(w, hijacks, pushes, flushes, errors.Is(err, http.ErrNotSupported), upgrade == muxed.ErrNoUpgrade)
	}, func(t *testing.T, f *fixture, c *http.Client) {
		resp, err := c.Get(f.url("/"))
		if got := mustBody(t, resp, err); got != "false false true true true" {
			t.Errorf("got %q", got)
		}
		if h := resp.Header; h["Connection"] != nil || h["Upgrade"] != nil {
			t.Errorf("fields of a connection: %v", h)
		}
	})
}

// HEAD, an empty answer, and statuses without a body are as with net/http.
func TestHTTP2HeadAndEmpty(t *testing.T) {
	eachHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/flush":
			w.(http.Flusher).Flush()
		case "/text":
			io.WriteString(w, "text")
		}
	}, func(t *testing.T, f *fixture, c *http.Client) {
		for _, tt := range []struct {
			method, path string
			length       int64
		}{
			{"GET", "/", 0}, {"GET", "/204", 0}, {"GET", "/text", 4}, {"HEAD", "/text", 4},
			{"HEAD", "/flush", -1}, {"HEAD", "/", -1},
		} {
			req, _ := http.NewRequest(tt.method, f.url(tt.path), nil)
			resp, err := c.Do(req)
			body := mustBody(t, resp, err)
			if resp.ContentLength != tt.length || tt.method == "HEAD" && body != "" {
				t.Errorf("%s %s: length %d, want %d; body %q", tt.method, tt.path, resp.ContentLength, tt.length, body)
			}
		}
	})
}

// rawHTTP2 speaks frames on a connection of its own.
func rawHTTP2(t *testing.T, f *fixture) (net.Conn, *http2.Framer) {
	c := dial(t, f)
	io.WriteString(c, http2.ClientPreface)
	fr := http2.NewFramer(c, c)
	fr.WriteSettings()
	return c, fr
}

// indexedGet is GET / for http, by the static table, and an authority.
var indexedGet = []byte("\x82\x84\x86\x41\x01h")

func openStream(fr *http2.Framer, id uint32, end bool) {
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: indexedGet, EndHeaders: true, EndStream: end})
}

// A body that its handler does not read holds up its stream alone.
func TestHTTP2UnreadBody(t *testing.T) {
	release := make(chan struct{})
	f, clients := serveHTTP2(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			<-release
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		}
	})})
	c := clients["x/net"]
	var sent atomic.Int64
	answered := make(chan string)
	const size = 1 << 20
	go func() {
		body := io.TeeReader(io.LimitReader(zeros{}, size), writerFunc(func(p []byte) {
			sent.Add(int64(len(p)))
		}))
		resp, err := c.Post(f.url("/"), "x/y", body)
		if err != nil {
			answered <- err.Error()
			return
		}
		p, _ := io.ReadAll(resp.Body)
		answered <- string(p)
	}()
	within(t, "the window is used up", func() bool { return sent.Load() >= muxed.StreamWindow })
	for range 20 { // on the same connection
		resp, err := c.Get(f.url("/"))
		mustBody(t, resp, err)
	}
	if n := sent.Load(); n > muxed.StreamWindow+64<<10 { // and what the client's own buffer holds
		t.Errorf("the client has sent %d bytes", n)
	}
	close(release)
	if got := <-answered; got != fmt.Sprint(size, nil) {
		t.Errorf("got %q", got)
	}
}

// A head beyond MaxHeaderBytes is answered with 431, a body beyond MaxBodyBytes with 413 or an
// error, and the connection goes on.
func TestHTTP2LargeHead(t *testing.T) {
	f, clients := serveHTTP2(t, &Server{MaxHeaderBytes: 8 << 10, MaxBodyBytes: 1000,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			_, tooLarge := errors.AsType[*http.MaxBytesError](err)
			fmt.Fprint(w, tooLarge)
		})})
	c := clients["net/http"]
	do := func(body io.Reader, field string) (int, string) {
		req, _ := http.NewRequest("POST", f.url("/"), body)
		req.Header.Set("X-Field", field)
		resp, err := c.Do(req)
		text := mustBody(t, resp, err)
		return resp.StatusCode, text
	}
	large := strings.Repeat("x", 5000)
	if status, text := do(nil, large); status != 200 || text != "false" {
		t.Errorf("a head within the limit: %d %q", status, text)
	}
	if status, _ := do(strings.NewReader(large), ""); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of known length: %d", status)
	}
	if status, text := do(io.LimitReader(zeros{}, 5000), ""); status != 200 || text != "true" {
		t.Errorf("a body of unknown length: %d %q", status, text)
	}
	_, fr := rawHTTP2(t, f)
	block := append([]byte(nil), indexedGet...)
	for range 100 { // a literal without a name in the table, of 1 + 100 bytes
		block = append(append(block, "\x00\x01x\x64"...), large[:100]...)
	}
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: true})
	fr.ReadMetaHeaders = nil
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := frame.(*http2.DataFrame); ok {
			if !strings.HasPrefix(string(d.Data()), "431 ") {
				t.Errorf("got %q", d.Data())
			}
			return
		}
	}
}

// Deadlines are those of a stream: its neighbours are not affected.
func TestHTTP2Deadlines(t *testing.T) {
	eachHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		switch r.URL.Path {
		case "/read":
			c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := io.ReadAll(r.Body)
			fmt.Fprint(w, errors.Is(err, os.ErrDeadlineExceeded))
		case "/write":
			c.SetWriteDeadline(time.Now().Add(time.Millisecond))
			<-r.Context().Done()
		}
	}, func(t *testing.T, f *fixture, c *http.Client) {
		body, end := io.Pipe()
		resp, err := c.Post(f.url("/read"), "x/y", body)
		if got := mustBody(t, resp, err); got != "true" {
			t.Errorf("a late body: %q", got)
		}
		end.Close()
		late := figuresOf(f.state.Engine)["streams reset for late answers"]
		if resp, err := c.Get(f.url("/write")); err == nil {
			t.Errorf("a late answer: %v", resp.Status)
			resp.Body.Close()
		}
		if n := figuresOf(f.state.Engine)["streams reset for late answers"]; n == late {
			t.Errorf("%d late answers are counted, as before", n)
		}
		resp, err = c.Get(f.url("/"))
		mustBody(t, resp, err)
	})
}

// The preface is recognised however it comes, HTTP/1 beside it; and without HTTP1 nothing else is
// served.
func TestHTTP2PriorKnowledge(t *testing.T) {
	f, _ := serveHTTP2(t, &Server{Handler: http.HandlerFunc(hello)})
	var all strings.Builder
	fr := http2.NewFramer(&all, nil)
	all.WriteString(http2.ClientPreface)
	fr.WriteSettings()
	openStream(fr, 1, true)
	for cut := 0; cut < all.Len(); cut += 5 {
		c := dial(t, f)
		io.WriteString(c, all.String()[:cut])
		time.Sleep(time.Millisecond) // so that it comes in two pieces; it can only fail to
		io.WriteString(c, all.String()[cut:])
		for fr := http2.NewFramer(nil, c); ; {
			frame, err := fr.ReadFrame()
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			if d, ok := frame.(*http2.DataFrame); ok && string(d.Data()) == "Hello, World!" {
				break
			}
		}
		c.Close()
	}
	got := raw(t, f, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", false)
	if !strings.Contains(got, "Hello") {
		t.Errorf("HTTP/1.1: %q", got)
	}
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true)
	f = serveOn(t, &Server{Protocols: only, Handler: http.HandlerFunc(hello)}, myriad.Config{Loops: 1})
	if got := raw(t, f, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", false); got != "" {
		t.Errorf("HTTP/1.1 where it is off: %q", got)
	}
}

// An EventStream is kept alive, each by its own clock, and Shutdown ends it.
func TestHTTP2Events(t *testing.T) {
	f, clients := serveHTTP2(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := Events(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		s.SetKeepAlive(5 * time.Millisecond)
		s.Send(Event{Data: []byte("hello")})
	})})
	c := clients["x/net"]
	var bodies []io.ReadCloser
	for range 5 {
		resp, err := c.Get(f.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, resp.Body)
	}
	for _, b := range bodies {
		want := "data: hello\n\n:\n\n:\n\n"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(b, got); err != nil || string(got) != want {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if err := f.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	for _, b := range bodies {
		if _, err := io.ReadAll(b); err != nil {
			t.Error(err)
		}
		b.Close()
	}
}

// Requests that the pool has no room for are answered, and leave no stream behind: the connection
// goes on.
func TestHTTP2RefusedRequestsLeaveNoStream(t *testing.T) {
	const most = 5
	f, clients := serveHTTP2(t, &Server{Dispatch: DispatchPool, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: most},
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })})
	f.state.Tasks.UsePool(refusing{f.state.Tasks.PoolOf(f.Engine.System()), func() {}})
	for i := range 4 * most {
		resp, err := clients["x/net"].Post(f.url("/"), "text/plain", strings.NewReader("body"))
		if mustBody(t, resp, err); resp.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("request %d: %s", i, resp.Status)
		}
	}
}
