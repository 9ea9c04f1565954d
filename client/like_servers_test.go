package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// closing is a server that closes its connection behind each answer, without a word before in
// HTTP/1, and behind GOAWAY in HTTP/2.
func closing(t *testing.T, over string) string {
	if over == overHTTP2 {
		return framedUntil(t, func(fr *http2.Framer, f http2.Frame) bool {
			if f.Header().Type != http2.FrameHeaders {
				return true
			}
			fr.WriteGoAway(f.Header().StreamID, http2.ErrCodeNo, nil)
			answer(fr, f.Header().StreamID, "200", true)
			return false
		})
	}
	return scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
}

// Servers that close behind each answer make no request fail that may be sent twice.
func TestServersThatCloseBehindEachAnswer(t *testing.T) {
	for _, over := range []string{overHTTP1, overHTTP2} {
		url := closing(t, over)
		for _, limit := range []int{0, 1} {
			std := speaking(over)
			std.MaxConnsPerHost = limit
			tr := likeOf(t, std)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 50 {
						if got := whole(tr, request(t, "GET", url, nil)); got != `200 "" <nil>` {
							t.Errorf("%s, MaxConnsPerHost %d: %s", over, limit, got)
							return
						}
					}
				})
			}
			wg.Wait()
		}
	}
}

// CloseIdleConnections, called without a pause, makes no request fail, whatever its method.
func TestCloseIdleConnectionsBesideRequests(t *testing.T) {
	overBoth(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) },
		func(t *testing.T, url string, tr *Transport) {
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					default:
						tr.CloseIdleConnections()
					}
				}
			}()
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 100 {
						if got := whole(tr, request(t, "POST", url, strings.NewReader("x"))); got != `200 "x" <nil>` {
							t.Error(got)
							return
						}
					}
				})
			}
			wg.Wait()
			close(stop)
			<-stopped
		})
}

// Requests that are cancelled at any moment leave the one place of their host to the others.
func TestMaxConnsPerHostBesideCancels(t *testing.T) {
	overBoth(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Length", "0") },
		func(t *testing.T, url string, tr *Transport) {
			tr.MaxConnsPerHost, tr.MaxIdleConns = 1, 1
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						ctx, cancel := context.WithCancel(t.Context())
						go cancel()
						if r, err := tr.RoundTrip(request(t, "GET", url, nil).WithContext(ctx)); err == nil {
							r.Body.Close()
						}
					}
				})
			}
			for range 200 {
				if got := whole(tr, request(t, "GET", url, nil)); got != `200 "" <nil>` {
					t.Error(got)
					break
				}
			}
			close(stop)
			wg.Wait()
		})
}

// Large responses that are not read hold up no other request, and are whole when they are read.
func TestUnreadBodiesHoldUpNoOther(t *testing.T) {
	const size = 2 << 20
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			w.Write(make([]byte, size))
			return
		}
		io.WriteString(w, "x")
	}, func(t *testing.T, url string, tr *Transport) {
		var held []*http.Response
		for range 30 {
			r, err := tr.RoundTrip(request(t, "GET", url+"/large", nil))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, r)
		}
		if got := whole(tr, request(t, "GET", url, nil)); got != `200 "x" <nil>` {
			t.Error(got)
		}
		for _, r := range held {
			if n, err := io.Copy(io.Discard, r.Body); n != size || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
			r.Body.Close()
		}
	})
}

// An upload goes on in the steps that the server grants, from none on, be they of one byte.
func TestUploadByTheByte(t *testing.T) {
	for _, body := range []func(string) io.Reader{
		func(s string) io.Reader { return strings.NewReader(s) }, func(s string) io.Reader { return &trickle{s} },
	} {
		var got atomic.Int64
		url := scripted(t, func(c net.Conn, r *bufio.Reader) {
			io.ReadFull(r, make([]byte, len(http2.ClientPreface)))
			fr := http2.NewFramer(c, r)
			fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			for begun := 0; ; { // by the stream and the acknowledgement, in either order
				f, err := fr.ReadFrame()
				if err != nil {
					return
				}
				switch f := f.(type) {
				case *http2.HeadersFrame:
					if begun++; begun == 2 {
						fr.WriteWindowUpdate(1, 1)
					}
				case *http2.SettingsFrame:
					if !f.IsAck() {
						fr.WriteSettingsAck()
					} else if begun++; begun == 2 {
						fr.WriteWindowUpdate(1, 1)
					}
				case *http2.DataFrame:
					got.Add(int64(len(f.Data())))
					if f.StreamEnded() {
						answer(fr, 1, "204", true)
					} else {
						fr.WriteWindowUpdate(1, 1)
					}
				}
			}
		})
		std := speaking(overHTTP2)
		if a := whole(likeOf(t, std), request(t, "POST", url, body(strings.Repeat("x", 300)))); a != `204 "" <nil>` {
			t.Error(a)
		}
		if n := got.Load(); n != 300 {
			t.Errorf("%d bytes came", n)
		}
	}
}

