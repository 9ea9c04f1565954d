package client

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
	"weak"
)

// A request goes on behind a complete response that the caller has not read.
func TestUploadBehindEarlyResponse(t *testing.T) {
	for _, head := range []string{"Content-Length: 5\r\n", "Content-Length: 5\r\nConnection: close\r\n"} {
		received := make(chan string, 1)
		url := scripted(t, func(c net.Conn, r *bufio.Reader) {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head+"\r\nearly")
			p, err := io.ReadAll(req.Body)
			received <- fmt.Sprintf("%s %v", p, err)
		})
		tr := fresh(t, &Transport{})
		body, write := io.Pipe()
		go func() { io.WriteString(write, "first ") }()
		r, err := tr.RoundTrip(request(t, "POST", url, body))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * uploadGrace) // longer than the request may take once the response has been read
		io.WriteString(write, "second")
		write.Close()
		if got := <-received; got != "first second <nil>" {
			t.Errorf("%q: the server got %q", head, got)
		}
		if p, err := io.ReadAll(r.Body); string(p) != "early" || err != nil {
			t.Errorf("%q: %q, %v", head, p, err)
		}
		r.Body.Close()
	}
}

// When the caller has read the response, the rest of the request has uploadGrace, and its context
// still ends it before.
func TestUploadEndsBehindResponse(t *testing.T) {
	cut := make(chan error, 1)
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly")
		_, err = io.Copy(io.Discard, req.Body)
		cut <- err
	})
	tr := fresh(t, &Transport{})
	for _, cancels := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		body, write := io.Pipe()
		r, err := tr.RoundTrip(request(t, "POST", url, body).WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		if cancels {
			cancel()
		} else if p, err := io.ReadAll(r.Body); string(p) != "early" || err != nil {
			t.Errorf("%q, %v", p, err)
		}
		if err := <-cut; err == nil {
			t.Error("the server got a whole body")
		}
		for err = nil; err == nil; { // a Read that was under way may still take something
			_, err = write.Write([]byte("x"))
		}
		if err != io.ErrClosedPipe {
			t.Errorf("the request's body was not closed: %v", err)
		}
		r.Body.Close()
		cancel()
	}
}

// The body of a response that has switched protocols can end our side alone.
func TestSwitchedHasCloseWrite(t *testing.T) {
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		p, _ := io.ReadAll(r)
		fmt.Fprintf(c, "got %q", p)
	})
	tr := fresh(t, &Transport{})
	req := request(t, "GET", url, nil)
	req.Header.Set("Connection", "upgrade")
	req.Header.Set("Upgrade", "x")
	r, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	io.WriteString(r.Body.(io.Writer), "ping")
	if err := r.Body.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if p, err := io.ReadAll(r.Body); string(p) != `got "ping"` || err != nil {
		t.Errorf("%q, %v", p, err)
	}
}

// The collector closes the connection of a 101 whose body is dropped without Close, as with
// net/http. httputil.ReverseProxy drops it when the server has chosen another protocol.
func TestDroppedSwitchIsClosed(t *testing.T) {
	const conns = 3
	ended := make(chan struct{}, conns)
	target, err := url.Parse(scripted(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: y\r\n\r\n")
		io.Copy(io.Discard, r)
		ended <- struct{}{}
	}))
	if err != nil {
		t.Fatal(err)
	}
	p := httputil.NewSingleHostReverseProxy(target)
	p.Transport = fresh(t, &Transport{})
	p.ErrorLog = log.New(io.Discard, "", 0)
	for range conns {
		req := httptest.NewRequest("GET", "/", nil)
		req.Header.Set("Connection", "upgrade")
		req.Header.Set("Upgrade", "x")
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, req); w.Code != http.StatusBadGateway {
			t.Fatalf("status %d", w.Code)
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for left := conns; left > 0; {
		runtime.GC()
		select {
		case <-ended:
			left--
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%d connections are open", left)
		}
	}
}

