package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// lockedLog is an error log that tests can read.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func eachDispatch(t *testing.T, f func(t *testing.T, d Dispatch)) {
	for _, d := range []Dispatch{DispatchPool, DispatchInline, DispatchAuto} {
		t.Run(d.String(), func(t *testing.T) { f(t, d) })
	}
}

func TestBodies(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(w, r.Body)
		w.Header().Set(http.TrailerPrefix+"X-Copied", strconv.FormatInt(n, 10))
		if err != nil {
			t.Error(err)
		}
	})})
	c := client(t)
	for _, n := range []int{0, 1, 100, 2047, 2048, 2049, 65_536, 1_000_003, 8 << 20} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d bytes known=%v", n, known), func(t *testing.T) {
				want := strings.Repeat("0123456789abcdef", n/16+1)[:n]
				var body io.Reader = strings.NewReader(want)
				if !known {
					body = struct{ io.Reader }{body}
				}
				r, err := c.Post(f.url("/"), "text/plain", body)
				if got := mustBody(t, r, err); got != want {
					t.Fatalf("got %d bytes back", len(got))
				}
			})
		}
	}
}

// Any split of a request means the same.
func TestEverySplit(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s|%s|%v|%v", r.URL.RawQuery, p, err, r.Trailer)
	})})
	whole := "POST /a?b=c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n3\r\nabc\r\n" +
		"2;e=1\r\nde\r\n0\r\nX-T: v\r\n\r\n" +
		"GET /?last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	for at := 1; at < len(whole); at++ {
		c := dial(t, f)
		io.WriteString(c, whole[:at])
		time.Sleep(100 * time.Microsecond) // only makes it likelier that the server sees two reads
		io.WriteString(c, whole[at:])
		answer, err := io.ReadAll(c)
		if err != nil || !strings.Contains(string(answer), "b=c|abcde|<nil>|map[X-T:[v]]") ||
			!strings.Contains(string(answer), "last||<nil>|map[]") {
			t.Fatalf("split at %d: %q, %v", at, answer, err)
		}
		c.Close()
	}
}

// A client that pipelines far more than its connection's queue holds, and reads slowly, gets
// everything.
func TestPipeliningBeyondTheQueue(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		answer := strings.Repeat("0123456789abcdef", 1<<10)
		f := serve(t, &Server{Dispatch: d, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, answer)
		})})
		const n = 300
		c := dial(t, f)
		io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: h\r\n\r\n", n))
		r := bufio.NewReaderSize(c, 1<<10)
		for i := range n {
			resp, err := http.ReadResponse(r, nil)
			if got := mustBody(t, resp, err); got != answer {
				t.Fatalf("answer %d: %d bytes", i, len(got))
			}
		}
	})
}

// The 400 must arrive although the client is still sending when the server closes.
func TestRefusalReachesASender(t *testing.T) {
	f := serve(t, &Server{Handler: http.NotFoundHandler()})
	c := dial(t, f)
	go func() {
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 4\r\n\r\n")
		junk := make([]byte, 16<<10)
		for range 8 {
			if _, err := c.Write(junk); err != nil {
				return
			}
		}
		c.(*net.TCPConn).CloseWrite()
	}()
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
		t.Fatalf("got %q, %v", answer, err)
	}
}

// A handler that calls its own server waits for a second worker, at any number of callers.
func TestHandlerCallsItsServer(t *testing.T) {
	var f *fixture
	c := client(t)
	f = serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/inner" {
			io.WriteString(w, "inner")
			return
		}
		resp, err := c.Get(f.url("/inner"))
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		io.Copy(w, resp.Body)
	})})
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			r, err := c.Get(f.url("/outer"))
			if err != nil {
				t.Error(err)
				return
			}
			if got := mustBody(t, r, nil); got != "inner" {
				t.Errorf("got %q", got)
			}
		})
	}
	wg.Wait()
}

func TestSlowHandlerDoesNotHoldOthers(t *testing.T) {
	release := make(chan struct{})
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-release
		}
	})})
	c := client(t)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			r, err := c.Get(f.url("/slow"))
			if err != nil {
				t.Error(err)
				return
			}
			r.Body.Close()
		})
	}
	for range 50 {
		r, err := c.Get(f.url("/quick"))
		mustBody(t, r, err)
	}
	close(release)
	wg.Wait()
}