// An upload that has used up the windows of its connection holds up no request without a body.
func TestUploadWithoutWindowHoldsUpNoOther(t *testing.T) {
	full := make(chan struct{})
	var came atomic.Int64
	url := framed(t, func(fr *http2.Framer, f http2.Frame) {
		switch f := f.(type) {
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				answer(fr, f.StreamID, "204", true)
			}
		case *http2.DataFrame:
			if came.Add(int64(f.Length)) == 65535 {
				close(full)
			}
		}
	})
	tr := likeOf(t, speaking(overHTTP2))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		upload := request(t, "POST", url, strings.NewReader(strings.Repeat("x", 1<<20)))
		if r, err := tr.RoundTrip(upload.WithContext(ctx)); err == nil {
			r.Body.Close()
		}
	}()
	<-full
	if got := whole(tr, request(t, "GET", url, nil)); got != `204 "" <nil>` {
		t.Error(got)
	}
	cancel()
	<-ended
}

// ResponseHeaderTimeout ends the wait for the final head. Interim responses do not begin it anew.
func TestHeaderTimeoutBehindInterimResponses(t *testing.T) {
	for _, over := range []string{overHTTP1, overHTTP2} {
		end := make(chan struct{})
		url := ""
		if over == overHTTP2 {
			url = framed(t, func(fr *http2.Framer, f http2.Frame) {
				for f.Header().Type == http2.FrameHeaders {
					answer(fr, f.Header().StreamID, "103", false)
					select {
					case <-end:
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
		} else {
			url = scripted(t, func(c net.Conn, r *bufio.Reader) {
				for readHead(r); ; {
					io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n")
					select {
					case <-end:
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
		}
		std := speaking(over)
		std.ResponseHeaderTimeout = 100 * time.Millisecond
		defer std.CloseIdleConnections()
		for of, rt := range map[string]http.RoundTripper{"http.Transport": std, "Transport": likeOf(t, std)} {
			_, err := rt.RoundTrip(request(t, "GET", url, nil))
			if e, is := err.(net.Error); !is || !e.Timeout() || //nolint:errorlint // as it is
				!strings.HasSuffix(err.Error(), ": timeout awaiting response headers") {
				t.Errorf("%s, %s: %v", over, of, err)
			}
		}
		close(end)
	}
}

// A server may say 408 before it closes an idle connection. It is no response, and the next
// request, which may not be sent twice, gets another connection.
func TestRequestTimeoutOfAnIdleConnection(t *testing.T) {
	said := make(chan struct{}, 1)
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n")
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c)
		said <- struct{}{}
	})
	tr := fresh(t, &Transport{})
	for range 3 {
		if got := whole(tr, request(t, "POST", url, strings.NewReader("x"))); got != `204 "" <nil>` {
			t.Error(got)
		}
		<-said // the client has closed
	}
}

// What Transport.Protocols and a server's ALPN have in common is spoken, and both Transports agree
// on what to do if that is nothing.
func TestProtocolsLikeNetHTTP(t *testing.T) {
	set := func(names string) *http.Protocols {
		p := new(http.Protocols)
		p.SetHTTP1(strings.Contains(names, "1"))
		p.SetHTTP2(strings.Contains(names, "2"))
		p.SetUnencryptedHTTP2(strings.Contains(names, "c"))
		return p
	}
	for name, tt := range map[string]struct {
		plain  bool
		server []string // of ALPN; nil: none
		client *http.Protocols
		force  bool
	}{
		"both":                             {server: []string{"h2", "http/1.1"}, force: true},
		"HTTP/1 by default":                {server: []string{"h2", "http/1.1"}},
		"HTTP/1 alone at the server":       {server: []string{"http/1.1"}, force: true},
		"no ALPN":                          {force: true},
		"another name":                     {server: []string{"spdy/3"}, force: true},
		"HTTP/2 alone":                     {server: []string{"h2", "http/1.1"}, client: set("2")},
		"HTTP/2 alone to HTTP/1":           {server: []string{"http/1.1"}, client: set("2")},
		"HTTP/2 alone without ALPN":        {client: set("2")},
		"HTTP/1 alone":                     {server: []string{"h2", "http/1.1"}, client: set("1"), force: true},
		"without TLS alone, to TLS":        {server: []string{"h2", "http/1.1"}, client: set("c")},
		"nothing":                          {server: []string{"h2", "http/1.1"}, client: set("")},
		"plain":                            {plain: true},
		"plain by HTTP/2 alone":            {plain: true, client: set("2")},
		"plain by both":                    {plain: true, client: set("1c")},
		"plain with nothing":               {plain: true, client: set("")},
		"plain by prior knowledge, HTTP/1": {plain: true, client: set("c")},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(ok))
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			if tt.plain {
				s.Start()
			} else {
				s.EnableHTTP2 = len(tt.server) > 0 && tt.server[0] == "h2"
				s.TLS = &tls.Config{NextProtos: tt.server}
				if tt.server == nil {
					s.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
						return &tls.Config{Certificates: s.TLS.Certificates}, nil
					}
				}
				s.StartTLS()
			}
			t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
			std := &http.Transport{Protocols: tt.client, ForceAttemptHTTP2: tt.force}
			if !tt.plain {
				std.TLSClientConfig = trusting(s)
				std.TLSClientConfig.NextProtos = nil
			}
			defer std.CloseIdleConnections()
			own := likeOf(t, std)
			show := func(rt http.RoundTripper) string {
				if got := whole(rt, request(t, "GET", s.URL, nil)); !strings.HasPrefix(got, "error ") {
					return got
				}
				return "an error"
			}
			if want, got := show(std), show(own); got != want {
				t.Errorf("they differ\nhttp.Transport: %s\n     Transport: %s", want, got)
			}
		})
	}
}

// A proxy that sends a head without an end to CONNECT is bounded.
func TestEndlessProxy(t *testing.T) {
	for _, first := range []string{"HTTP/1.1 200 OK\r\n", ""} {
		sent := make(chan int64, 1)
		proxy := scripted(t, func(c net.Conn, r *bufio.Reader) {
			readHead(r)
			n, _ := io.WriteString(c, first)
			line := []byte(strings.Repeat("X-Header: value\r\n", 64))
			total := int64(n)
			for {
				n, err := c.Write(line)
				if total += int64(n); err != nil {
					break
				}
			}
			sent <- total
		})
		tr := fresh(t, &Transport{Proxy: proxied(t, proxy), MaxResponseHeaderBytes: 64 << 10})
		if r, err := tr.RoundTrip(request(t, "GET", "https://origin.example/", nil)); err == nil {
			r.Body.Close()
			t.Errorf("%q: %s", first, r.Status)
		}
		if n := <-sent; n > 32<<20 { // with what the kernel takes
			t.Errorf("%q: the proxy could send %d bytes", first, n)
		}
	}
}

// An upgrade beside HTTP/2 has a connection of HTTP/1, and what the server says at once is not
// lost.
func TestUpgradeBesideHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(w, r.Proto)
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nfirst ")
		io.Copy(struct{ io.Writer }{c}, rw) // package net would make a pipe for two connections
		c.Close()
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	for _, limit := range []int{0, 2} {
		std := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: trusting(s), MaxConnsPerHost: limit}
		defer std.CloseIdleConnections()
		for of, rt := range map[string]http.RoundTripper{"http.Transport": std, "Transport": likeOf(t, std)} {
			for range 2 {
				if got := whole(rt, request(t, "GET", s.URL, nil)); got != `200 "HTTP/2.0" <nil>` {
					t.Errorf("%s: %s", of, got)
				}
				req := request(t, "GET", s.URL, nil)
				req.Header.Set("Connection", "keep-alive, Upgrade")
				req.Header.Set("Upgrade", "websocket")
				r, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatalf("%s: %v", of, err)
				}
				both := r.Body.(io.ReadWriteCloser)
				p := make([]byte, len("first then"))
				io.WriteString(both, "then")
				if _, err := io.ReadFull(both, p); string(p) != "first then" {
					t.Errorf("%s: %q, %v", of, p, err)
				}
				both.Close()
			}
		}
	}
}