// A body that is decompressed may be closed while it is read.
func TestGzipBodyClosedBesideRead(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, strings.Repeat("text ", 1000))
		z.Flush()
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	tr := fresh(t, &Transport{})
	for range 20 {
		r, err := tr.RoundTrip(request(t, "GET", s.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				t.Error("the body has come to its end")
			}
		})
		r.Body.Close()
		wg.Wait()
	}
}

// An idle connection keeps nothing of the requests that it has carried, nor of the one for which it
// was dialled.
func TestIdleConnectionKeepsNoRequest(t *testing.T) {
	for name, secure := range map[string]bool{"clear": false, "TLS": true} {
		for _, h2 := range []bool{false, true} {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				ok(w, r)
			}))
			s.EnableHTTP2 = h2
			s.Config.Protocols = new(http.Protocols)
			s.Config.Protocols.SetHTTP1(!h2)
			s.Config.Protocols.SetHTTP2(h2)
			s.Config.Protocols.SetUnencryptedHTTP2(h2)
			tr := fresh(t, &Transport{Protocols: s.Config.Protocols, ResponseHeaderTimeout: time.Minute})
			if secure {
				s.StartTLS()
				tr.TLSClientConfig = trusting(s)
			} else {
				s.Start()
			}
			type ofRequest struct{}
			type payload struct {
				io.Reader
				text *[4 << 10]byte
			}
			var kept []weak.Pointer[[4 << 10]byte]
			for range 3 {
				p := &payload{iotest.OneByteReader(strings.NewReader("x")), new([4 << 10]byte)}
				kept = append(kept, weak.Make(p.text))
				ctx := context.WithValue(t.Context(), ofRequest{}, p)
				fetch(t, tr, request(t, "POST", s.URL, p).WithContext(ctx))
			}
			for range 100 {
				runtime.GC()
				alive := 0
				for _, p := range kept {
					if p.Value() != nil {
						alive++
					}
				}
				if alive == 0 {
					kept = nil
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if kept != nil {
				t.Errorf("%s, HTTP/2 %v: the requests' bodies are kept", name, h2)
			}
			s.Close()
		}
	}
}

