package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
)

// TestMain fails when goroutines of this module or blocks are left behind.
func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }

// patience is how long a test waits for what comes at once on a machine with time.
const patience = 20 * time.Second

// fresh gives t an engine until the test ends.
func fresh(t testing.TB, tr *Transport) *Transport {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 2, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	tr.Engine = e
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return tr
}

func serveHTTP(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func trusting(s *httptest.Server) *tls.Config {
	return s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
}

// A scripted server calls serve with each connection, on a goroutine of its own.
func scripted(t testing.TB, serve func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience))
				serve(c, bufio.NewReader(c))
			}()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-over })
	return "http://" + ln.Addr().String()
}

// readHead reads a request's head.
func readHead(r *bufio.Reader) (head string, err error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return head, err
		}
		if head += line; line == "\r\n" {
			return head, nil
		}
	}
}

// byDo sends requests by Do, so that their errors name a phase.
type byDo struct{ t *Transport }

func (d byDo) RoundTrip(req *http.Request) (r *http.Response, err error) {
	answered := make(chan struct{})
	d.t.Do(req, func(got *http.Response, failed error) {
		r, err = got, failed
		close(answered)
	})
	<-answered
	return r, err
}

// fetch gives the body of a response, and fails the test without one.
func fetch(t testing.TB, rt http.RoundTripper, req *http.Request) (*http.Response, string) {
	t.Helper()
	r, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	p, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("the body, after %d bytes: %v", len(p), err)
	}
	return r, string(p)
}

func get(t testing.TB, rt http.RoundTripper, url string) (*http.Response, string) {
	t.Helper()
	return fetch(t, rt, request(t, "GET", url, nil))
}

func request(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
