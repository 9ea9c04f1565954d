package client

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/freeport"
)

func TestGet(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Two"] = []string{"a", "b"}
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, r.UserAgent())
	})
	tr := fresh(t, &Transport{})
	r, body := get(t, tr, s.URL+"/x?y=z")
	if r.StatusCode != 200 || r.Status != "200 OK" || body != "GET /x?y=z Go-http-client/1.1" ||
		len(r.Header["X-Two"]) != 2 || r.ContentLength != int64(len(body)) || r.Proto != "HTTP/1.1" {
		t.Errorf("%+v, %q", r, body)
	}
}

// Bodies of all kinds arrive whole, in both directions.
func TestBodies(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		if r.URL.Path == "/chunked" {
			w.(http.Flusher).Flush()
		}
		fmt.Fprintf(w, "%d %v:", r.ContentLength, r.TransferEncoding)
		io.Copy(w, r.Body)
	})
	tr := fresh(t, &Transport{})
	for _, size := range []int{0, 1, 1000, 70_000, 1_000_000} {
		text := strings.Repeat("0123456789", size/10+1)[:size]
		for name, body := range map[string]func() io.Reader{
			"memory":  func() io.Reader { return strings.NewReader(text) },
			"buffer":  func() io.Reader { return bytes.NewBufferString(text) },
			"stream":  func() io.Reader { return io.MultiReader(strings.NewReader(text)) },
			"trickle": func() io.Reader { return &trickle{text} },
		} {
			for _, path := range []string{"/", "/chunked"} {
				_, got := fetch(t, tr, request(t, "POST", s.URL+path, body()))
				want := fmt.Sprintf("%d []:%s", size, text)
				if size == 0 || name == "stream" || name == "trickle" {
					want = "-1 [chunked]:" + text
				}
				if size == 0 && (name == "memory" || name == "buffer") {
					want = "0 []:"
				}
				if got != want {
					t.Errorf("%s of %d to %s: got %.40q (%d bytes)", name, size, path, got, len(got))
				}
			}
		}
	}
}

// A trickle gives a few bytes at a time.
type trickle struct{ text string }

func (r *trickle) Read(p []byte) (int, error) {
	if r.text == "" {
		return 0, io.EOF
	}
	n := copy(p, r.text[:min(len(r.text), 4000)])
	r.text = r.text[n:]
	return n, nil
}

// One connection serves one request after the other, and a second one only when both are under way.
func TestConnectionsAreKept(t *testing.T) {
	var opened atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.RemoteAddr)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	tr := fresh(t, &Transport{})
	_, first := get(t, tr, s.URL)
	for range 20 {
		if _, addr := get(t, tr, s.URL); addr != first {
			t.Errorf("another connection: %s, %s", addr, first)
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A kept connection that the server has closed meanwhile costs an idempotent request nothing.
func TestRetryOnAKeptConnection(t *testing.T) {
	var served atomic.Int32
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			return
		}
		served.Add(1)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		readHead(r) // and closes without an answer
	})
	tr := fresh(t, &Transport{})
	for range 5 {
		if _, body := get(t, tr, url); body != "ok" {
			t.Errorf("body %q", body)
		}
	}
	if n := served.Load(); n != 5 {
		t.Errorf("%d requests were served", n)
	}
	_, err := byDo{tr}.RoundTrip(request(t, "POST", url, strings.NewReader("x")))
	if e, ok := errors.AsType[*Error](err); !ok || e.Phase != Sent {
		t.Errorf("a POST on a connection that is closed: %v", err)
	}
	for range 2 {
		r := request(t, "POST", url, strings.NewReader("x"))
		r.Header.Set("Idempotency-Key", "1")
		if _, body := fetch(t, tr, r); body != "ok" {
			t.Errorf("body %q", body)
		}
	}
}

// Requests beyond MaxConnsPerHost wait in order.
func TestMaxConnsPerHost(t *testing.T) {
	var now, most atomic.Int32
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(time.Millisecond)
		now.Add(-1)
	})
	tr := fresh(t, &Transport{MaxConnsPerHost: 3, MaxIdleConnsPerHost: 3})
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() { get(t, tr, s.URL) })
	}
	wg.Wait()
	if n := most.Load(); n > 3 {
		t.Errorf("%d requests at once", n)
	}
}

func TestQueueIsFairAndBounded(t *testing.T) {
	release := make(chan struct{})
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		io.WriteString(w, r.URL.Path)
	})
	tr := fresh(t, &Transport{MaxConnsPerHost: 1, MaxQueued: 10})
	order := make(chan string, 20)
	var first *Call
	for i := range 12 {
		x := tr.Do(request(t, "GET", fmt.Sprintf("%s/%02d", s.URL, i), nil), func(r *http.Response, err error) {
			if err != nil {
				order <- err.Error()
				return
			}
			order <- r.Request.URL.Path
			r.Body.Close()
		})
		if i == 0 {
			first = x
			for x.Phase() != Sent {
				time.Sleep(time.Millisecond)
			}
		}
	}
	if got := <-order; !strings.Contains(got, "MaxQueued") {
		t.Errorf("the request beyond MaxQueued: %s", got)
	}
	close(release)
	for i := range 11 {
		if got, want := <-order, fmt.Sprintf("/%02d", i); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if first.Phase() != Done {
		t.Errorf("phase %v", first.Phase())
	}
}

