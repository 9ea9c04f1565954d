package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/net/http2"
)

// serveH2 counts the connections of a server that speaks HTTP/2.
func serveH2(t *testing.T) (s *httptest.Server, opened *atomic.Int32) {
	opened = new(atomic.Int32)
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto)
	}))
	s.EnableHTTP2 = true
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		opened.Add(1)
		return ctx
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, opened
}

// "Connection: close" of a request ends its connection, though HTTP/2 does not send it.
func TestHTTP2ConnectionClose(t *testing.T) {
	s, opened := serveH2(t)
	tr := fresh(t, &Transport{TLSClientConfig: trusting(s), ForceAttemptHTTP2: true})
	for want := range int32(3) {
		req := request(t, "GET", s.URL, nil)
		req.Header.Set("Connection", "x, Close")
		if _, body := fetch(t, tr, req); body != "HTTP/2.0" || opened.Load() != want+1 {
			t.Errorf("%q on connection %d, want %d", body, opened.Load(), want+1)
		}
	}
}

// A connection is idle for CloseIdleConnections when the caller has all of its response, and not
// used again after it.
func TestHTTP2CloseIdleConnections(t *testing.T) {
	s, opened := serveH2(t)
	tr := fresh(t, &Transport{TLSClientConfig: trusting(s), ForceAttemptHTTP2: true, MaxConnsPerHost: 1})
	for want := range int32(20) {
		get(t, tr, s.URL)
		if tr.CloseIdleConnections(); opened.Load() != want+1 {
			t.Fatalf("%d connections after %d requests", opened.Load(), want+1)
		}
	}
}

// A field block that does not end holds up all of an HTTP/2 connection, so it has a limit of time.
func TestHTTP2StalledFieldBlock(t *testing.T) {
	var requests atomic.Int32
	url := framed(t, func(fr *http2.Framer, f http2.Frame) {
		if f.Header().Type != http2.FrameHeaders {
			return
		}
		if requests.Add(1) == 1 {
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: f.Header().StreamID, BlockFragment: status("200")})
			return
		}
		answer(fr, f.Header().StreamID, "204", true)
	})
	tr := overClearH2(t, &Transport{ResponseHeaderTimeout: 200 * time.Millisecond})
	if _, err := tr.RoundTrip(request(t, "GET", url, nil)); err == nil {
		t.Error("the head never ended, and there is a response")
	}
	// The connection takes requests until its own limit has ended it.
	for t.Context().Err() == nil {
		if r, err := tr.RoundTrip(request(t, "GET", url, nil)); err == nil {
			if r.StatusCode != 204 {
				t.Errorf("status %d", r.StatusCode)
			}
			return
		}
	}
	t.Error("the connection was never given up")
}

// The hooks for connections see each address that is tried, and none if the name has no address.
func TestTraceOfDials(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {})
	tr := fresh(t, &Transport{})
	for _, tt := range []struct{ url, want string }{
		{s.URL, "start tcp " + s.Listener.Addr().String() + ", done tcp " + s.Listener.Addr().String() + " <nil>"},
		{"http://127.0.0.1:1/", "start tcp 127.0.0.1:1, done tcp 127.0.0.1:1 connection refused"},
		{"http://no.such.name.invalid/", "names of no.such.name.invalid, no names"},
	} {
		var mu sync.Mutex
		var events []string
		add := func(event string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, event)
		}
		req := request(t, "GET", tt.url, nil)
		ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			DNSStart: func(i httptrace.DNSStartInfo) { add("names of " + i.Host) },
			DNSDone: func(i httptrace.DNSDoneInfo) {
				if i.Err != nil {
					add("no names")
				}
			},
			ConnectStart: func(network, addr string) { add("start " + network + " " + addr) },
			ConnectDone: func(network, addr string, err error) {
				text := "<nil>"
				if err != nil {
					text = err.Error()
				}
				add("done " + network + " " + addr + " " + text)
			},
		})
		if r, err := tr.RoundTrip(req.WithContext(ctx)); err == nil {
			r.Body.Close()
		}
		mu.Lock()
		if got := strings.Join(events, ", "); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.url, got, tt.want)
		}
		mu.Unlock()
	}
}

// A skipping RoundTripper leaves requests to the Transport.
type skipping struct{}

func (skipping) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrSkipAltProtocol }

// Other schemes are served by those that are registered for them.
func TestRegisterProtocol(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "http") })
	tr := fresh(t, &Transport{})
	tr.RegisterProtocol("file", http.NewFileTransportFS(fstest.MapFS{"a.txt": {Data: []byte("file")}}))
	tr.RegisterProtocol("http", skipping{})
	for url, want := range map[string]string{"file:///a.txt": "file", s.URL: "http"} {
		if _, body := get(t, tr, url); body != want {
			t.Errorf("%s: %q", url, body)
		}
		got := make(chan string, 1)
		tr.Do(request(t, "GET", url, nil), func(r *http.Response, err error) {
			if err != nil {
				t.Errorf("%s: %v", url, err)
				got <- ""
				return
			}
			go func() {
				defer r.Body.Close()
				p, _ := io.ReadAll(r.Body)
				got <- string(p)
			}()
		})
		if body := <-got; body != want {
			t.Errorf("%s by Do: %q", url, body)
		}
	}
	if _, err := tr.RoundTrip(request(t, "GET", "gopher://x/", nil)); err == nil || errors.As(err, new(*Error)) {
		t.Errorf("a scheme that nobody serves: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a scheme can be registered twice")
		}
	}()
	tr.RegisterProtocol("file", skipping{})
}

// A draining RoundTripper reads the body and then leaves the request to the Transport.
type draining struct{}

func (draining) RoundTrip(r *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, r.Body)
	return nil, http.ErrSkipAltProtocol
}

// A request that its scheme's RoundTripper leaves to the Transport has its body again.
func TestRegisterProtocolGivesBodiesAgain(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	tr := fresh(t, &Transport{})
	tr.RegisterProtocol("http", draining{})
	if _, body := fetch(t, tr, request(t, "POST", s.URL, strings.NewReader("sent"))); body != "sent" {
		t.Errorf("%q came back", body)
	}
	got := make(chan error, 1)
	req := request(t, "POST", s.URL, strings.NewReader("sent"))
	tr.Do(req, func(r *http.Response, err error) {
		if err == nil && r.Request != req {
			err = errors.New("the response belongs to another request")
		}
		if err == nil {
			r.Body.Close()
		}
		got <- err
	})
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Each field that is written is traced, those of the Transport too.
func TestTraceOfFields(t *testing.T) {
	s := serveHTTP(t, func(http.ResponseWriter, *http.Request) {})
	tr := fresh(t, &Transport{})
	var mu sync.Mutex
	fields := map[string]string{}
	req := request(t, "POST", s.URL, strings.NewReader("nine byte"))
	req.Header.Set("X-Own", "1")
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteHeaderField: func(name string, values []string) {
			mu.Lock()
			defer mu.Unlock()
			fields[name] = strings.Join(values, "|")
		},
	})
	fetch(t, tr, req.WithContext(ctx))
	mu.Lock()
	defer mu.Unlock()
	for name, want := range map[string]string{
		"Host": s.Listener.Addr().String(), "User-Agent": userAgent, "Content-Length": "9", "X-Own": "1",
		"Accept-Encoding": "gzip",
	} {
		if fields[name] != want {
			t.Errorf("%s was traced as %q, want %q", name, fields[name], want)
		}
	}
}
