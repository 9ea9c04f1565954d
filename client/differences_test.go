package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

// A likeness is one thing that both Transports are asked for, and what each does.
type likeness struct {
	ask         func(t *testing.T, rt http.RoundTripper) string
	theirs, own string
}

// Rows of docs/net-http.md about the client: what http.Transport does, and what this one does.
func TestDifferencesFromTransport(t *testing.T) {
	for name, l := range map[string]likeness{
		"error of a dial":      {askDialError, "*net.OpError of ECONNREFUSED", "*net.OpError of ECONNREFUSED"},
		"no host":              {askNoHost, "http: no Host in request URL", "http: no Host in request URL"},
		"context before":       {askEndedContext, "context canceled", "context canceled"},
		"space before a colon": {askSpaceBeforeColon, "200", "malformed"},
		"unread body":          {askUnreadBody, "2 connections", "1 connection"},
		"two lengths":          {askOtherSpelling, "2 fields", "1 field"},
		"deadline of the conn": {askConnDeadline, "timeout", "the body"},
		"file":                 {askFile, "ReadFrom", "Write"},
		"body that fails":      {askFailingBody, "*errors.errorString", "*errors.errorString"},
		"write that fails":     {askFailingWrite, "204", "the write fails"},
		"length of a tunnel":   {askTunnelLength, "12", "1234"},
		"caller's TLS config":  {askTLSConfig, "[h2 http/1.1]", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			std := &http.Transport{MaxConnsPerHost: 1}
			defer std.CloseIdleConnections()
			if got := l.ask(t, std); got != l.theirs {
				t.Errorf("http.Transport: %s, want %s", got, l.theirs)
			}
			if got := l.ask(t, fresh(t, &Transport{MaxConnsPerHost: 1})); got != l.own {
				t.Errorf("Transport: %s, want %s", got, l.own)
			}
		})
	}
}

// A 2xx answer to CONNECT has no length (RFC 9110 section 9.3.6).
func askTunnelLength(t *testing.T, rt http.RoundTripper) string {
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			t.Error(err)
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n1234")
	})
	r, err := rt.RoundTrip(request(t, "CONNECT", url, nil))
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	p, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	return string(p)
}

func askTLSConfig(t *testing.T, rt http.RoundTripper) string {
	config := &tls.Config{InsecureSkipVerify: true}
	switch rt := rt.(type) {
	case *http.Transport:
		rt.TLSClientConfig, rt.ForceAttemptHTTP2 = config, true
	case *Transport:
		rt.TLSClientConfig, rt.ForceAttemptHTTP2 = config, true
	}
	_, _ = rt.RoundTrip(request(t, "GET", "https://127.0.0.1:1/", nil))
	return fmt.Sprint(config.NextProtos)
}

func askDialError(t *testing.T, rt http.RoundTripper) string {
	_, err := rt.RoundTrip(request(t, "GET", "http://127.0.0.1:1/", nil))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err.Error()
	}
	return fmt.Sprintf("%T of ECONNREFUSED", err)
}

func askNoHost(t *testing.T, rt http.RoundTripper) string {
	_, err := rt.RoundTrip(request(t, "GET", "http:/path", nil))
	return fmt.Sprint(err)
}

// A request that has not begun has no phase, so its error is that of the context.
func askEndedContext(t *testing.T, rt http.RoundTripper) string {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := rt.RoundTrip(request(t, "GET", "http://127.0.0.1:1/", nil).WithContext(ctx))
	if err == context.Canceled { //nolint:errorlint // its identity is meant
		return err.Error()
	}
	return fmt.Sprintf("%#v", err)
}

func askSpaceBeforeColon(t *testing.T, rt http.RoundTripper) string {
	r, err := rt.RoundTrip(request(t, "GET", answering(t,
		"HTTP/1.1 200 OK\r\nFoo : bar\r\nContent-Length: 0\r\n\r\n"), nil))
	switch {
	case err == nil:
		return fmt.Sprint(r.StatusCode)
	case strings.Contains(err.Error(), "malformed"):
		return "malformed"
	}
	return err.Error()
}

// askUnreadBody sends a second request while the first body is complete and unread.
func askUnreadBody(t *testing.T, rt http.RoundTripper) string {
	var opened atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w,
			"x")
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	switch tr := rt.(type) { // else http.Transport would wait for ever
	case *http.Transport:
		tr.MaxConnsPerHost = 0
	case *Transport:
		tr.MaxConnsPerHost = 0
	}
	idle := make(chan struct{}, 2)
	ctx := httptrace.WithClientTrace(t.Context(),
		&httptrace.ClientTrace{PutIdleConn: func(error) { idle <- struct{}{} }})
	first, err := rt.RoundTrip(request(t, "GET", s.URL, nil).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Body.Close()
	if _, own := rt.(*Transport); own {
		<-idle // the last byte has come
	}
	get(t, rt, s.URL)
	if n := opened.Load(); n != 1 {
		return fmt.Sprintf("%d connections", n)
	}
	return "1 connection"
}