func TestCancelInEachPhase(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	silent := scripted(t, func(c net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	halfHead := scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-")
		io.Copy(io.Discard, r)
	})
	halfBody := scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234")
		io.Copy(io.Discard, r)
	})
	tr := fresh(t, &Transport{MaxConnsPerHost: 1})
	blocker, cancelBlocker := context.WithCancel(t.Context())
	blocked := make(chan error, 1)
	tr.Do(request(t, "GET", silent, nil).WithContext(blocker), func(_ *http.Response, err error) { blocked <- err })
	for _, tt := range []struct {
		url  string
		want Phase
	}{{silent, Queued}, {halfHead, Head}, {halfBody, Body}} {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		x := tr.Do(request(t, "GET", tt.url, nil).WithContext(ctx), func(r *http.Response, err error) {
			if err != nil {
				got <- err
				return
			}
			OnBody(r, func(_ []byte, err error) {
				if err != nil {
					got <- err
				}
			})
		})
		for x.Phase() != tt.want {
			time.Sleep(time.Millisecond)
		}
		cancel()
		err := <-got
		if e, ok := errors.AsType[*Error](err); !ok || e.Phase != tt.want || !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled in %v: %v", tt.want, err)
		}
		for x.Phase() != Done { // comes behind the last callback
			time.Sleep(time.Millisecond)
		}
	}
	cancelBlocker()
	if err := <-blocked; !errors.Is(err, context.Canceled) || err.(*Error).Phase != Sent {
		t.Errorf("cancelled while the response is awaited: %v", err)
	}
	for tr.figures.calls[Queued].Load()+tr.figures.calls[Sent].Load()+tr.figures.calls[Body].Load() != 0 {
		time.Sleep(time.Millisecond) // it is counted behind that
	}
}

func TestDialErrors(t *testing.T) {
	closed := freeport.For(t, 1)[0]
	tr := fresh(t, &Transport{})
	_, err := byDo{tr}.RoundTrip(request(t, "GET", "http://"+closed, nil))
	if e, ok := errors.AsType[*Error](err); !ok || e.Phase != Dialing || e.Addr != closed {
		t.Errorf("%v", err)
	}
	for url, want := range map[string]string{
		"ftp://127.0.0.1/": "unsupported protocol scheme", "http:///x": "no Host",
	} {
		_, err = byDo{tr}.RoundTrip(request(t, "GET", url, nil))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
	r := request(t, "GET", "http://127.0.0.1/", nil)
	r.Header["Bad Name"] = []string{"x"}
	if _, err = (byDo{tr}).RoundTrip(r); err == nil || !strings.Contains(err.Error(), "field name") {
		t.Errorf("%v", err)
	}
}

func TestResponseHeaderTimeout(t *testing.T) {
	url := scripted(t, func(c net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	tr := fresh(t, &Transport{ResponseHeaderTimeout: 20 * time.Millisecond})
	for _, body := range []io.Reader{nil, strings.NewReader("x"), &trickle{"x"}} {
		_, err := tr.RoundTrip(request(t, "POST", url, body))
		var ne net.Error
		if !errors.As(err, &ne) || !ne.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v", err)
		}
	}
}

// A server that is too slow on a kept connection is not asked again.
func TestResponseHeaderTimeoutIsNotTriedAgain(t *testing.T) {
	var requests atomic.Int32
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			if requests.Add(1) == 1 {
				io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
			}
		}
	})
	tr := fresh(t, &Transport{})
	get(t, tr, url)
	tr.ResponseHeaderTimeout = 20 * time.Millisecond
	if _, err := tr.RoundTrip(request(t, "GET", url, nil)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if n := requests.Load(); n > 2 {
		t.Errorf("the server had %d requests, want 2", n)
	}
}

func TestGzip(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			io.WriteString(w, "plain")
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		z.Write(bytes.Repeat([]byte("x"), 1<<20))
		z.Close()
	})
	tr := fresh(t, &Transport{})
	r, body := get(t, tr, s.URL)
	if len(body) != 1<<20 || !r.Uncompressed || r.Header.Get("Content-Encoding") != "" || r.ContentLength != -1 {
		t.Errorf("%d bytes, %+v", len(body), r)
	}
	tr.DisableCompression = true
	if _, body = get(t, tr, s.URL); body != "plain" {
		t.Errorf("body %.20q", body)
	}
}

