package client

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// answering is a server that answers each request with the given bytes, and waits for the client to
// close.
func answering(t *testing.T, answer string) string {
	return scripted(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err == nil {
			io.WriteString(c, answer)
			io.Copy(io.Discard, r)
		}
	})
}

// endless sends first, and then again the same until the client closes.
func endless(t *testing.T, first, again string) string {
	return scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, first)
		for block := strings.Repeat(again, 64); ; {
			if _, err := io.WriteString(c, block); err != nil {
				return
			}
		}
	})
}

// A reader that has emptied a body wakes the loop, also if more of the same read buffer came after
// the loop had stopped reading.
func TestThrottledBodyGoesOn(t *testing.T) {
	b := &body{call: &Call{}, response: &http.Response{}}
	if !b.add(make([]byte, maxBodyBuffer)) {
		t.Error("a full body lets the loop read on")
	}
	if _, _, resume := b.take(make([]byte, maxBodyBuffer)); !resume {
		t.Error("the reader of an empty body does not ask for more")
	}
	if b.add([]byte("x")) || !b.resumes() {
		t.Error("the loop does not read on")
	}
	b.discard()
}

// A server that does not end costs at most the limit of a head, and an error says why.
func TestEndlessServers(t *testing.T) {
	tr := fresh(t, &Transport{MaxResponseHeaderBytes: 100_000})
	for name, tt := range map[string]struct{ first, again, want string }{
		"head":       {"HTTP/1.1 200 OK\r\n", "X-Filler: yes\r\n", "headers exceeded"},
		"line":       {"HTTP/1.1 200 OK\r\nX: ", "x", "headers exceeded"},
		"status":     {"HTTP/1.1 200 ", "O", "headers exceeded"},
		"interim":    {"", "HTTP/1.1 103 Early Hints\r\n\r\n", "1xx"},
		"continue":   {"", "HTTP/1.1 100 Continue\r\nX: y\r\n\r\n", "1xx"},
		"whitespace": {"", "\r\n", "malformed"},
		"noise":      {"", "\x00\xff", "malformed"},
	} {
		_, err := byDo{tr}.RoundTrip(request(t, "GET", endless(t, tt.first, tt.again), nil))
		if e, ok := errors.AsType[*Error](err); !ok || e.Phase != Head || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A list of announced trailers of 900 kB makes no map of 160,000 names of it.
func TestAnnouncedTrailersAreBounded(t *testing.T) {
	var names strings.Builder
	for i := 0; names.Len() < 900_000; i++ {
		fmt.Fprintf(&names, "%x,", i)
	}
	answer := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: " + names.String() +
		"\r\n\r\n0\r\nLast: v\r\n\r\n"
	resp, err := fresh(t, &Transport{}).RoundTrip(request(t, "GET", answering(t, answer), nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	announced := len(resp.Trailer)
	if _, err := io.ReadAll(resp.Body); announced != maxFields || resp.Trailer.Get("Last") != "v" || err != nil {
		t.Errorf("%d announced, %q, %v", announced, resp.Trailer.Get("Last"), err)
	}
}

// Responses that two clients could read in two ways are refused.
func TestAmbiguousResponses(t *testing.T) {
	tr := fresh(t, &Transport{})
	for _, head := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
		"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
		"HTTP/1.1 20 OK\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "ICY 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
	} {
		r, err := byDo{tr}.RoundTrip(request(t, "GET", answering(t, head), nil))
		if e, ok := errors.AsType[*Error](err); !ok || e.Phase != Head {
			t.Errorf("%q: %v, %v", head, r, err)
		}
	}
	for _, body := range []string{"x\r\n", "5\r\nabcde0\r\n", "5;\x00\r\nabcde\r\n", "2\nab\r\n",
		"ffffffffffffffffff\r\n", "0\r\nBad Trailer: x\r\n\r\n"} {
		url := answering(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+body)
		r, err := byDo{tr}.RoundTrip(request(t, "GET", url, nil))
		if err != nil {
			t.Errorf("%q: %v", body, err)
			continue
		}
		_, err = io.Copy(io.Discard, r.Body)
		if e, ok := errors.AsType[*Error](err); !ok || e.Phase != Body && e.Phase != Head {
			t.Errorf("%q: %v", body, err)
		}
		r.Body.Close()
	}
}

// Bytes beyond a body, or before a request, are given to no other request.
func TestUnsolicitedBytes(t *testing.T) {
	const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	for name, answer := range map[string]string{
		"with a length": "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood" + evil,
		"in chunks":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n" + evil,
		"without body":  "HTTP/1.1 204 No Content\r\n\r\n" + evil,
	} {
		url := answering(t, answer)
		tr := fresh(t, &Transport{})
		for range 3 {
			if _, body := get(t, tr, url); body == "evil" {
				t.Errorf("%s: the next request has got what came behind a response", name)
			}
		}
	}
	said := make(chan bool)
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
		<-said
		io.WriteString(c, evil)
		io.Copy(io.Discard, r)
		said <- true
	})
	tr := fresh(t, &Transport{})
	get(t, tr, url)
	said <- true
	<-said // the client has closed the connection
}

// A body that is cut off is not taken for a whole one.
func TestCutBodies(t *testing.T) {
	tr := fresh(t, &Transport{})
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y",
	} {
		url := scripted(t, func(c net.Conn, r *bufio.Reader) {
			readHead(r)
			io.WriteString(c, answer)
		})
		r, err := tr.RoundTrip(request(t, "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		p, err := io.ReadAll(r.Body)
		if !errors.Is(err, io.ErrUnexpectedEOF) || string(p) != "abc" {
			t.Errorf("%q: %q, %v", answer, p, err)
		}
		r.Body.Close()
	}
	r, body := get(t, tr, scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nuntil the end")
	}))
	if body != "until the end" || !r.Close {
		t.Errorf("%q, %+v", body, r)
	}
}