// RoundTrip and the bodies of its responses return the errors of http.Transport: programs compare
// them, assert their types, and ask for what is inside.
func TestErrorsLikeNetHTTP(t *testing.T) {
	failure := errors.New("the request's body fails")
	reset := func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }
	for name, ask := range map[string]func(t *testing.T, rt http.RoundTripper) error{
		"cancelled": func(t *testing.T, rt http.RoundTripper) error {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := rt.RoundTrip(request(t, "GET", scripted(t, func(_ net.Conn, r *bufio.Reader) {
				readHead(r)
				cancel()
				r.ReadByte()
			}), nil).WithContext(ctx))
			return err
		},
		"cause": func(t *testing.T, rt http.RoundTripper) error {
			ctx, cancel := context.WithCancelCause(t.Context())
			_, err := rt.RoundTrip(request(t, "GET", scripted(t, func(_ net.Conn, r *bufio.Reader) {
				readHead(r)
				cancel(failure)
				r.ReadByte()
			}), nil).WithContext(ctx))
			return err
		},
		"cancelled in the body": func(t *testing.T, rt http.RoundTripper) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			url := scripted(t, func(c net.Conn, r *bufio.Reader) {
				readHead(r)
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na")
				r.ReadByte()
			})
			r, err := rt.RoundTrip(request(t, "GET", url, nil).WithContext(ctx))
			if err != nil {
				return err
			}
			r.Body.Read(make([]byte, 1))
			cancel()
			_, err = r.Body.Read(make([]byte, 1))
			return err
		},
		"refused": func(t *testing.T, rt http.RoundTripper) error {
			_, err := rt.RoundTrip(request(t, "GET", "http://127.0.0.1:1", nil))
			return err
		},
		"no such host": func(t *testing.T, rt http.RoundTripper) error {
			_, err := rt.RoundTrip(request(t, "GET", "http://nothing.invalid", nil))
			if d, ok := errors.AsType[*net.DNSError](err); !ok || !d.IsNotFound {
				t.Skipf("no name server says that a name does not exist: %v", err)
			}
			return err
		},
		"closed before the answer": func(t *testing.T, rt http.RoundTripper) error {
			_, err := rt.RoundTrip(request(t, "GET", cutting(t, ""), nil))
			return err
		},
		"reset before the answer": func(t *testing.T, rt http.RoundTripper) error {
			url := scripted(t, func(c net.Conn, r *bufio.Reader) { readHead(r); reset(c) })
			_, err := rt.RoundTrip(request(t, "GET", url, nil))
			return err
		},
		"cut head": func(t *testing.T, rt http.RoundTripper) error {
			_, err := rt.RoundTrip(request(t, "GET", cutting(t, "HTTP/1.1 200 OK\r\nX: y"), nil))
			if !errors.Is(err, io.ErrUnexpectedEOF) { // http.Transport's has a text around it
				t.Error(err)
			}
			return nil
		},
		"cut body": func(t *testing.T, rt http.RoundTripper) error {
			r, err := rt.RoundTrip(request(t, "GET", cutting(t, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"), nil))
			if err != nil {
				return err
			}
			_, err = io.ReadAll(r.Body)
			return err
		},
		"request's body": func(t *testing.T, rt http.RoundTripper) error {
			_, err := rt.RoundTrip(request(t, "POST", serveHTTP(t, ok).URL, iotest.ErrReader(failure)))
			return err
		},
		"closed body": func(t *testing.T, rt http.RoundTripper) error {
			r, err := rt.RoundTrip(request(t, "GET", serveHTTP(t, ok).URL, nil))
			if err != nil {
				return err
			}
			r.Body.Close()
			_, err = r.Body.Read(make([]byte, 1))
			return err
		},
		"unknown authority": func(t *testing.T, rt http.RoundTripper) error {
			s := httptest.NewUnstartedServer(http.HandlerFunc(ok))
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.StartTLS()
			defer s.Close()
			_, err := rt.RoundTrip(request(t, "GET", s.URL, nil))
			if _, ok := err.(*tls.CertificateVerificationError); !ok { //nolint:errorlint // programs assert it
				t.Errorf("%T", err)
			}
			return err
		},
		"HTTPS to HTTP": func(t *testing.T, rt http.RoundTripper) error {
			url := strings.Replace(serveHTTP(t, ok).URL, "http:", "https:", 1)
			if _, err := (&http.Client{Transport: rt}).Get(url); !errors.Is(err, http.ErrSchemeMismatch) {
				t.Errorf("by http.Client: %v", err)
			}
			_, err := rt.RoundTrip(request(t, "GET", url, nil))
			return err
		},
		"closed in the handshake": func(t *testing.T, rt http.RoundTripper) error {
			url := scripted(t, func(_ net.Conn, r *bufio.Reader) { r.ReadByte() })
			_, err := rt.RoundTrip(request(t, "GET", strings.Replace(url, "http:", "https:", 1), nil))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			std := &http.Transport{}
			defer std.CloseIdleConnections()
			theirs, own := kindOf(ask(t, std)), kindOf(ask(t, fresh(t, &Transport{})))
			if theirs != own {
				t.Errorf("http.Transport: %s\nTransport:      %s", theirs, own)
			}
		})
	}
}

// cutting is a server that closes the connection behind what it answers.
func cutting(t *testing.T, answer string) string {
	return scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, answer)
	})
}

// kindOf is what programs find out about an error: its identity, the types inside, and whether it
// is a timeout.
func kindOf(err error) string {
	text := ""
	for _, known := range []error{nil, io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded} {
		if err == known { //nolint:errorlint // its identity is meant
			text = fmt.Sprintf("== %v; ", known)
		}
	}
	timeout, ok := errors.AsType[net.Error](err)
	for e := err; e != nil; e = errors.Unwrap(e) {
		text += fmt.Sprintf("%T ", e)
		if op, ok := e.(*net.OpError); ok {
			text += op.Op + " "
		}
	}
	return text + fmt.Sprint("timeout: ", ok && timeout.Timeout())
}