// A gzip bomb ends at the limit.
func TestGzipLimit(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		z.Write(make([]byte, 10<<20))
		z.Close()
	})
	tr := fresh(t, &Transport{MaxUncompressedBytes: 100_000})
	r, err := tr.RoundTrip(request(t, "GET", s.URL, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	if n != 100_000 || !errors.Is(err, ErrBodyTooLarge) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestTrailers(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		io.Copy(w, r.Body)
		w.Header().Set("X-Sum", r.Trailer.Get("X-Mine"))
		w.Header().Set(http.TrailerPrefix+"X-Other", "yes")
	})
	tr := fresh(t, &Transport{})
	req := request(t, "POST", s.URL, &trickle{strings.Repeat("b", 10_000)})
	req.Trailer = http.Header{"X-Mine": {"42"}}
	r, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if _, there := r.Trailer["X-Sum"]; !there {
		t.Errorf("the trailer is not announced: %v", r.Trailer)
	}
	if _, err = io.Copy(io.Discard, r.Body); err != nil || r.Trailer.Get("X-Sum") != "42" ||
		r.Trailer.Get("X-Other") != "yes" {
		t.Errorf("%v, %v", r.Trailer, err)
	}
}

func TestExpectContinue(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		io.Copy(w, r.Body)
	})
	tr := fresh(t, &Transport{ExpectContinueTimeout: patience})
	for _, body := range []io.Reader{strings.NewReader("hello"), &trickle{"hello"}} {
		req := request(t, "POST", s.URL, body)
		req.Header.Set("Expect", "100-continue")
		if _, got := fetch(t, tr, req); got != "hello" {
			t.Errorf("body %q", got)
		}
	}
	req := request(t, "POST", s.URL+"/no", strings.NewReader("hello"))
	req.Header.Set("Expect", "100-continue")
	if r, _ := fetch(t, tr, req); r.StatusCode != http.StatusExpectationFailed {
		t.Errorf("status %d", r.StatusCode)
	}
	mute := scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		p := make([]byte, 5)
		io.ReadFull(r, p)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n%s", p)
	})
	quick := fresh(t, &Transport{ExpectContinueTimeout: 5 * time.Millisecond})
	req = request(t, "POST", mute, strings.NewReader("hello"))
	req.Header.Set("Expect", "100-continue")
	if _, got := fetch(t, quick, req); got != "hello" {
		t.Errorf("after the timeout: body %q", got)
	}
}

func TestHTTPS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.WriteString(w, r.Proto)
		io.Copy(w, r.Body)
	}))
	defer s.Close()
	tr := fresh(t, &Transport{TLSClientConfig: trusting(s)})
	text := strings.Repeat("tls ", 100_000)
	for range 3 {
		r, body := fetch(t, tr, request(t, "POST", s.URL, strings.NewReader(text)))
		if body != "HTTP/1.1"+text || r.TLS == nil || !r.TLS.HandshakeComplete {
			t.Errorf("%d bytes, %+v", len(body), r.TLS)
		}
	}
	stranger := fresh(t, &Transport{})
	_, err := byDo{stranger}.RoundTrip(request(t, "GET", s.URL, nil))
	if e, ok := errors.AsType[*Error](err); !ok || e.Phase != Dialing || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown authority: %v", err)
	}
}

// On a loop RoundTrip fails, and a Do from there works.
func TestOnALoop(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "x") })
	tr := fresh(t, &Transport{})
	got := make(chan error, 1)
	tr.Do(request(t, "GET", s.URL, nil), func(r *http.Response, _ error) {
		r.Body.Close()
		_, err := tr.RoundTrip(request(t, "GET", s.URL, nil))
		got <- err
		tr.Do(request(t, "GET", s.URL, nil), func(r *http.Response, err error) {
			r.Body.Close()
			got <- err
		})
	})
	if err := <-got; !errors.Is(err, myriad.ErrOnLoop) {
		t.Errorf("RoundTrip on a loop: %v", err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// A GET whose body has an unknown length is sent without one if the body is empty, and does not
// wait for a body that is slow to come.
func TestProbedBodies(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc, *Transport) (*httptest.Server, *Transport){
		"TLS": secureH2, "HTTP/1": func(t testing.TB, h http.HandlerFunc, tr *Transport) (*httptest.Server,
			*Transport) {
			return serveHTTP(t, h), fresh(t, tr)
		},
	} {
		asked := make(chan int64, 2)
		s, tr := start(t, func(w http.ResponseWriter, r *http.Request) {
			asked <- r.ContentLength
			http.NewResponseController(w).EnableFullDuplex()
			io.Copy(w, r.Body)
		}, &Transport{})
		if fetch(t, tr, request(t, "GET", s.URL, &trickle{})); <-asked != 0 {
			t.Errorf("%s: an empty body is sent", name)
		}
		r, w := io.Pipe()
		go func() {
			<-asked
			io.WriteString(w, "late")
			w.Close()
		}()
		if _, body := fetch(t, tr, request(t, "GET", s.URL, r)); body != "late" {
			t.Errorf("%s: body %q", name, body)
		}
	}
}