// TLS that ends without close_notify cuts a body that would end with the connection, and no other
// one: it may have been cut by the network. http.Transport takes it for complete.
func TestBodiesWithoutCloseNotify(t *testing.T) {
	for answer, complete := range map[string]bool{
		"HTTP/1.1 200 OK\r\n\r\nhi":                                                 false,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi":                            true,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n": true,
	} {
		s := httptest.NewTLSServer(nil)
		cfg, certificates := trusting(s), s.TLS.Certificates
		s.Close()
		for _, notify := range []bool{true, false} {
			url := scripted(t, func(c net.Conn, _ *bufio.Reader) {
				secure := tls.Server(c, &tls.Config{Certificates: certificates})
				readHead(bufio.NewReader(secure))
				io.WriteString(secure, answer)
				if notify {
					secure.CloseWrite()
				}
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, c)
			})
			tr := fresh(t, &Transport{TLSClientConfig: cfg})
			r, err := tr.RoundTrip(request(t, "GET", strings.Replace(url, "http", "https", 1), nil))
			if err != nil {
				t.Fatal(err)
			}
			p, err := io.ReadAll(r.Body)
			if string(p) != "hi" || (err == nil) != (complete || notify) || err != nil && err != io.ErrUnexpectedEOF {
				t.Errorf("%q, close_notify %v: %q, %v", answer, notify, p, err)
			}
			r.Body.Close()
		}
	}
}

// What is not read holds up the server, and not memory.
func TestBackpressure(t *testing.T) {
	sent := make(chan int, 1)
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		n, block := 0, make([]byte, 64<<10)
		for {
			k, err := c.Write(block)
			if n += k; err != nil {
				sent <- n
				return
			}
		}
	})
	tr := fresh(t, &Transport{})
	r, err := tr.RoundTrip(request(t, "GET", url, nil))
	if err != nil {
		t.Fatal(err)
	}
	<-sent
	b := r.Body.(*body)
	b.mu.Lock()
	if n := b.data.Len(); n > maxBodyBuffer+64<<10 {
		t.Errorf("%d bytes are held", n)
	}
	b.mu.Unlock()
	n, err := io.Copy(io.Discard, r.Body)
	if n < maxBodyBuffer || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	r.Body.Close()
}

// A slow server costs no goroutine, and its requests end with their contexts.
func TestSlowServersCostNoGoroutine(t *testing.T) {
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		for _, b := range []byte("HTTP/1.1 200 OK\r\n") {
			c.Write([]byte{b})
		}
		io.Copy(io.Discard, r)
	})
	tr := fresh(t, &Transport{})
	before := runtime.NumGoroutine()
	ended := make(chan error, 100)
	var calls []*Call
	for range 100 {
		calls = append(calls, tr.Do(request(t, "GET", url, nil), func(_ *http.Response, err error) { ended <- err }))
	}
	for _, x := range calls {
		for x.Phase() != Head {
			time.Sleep(time.Millisecond)
		}
	}
	if n := runtime.NumGoroutine() - before; n > 100+20 { // the server has one for each
		t.Errorf("%d more goroutines", n)
	}
	for _, x := range calls {
		x.Cancel()
	}
	for range calls {
		if err := <-ended; err == nil {
			t.Error("a cancelled request has succeeded")
		}
	}
}
