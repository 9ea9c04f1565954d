package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
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

// A server that sends close_notify behind its answer has ended the connection, also without FIN.
// The next request, which may not be sent twice, gets another one.
func TestCloseNotifyEndsAConnection(t *testing.T) {
	s := httptest.NewTLSServer(nil)
	cfg, certificates := trusting(s), s.TLS.Certificates
	s.Close()
	sameAnswers(t, func(t *testing.T, over string, rt http.RoundTripper) string {
		force := over == overHTTP2
		switch rt := rt.(type) {
		case *http.Transport:
			rt.TLSClientConfig, rt.ForceAttemptHTTP2, rt.Protocols = cfg.Clone(), force, nil
		case *Transport:
			rt.TLSClientConfig, rt.ForceAttemptHTTP2, rt.Protocols = cfg.Clone(), force, nil
		}
		var conns atomic.Int32
		url := scripted(t, func(c net.Conn, _ *bufio.Reader) {
			conns.Add(1)
			secure := tls.Server(c, &tls.Config{Certificates: certificates, NextProtos: []string{"h2", "http/1.1"}})
			defer io.Copy(io.Discard, c)
			if secure.Handshake() != nil {
				return
			}
			defer secure.CloseWrite()
			if secure.ConnectionState().NegotiatedProtocol != "h2" {
				readHead(bufio.NewReader(secure))
				io.WriteString(secure, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
				return
			}
			io.ReadFull(secure, make([]byte, len(http2.ClientPreface)))
			fr := http2.NewFramer(secure, secure)
			fr.WriteSettings()
			for {
				f, err := fr.ReadFrame()
				if err != nil {
					return
				}
				if f.Header().Type == http2.FrameHeaders {
					answer(fr, f.Header().StreamID, "200", false)
					fr.WriteData(f.Header().StreamID, true, []byte("hi"))
					return
				}
			}
		})
		var said []string
		for range 3 {
			said = append(said, whole(rt, request(t, "POST", strings.Replace(url, "http", "https", 1), nil)))
			time.Sleep(20 * time.Millisecond)
		}
		return fmt.Sprint(said, conns.Load())
	})
}

// A reset behind a whole answer takes nothing of it.
func TestResetBehindAnAnswer(t *testing.T) {
	body := strings.Repeat("x", 64<<10)
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		c.(*net.TCPConn).SetLinger(0)
	})
	tr := fresh(t, &Transport{})
	for range 50 {
		if r, got := get(t, tr, url); got != body {
			t.Errorf("%d, %d bytes", r.StatusCode, len(got))
		}
	}
}