func TestPanicEndsOnlyItsExchange(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		f := serve(t, &Server{Dispatch: d, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/panic":
				w.Header().Set("A", "b")
				panic("on purpose")
			case "/abort":
				panic(http.ErrAbortHandler)
			}
		})})
		c := client(t)
		for _, path := range []string{"/panic", "/abort"} {
			if r, err := c.Get(f.url(path)); err == nil {
				t.Errorf("%s: got %v", path, r.Status)
			}
		}
		r, err := c.Get(f.url("/"))
		mustBody(t, r, err)
		if s := f.log.String(); strings.Count(s, "on purpose") != 1 || !strings.Contains(s, "server_test.go") ||
			strings.Contains(s, "abort") {
			t.Errorf("log: %s", s)
		}
	})
}

func TestContextEndsWithTheClient(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		derived, cancel := context.WithCancel(r.Context())
		defer cancel()
		close(began)
		<-derived.Done()
		ended <- derived.Err()
	})})
	c := dial(t, f)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-began
	c.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// The loop stops reading when the handler does not read the body: memory stays bounded while a
// client sends.
func TestUnreadBodyIsBounded(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-release
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	})})
	const size = 32 << 20
	done := make(chan string, 1)
	c := client(t)
	go func() {
		r, err := c.Post(f.url("/"), "text/plain", io.LimitReader(zeros{}, size))
		done <- mustBody(t, r, err)
	}()
	<-began
	var last uint64
	for stable := 0; stable < 20; time.Sleep(5 * time.Millisecond) {
		in := f.Engine.Stats().BytesIn
		if stable++; in != last {
			last, stable = in, 0
		}
	}
	if last > 1<<20 {
		t.Errorf("the server read %d bytes of a body that nobody reads", last)
	}
	close(release)
	if got := <-done; got != strconv.Itoa(size)+" <nil>" {
		t.Error(got)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A client that does not read costs its queue's limit, and the handler waits.
func TestSlowReaderIsBounded(t *testing.T) {
	var wrote atomic.Int64
	ended := make(chan error, 1)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := make([]byte, 64<<10)
		for {
			n, err := w.Write(p)
			if wrote.Add(int64(n)); err != nil {
				ended <- err
				return
			}
		}
	})})
	c := dial(t, f)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	var last int64
	for stable := 0; stable < 20; time.Sleep(5 * time.Millisecond) {
		if stable++; wrote.Load() != last {
			last, stable = wrote.Load(), 0
		}
	}
	out := int64(f.Engine.Stats().BytesOut)
	if queued := last - out; queued > 512<<10 {
		t.Errorf("%d bytes are queued for a client that does not read", queued)
	}
	c.Close()
	if err := <-ended; err == nil {
		t.Error("Write did not fail")
	}
}

// An engine that is shut down under its server lets requests that have begun be answered too.
func TestEngineShutdownAnswersWhatHasBegun(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(began)
			<-release
		}
		io.WriteString(w, "done")
	})})
	idle, busy := client(t), client(t)
	r, err := idle.Get(f.url("/"))
	mustBody(t, r, err)
	got := make(chan string, 1)
	go func() {
		r, err := busy.Get(f.url("/slow"))
		got <- mustBody(t, r, err)
	}()
	<-began
	down := make(chan error, 1)
	go func() { down <- f.Engine.Shutdown(context.Background()) }()
	for f.Engine.Stats().Conns > 1 {
		runtime.Gosched() // ends when the idle connection has gone, or never
	}
	close(release)
	if s := <-got; s != "done" {
		t.Errorf("got %q", s)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

func TestShutdownAnswersWhatHasBegun(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-release
		io.WriteString(w, "done")
	})})
	got := make(chan string, 1)
	c := client(t)
	go func() {
		r, err := c.Get(f.url("/"))
		got <- mustBody(t, r, err)
	}()
	<-began
	hook := make(chan struct{})
	f.RegisterOnShutdown(sync.OnceFunc(func() { close(hook) }))
	down := make(chan error, 1)
	go func() { down <- f.Shutdown(context.Background()) }()
	<-hook
	close(release)
	if s := <-got; s != "done" {
		t.Errorf("got %q", s)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", f.addr); err == nil {
		t.Error("still listening")
	}
}