// askOtherSpelling counts what a server sees of a length that the caller has written in lower case.
func askOtherSpelling(t *testing.T, rt http.RoundTripper) string {
	var lengths atomic.Int32
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		head, err := readHead(r)
		if err != nil {
			return
		}
		lengths.Store(int32(strings.Count(strings.ToLower(head), "content-length:")))
		io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	})
	req := request(t, "POST", url, strings.NewReader("abc"))
	req.Header["content-length"] = []string{"7"}
	fetch(t, rt, req)
	if n := lengths.Load(); n != 1 {
		return fmt.Sprintf("%d fields", n)
	}
	return "1 field"
}

func dialBy(rt http.RoundTripper, dial func(context.Context, string, string) (net.Conn, error)) {
	switch tr := rt.(type) {
	case *http.Transport:
		tr.DialContext = dial
	case *Transport:
		tr.DialContext = dial
	}
}

func askConnDeadline(t *testing.T, rt http.RoundTripper) string {
	held := make(chan struct{})
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-held
	})
	var nc net.Conn
	dialBy(rt, func(_ context.Context, network, addr string) (_ net.Conn, err error) {
		nc, err = net.Dial(network, addr)
		return nc, err
	})
	r, err := rt.RoundTrip(request(t, "GET", s.URL, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	nc.SetDeadline(time.Now().Add(-time.Second))
	if _, std := rt.(*http.Transport); !std {
		close(held)
	} else {
		defer close(held)
	}
	if _, err = io.ReadAll(r.Body); err != nil {
		return "timeout"
	}
	return "the body"
}

// A namingConn notes which of its methods write.
type namingConn struct {
	net.Conn
	mu    sync.Mutex
	wrote []string
}

func (c *namingConn) note(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.wrote, name) {
		c.wrote = append(c.wrote, name)
	}
}

func (c *namingConn) Write(p []byte) (int, error) {
	c.note("Write")
	return c.Conn.Write(p)
}

func (c *namingConn) ReadFrom(r io.Reader) (int64, error) {
	c.note("ReadFrom")
	return io.Copy(c.Conn, r)
}

func askFile(t *testing.T, rt http.RoundTripper) string {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	var c *namingConn
	dialBy(rt, func(_ context.Context, network, addr string) (net.Conn, error) {
		nc, err := net.Dial(network, addr)
		c = &namingConn{Conn: nc}
		return c, err
	})
	f, err := os.Open("differences_test.go")
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	req := request(t, "POST", s.URL, f)
	req.ContentLength = info.Size()
	fetch(t, rt, req)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrote[len(c.wrote)-1]
}

func askFailingBody(t *testing.T, rt http.RoundTripper) string {
	s := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	failure := errors.New("the body fails")
	_, err := rt.RoundTrip(request(t, "POST", s.URL, iotest.ErrReader(failure)))
	if !errors.Is(err, failure) {
		t.Errorf("%v", err)
	}
	return fmt.Sprintf("%T", err)
}

// A failingConn fails its second write.
type failingConn struct {
	net.Conn
	writes int
}

var errWrite = errors.New("the write fails")

func (c *failingConn) Write(p []byte) (int, error) {
	if c.writes++; c.writes == 2 {
		return 0, errWrite
	}
	return c.Conn.Write(p)
}

// askFailingWrite sends two requests that are not idempotent.
func askFailingWrite(t *testing.T, rt http.RoundTripper) string {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	dialBy(rt, func(_ context.Context, network, addr string) (net.Conn, error) {
		nc, err := net.Dial(network, addr)
		return &failingConn{Conn: nc}, err
	})
	fetch(t, rt, request(t, "DELETE", s.URL, nil))
	r, err := rt.RoundTrip(request(t, "DELETE", s.URL, nil))
	if errors.Is(err, errWrite) {
		return errWrite.Error()
	} else if err != nil {
		return err.Error()
	}
	r.Body.Close()
	return strconv.Itoa(r.StatusCode)
}

// CancelRequest finds a request by its Cancel channel, which http.Client makes for its Timeout.
func TestCancelRequest(t *testing.T) {
	url := scripted(t, func(c net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	tr := fresh(t, &Transport{})
	req := request(t, "GET", url, nil)
	//lint:ignore SA1019 deprecated, and what http.Client sets
	req.Cancel = make(chan struct{})
	ended := make(chan error, 1)
	call := tr.Do(req, func(_ *http.Response, err error) { ended <- err })
	tr.CancelRequest(req)
	if err := <-ended; !errors.Is(err, errCanceled) && !errors.Is(err, errCanceledEarly) || call.Phase() != Done {
		t.Errorf("%v in phase %v", err, call.Phase())
	}
}

// The error of http.Client.Timeout is a timeout, whichever of its two clocks was first.
func TestClientTimeout(t *testing.T) {
	url := scripted(t, func(c net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	hc := &http.Client{Transport: fresh(t, &Transport{}), Timeout: 20 * time.Millisecond}
	_, err := hc.Get(url)
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		t.Errorf("%v", err)
	}
}