// Handshakes that fail give the place of their connection to the next request.
func TestFailedHandshakesGiveTheirPlace(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	for _, force := range []bool{false, true} {
		tr := fresh(t, &Transport{ForceAttemptHTTP2: force, MaxConnsPerHost: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := tr.RoundTrip(request(t, "GET", s.URL, nil).WithContext(ctx))
				if unknown := (x509.UnknownAuthorityError{}); !errors.As(err, &unknown) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		cancel()
	}
}

// A body that fails before it has given anything ends its own request alone, over HTTP/2 too.
func TestBodyThatFailsAtOnce(t *testing.T) {
	sameAnswers(t, func(t *testing.T, over string, rt http.RoundTripper) string {
		var conns sync.Map
		url := serving(t, over, func(w http.ResponseWriter, r *http.Request) {
			conns.Store(r.RemoteAddr, true)
			if r.URL.Path == "/slow" {
				time.Sleep(100 * time.Millisecond)
			}
			io.Copy(io.Discard, r.Body)
		})
		whole(rt, request(t, "GET", url, nil))
		var slow string
		var wg sync.WaitGroup
		wg.Go(func() { slow = whole(rt, request(t, "GET", url+"/slow", nil)) })
		time.Sleep(20 * time.Millisecond)
		var said []string
		for range 10 {
			said = append(said, whole(rt, request(t, "POST", url, io.MultiReader(broken{}))))
		}
		wg.Wait()
		n := 0
		conns.Range(func(any, any) bool { n++; return true })
		if over == overHTTP1 {
			n = 0
		}
		return fmt.Sprint(slow, said, n)
	})
}

// broken is a body that cannot be read.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("no body") }

// A server that grants what has come, frame by frame, is sent full frames. After a short one
// between them the window would stay short, and so would all that follow.
func TestUploadKeepsToFullFrames(t *testing.T) {
	const size = 8 << 20
	for name, body := range map[string]func() io.Reader{
		"memory":  func() io.Reader { return strings.NewReader(strings.Repeat("x", size)) },
		"reader":  func() io.Reader { return io.LimitReader(endlessly{1 << 20}, size) },
		"pieces":  func() io.Reader { return io.LimitReader(endlessly{1000}, size) },
		"uneven":  func() io.Reader { return io.LimitReader(endlessly{65_537}, size) },
		"trickle": func() io.Reader { return &trickle{strings.Repeat("x", size)} },
	} {
		var frames atomic.Int64
		url := framedUntil(t, func(fr *http2.Framer, f http2.Frame) bool {
			if f, is := f.(*http2.DataFrame); is {
				frames.Add(1)
				if n := uint32(len(f.Data())); n > 0 {
					fr.WriteWindowUpdate(0, n)
					fr.WriteWindowUpdate(f.StreamID, n)
				}
				if f.StreamEnded() {
					answer(fr, f.StreamID, "204", true)
				}
			}
			return true
		})
		if a := whole(overClearH2(t, &Transport{}), request(t, "POST", url, body())); a != `204 "" <nil>` {
			t.Errorf("%s: %s", name, a)
		}
		if n := frames.Load(); n > 4*size/16384 {
			t.Errorf("%s: %d frames", name, n)
		}
	}
}

// endlessly is read in pieces of its length.
type endlessly struct{ n int }

func (e endlessly) Read(p []byte) (int, error) { return min(e.n, len(p)), nil }

// A server that sends close_notify in the middle of an upload, and reads no more, ends the upload.
func TestCloseNotifyEndsAnUpload(t *testing.T) {
	s := httptest.NewTLSServer(nil)
	cfg, certificates := trusting(s), s.TLS.Certificates
	s.Close()
	for _, force := range []bool{false, true} {
		end := make(chan struct{})
		url := scripted(t, func(c net.Conn, _ *bufio.Reader) {
			secure := tls.Server(c, &tls.Config{Certificates: certificates, NextProtos: []string{"h2", "http/1.1"}})
			secure.Read(make([]byte, 1))
			if force {
				http2.NewFramer(secure, secure).WriteSettings()
			}
			io.ReadFull(secure, make([]byte, 32<<10))
			secure.CloseWrite()
			<-end
		})
		url = strings.Replace(url, "http", "https", 1)
		std := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: force}
		own := likeOf(t, std)
		for of, rt := range map[string]http.RoundTripper{"http.Transport": std, "Transport": own} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			req := request(t, "POST", url, io.LimitReader(endlessly{1 << 20}, 1<<30)).WithContext(ctx)
			if _, err := rt.RoundTrip(req); err == nil || ctx.Err() != nil {
				t.Errorf("HTTP/2 %v, %s: %v", force, of, err)
			}
			cancel()
		}
		close(end)
		std.CloseIdleConnections()
	}
}

// Requests that give up while the only dial of their host hangs leave no trace of themselves.
func TestQueueOfAHungDialIsEmpty(t *testing.T) {
	for _, force := range []bool{false, true} {
		end := make(chan struct{})
		tr := fresh(t, &Transport{MaxConnsPerHost: 1, ForceAttemptHTTP2: force,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				select {
				case <-ctx.Done():
				case <-end:
				}
				return nil, errors.New("ended")
			}})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				for range 5 {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
					_, err := tr.RoundTrip(request(t, "GET", "https://name.invalid/", nil).WithContext(ctx))
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		p := &tr.pool
		p.mu.Lock()
		if p.queued != 0 {
			t.Errorf("%d requests wait", p.queued)
		}
		for _, h := range p.hosts {
			if h.calls.waiting != 0 || h.calls.first != nil || h.conns > 1 {
				t.Errorf("%+v", h)
			}
		}
		p.mu.Unlock()
		close(end)
	}
}
