//lint:file-ignore SA1019 x/net is deprecated for programs; here it is the peer, and its knobs are needed

package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// plainHTTP2 are HTTP/1 and, for clients that know, HTTP/2 without TLS.
func plainHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// serveHTTP2 runs s, and returns a client of it for each way to HTTP/2.
func serveHTTP2(t testing.TB, s *Server) (f *fixture, clients map[string]*http.Client) {
	s.Protocols = plainHTTP2()
	f = serve(t, s)
	plain := &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, addr string,
		_ *tls.Config) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true)
	std := &http.Transport{Protocols: only}
	t.Cleanup(plain.CloseIdleConnections)
	t.Cleanup(std.CloseIdleConnections)
	return f, map[string]*http.Client{
		"x/net":    {Transport: plain, Timeout: hangs},
		"net/http": {Transport: std, Timeout: hangs},
	}
}

// eachHTTP2 runs test with each client, for each way to dispatch.
func eachHTTP2(t *testing.T, h http.HandlerFunc, test func(t *testing.T, f *fixture, c *http.Client)) {
	for _, d := range []Dispatch{DispatchAuto, DispatchPool, DispatchInline} {
		f, clients := serveHTTP2(t, &Server{Dispatch: d, Handler: h})
		for name, c := range clients {
			t.Run(fmt.Sprint(d, " ", name), func(t *testing.T) { test(t, f, c) })
		}
	}
}

// A request over HTTP/2 is an ordinary one, and so is its answer.
func TestHTTP2Request(t *testing.T) {
	eachHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %s %d %q %s", r.Proto, r.Method, r.Host, r.RequestURI, r.ContentLength,
			r.Header["X-Own"], r.URL.Query().Get("q"))
	}, func(t *testing.T, f *fixture, c *http.Client) {
		req, _ := http.NewRequest("GET", f.url("/path?q=1"), nil)
		req.Header["X-Own"] = []string{"a", "b"}
		resp, err := c.Do(req)
		got := mustBody(t, resp, err)
		want := fmt.Sprintf(`HTTP/2.0 GET %s /path?q=1 0 ["a" "b"] 1`, f.addr)
		if got != want || resp.ProtoMajor != 2 || resp.ContentLength != int64(len(want)) ||
			resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" || resp.Header.Get("Date") == "" {
			t.Errorf("got %q, want %q; %v", got, want, resp)
		}
	})
}

// Bodies of all sizes go there and back, by many streams of one connection at the same time.
func TestHTTP2Bodies(t *testing.T) {
	eachHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	}, func(t *testing.T, f *fixture, c *http.Client) {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				want := strings.Repeat(string(rune('a'+i)), 1<<i)
				resp, err := c.Post(f.url("/"), "text/plain", strings.NewReader(want))
				if got := mustBody(t, resp, err); got != want {
					t.Errorf("%d bytes came back of %d", len(got), len(want))
				}
			})
		}
		all.Wait()
	})
}

// Trailers both ways, interim answers and 100 Continue.
func TestHTTP2TrailersAndInterim(t *testing.T) {
	eachHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "Sum")
		p, _ := io.ReadAll(r.Body)
		w.Write(p)
		w.Header().Set("Sum", r.Trailer.Get("Client-Sum"))
		w.Header().Set(http.TrailerPrefix+"Unannounced", "yes")
	}, func(t *testing.T, f *fixture, c *http.Client) {
		var interim []int
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				interim = append(interim, code)
				if code == 103 && h.Get("Link") == "" {
					t.Error("the interim answer has no Link")
				}
				return nil
			}})
		req, _ := http.NewRequestWithContext(ctx, "POST", f.url("/"), io.NopCloser(strings.NewReader("body")))
		req.Trailer = http.Header{"Client-Sum": {"42"}}
		req.Header.Set("Expect", "100-continue")
		resp, err := c.Do(req)
		got := mustBody(t, resp, err)
		if got != "body" || resp.Trailer.Get("Sum") != "42" || resp.Trailer.Get("Unannounced") != "yes" {
			t.Errorf("got %q, trailers %v", got, resp.Trailer)
		}
		if len(interim) == 0 || interim[0] != 103 {
			t.Errorf("interim answers %v", interim)
		}
	})
}

// What a handler flushes comes at once, and its context ends when the client resets the stream.
func TestHTTP2FlushAndCancel(t *testing.T) {
	over := make(chan error, 1)
	eachHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
		over <- err
	}, func(t *testing.T, f *fixture, c *http.Client) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", f.url("/"), nil)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 5)
		if _, err := io.ReadFull(resp.Body, p); err != nil || string(p) != "first" {
			t.Fatalf("got %q, %v", p, err)
		}
		cancel()
		resp.Body.Close()
		if err := <-over; err == nil {
			t.Error("a write behind a reset succeeds")
		}
	})
}

// A panic resets the stream, and the connection goes on.
func TestHTTP2Panic(t *testing.T) {
	eachHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path == "/short" {
			w.Header().Set("Content-Length", "10")
		}
		io.WriteString(w, "ok")
	}, func(t *testing.T, f *fixture, c *http.Client) {
		for _, path := range []string{"/panic", "/short"} {
			resp, err := c.Get(f.url(path))
			if err == nil {
				_, err = io.ReadAll(resp.Body)
			}
			if e, ok := errors.AsType[http2.StreamError](err); err == nil || ok && e.Code != http2.ErrCodeInternal {
				t.Errorf("%s: %v", path, err)
			}
		}
		resp, err := c.Get(f.url("/"))
		if got := mustBody(t, resp, err); got != "ok" {
			t.Errorf("got %q", got)
		}
	})
}

// A detached answer is written from elsewhere, and ends by Close.
func TestHTTP2Detached(t *testing.T) {
	streams := make(chan *Stream, 1)
	eachHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		s, err := Detached(w)
		if err != nil {
			t.Error(err)
		}
		streams <- s
	}, func(t *testing.T, f *fixture, c *http.Client) {
		for _, how := range []string{"close", "cancel"} {
			ctx, cancel := context.WithCancel(context.Background())
			req, _ := http.NewRequestWithContext(ctx, "GET", f.url("/"), nil)
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			s, closed := <-streams, make(chan error, 1)
			s.OnClose(func(err error) { closed <- err })
			for range 3 {
				s.Write([]byte("event\n"))
			}
			p := make([]byte, 18)
			if _, err := io.ReadFull(resp.Body, p); err != nil {
				t.Fatal(err)
			}
			if how == "close" {
				s.Close()
				if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
					t.Errorf("got %q, %v", rest, err)
				}
			}
			cancel()
			resp.Body.Close()
			if err := <-closed; (err == nil) != (how == "close") {
				t.Errorf("%s: OnClose got %v", how, err)
			}
		}
	})
}

// Shutdown answers what has begun, and the client may go on elsewhere.
func TestHTTP2Shutdown(t *testing.T) {
	entered, goOn := make(chan struct{}), make(chan struct{})
	f, clients := serveHTTP2(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-goOn
		io.WriteString(w, "answered")
	})})
	got := make(chan string)
	go func() {
		resp, err := clients["x/net"].Get(f.url("/"))
		if err != nil {
			got <- err.Error()
			return
		}
		p, _ := io.ReadAll(resp.Body)
		got <- string(p)
	}()
	<-entered
	down := make(chan error)
	go func() { down <- f.Shutdown(context.Background()) }()
	select {
	case err := <-down:
		t.Errorf("Shutdown does not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(goOn)
	if s := <-got; s != "answered" {
		t.Errorf("got %q", s)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}
