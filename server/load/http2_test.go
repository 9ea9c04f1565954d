package load

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web"
)

// protocols are those of a server that speaks HTTP/2 in the clear.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// serveH2 starts one of two servers that speak HTTP/2, and returns its URL.
func serveH2(t *testing.T, kind string, secure bool, streams int, h http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	switch {
	case kind == "net/http" && secure:
		s.EnableHTTP2 = true
		s.StartTLS()
	case kind == "net/http":
		s.Config.Protocols = protocols()
		s.Start()
	default:
		return serveWebH2(t, secure, streams, h)
	}
	t.Cleanup(s.Close)
	return s.URL
}

// serveWebH2 starts a web.Server, with the certificate of httptest.
func serveWebH2(t *testing.T, secure bool, streams int, h http.Handler) string {
	t.Helper()
	s := &web.Server{Handler: h, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams}}
	if !secure {
		s.Protocols = protocols()
		return serveWith(t, s)
	}
	model := httptest.NewTLSServer(h)
	defer model.Close()
	s.TLSConfig = &tls.Config{Certificates: model.TLS.Certificates} //nolint:gosec // a test
	return serveWith(t, s)
}

func TestHTTP2(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind string
		tls  bool
	}{{"net/http", false}, {"net/http", true}, {"web", false}, {"web", true}} {
		name := tt.kind
		if tt.tls {
			name += " over TLS"
		}
		t.Run(name, func(t *testing.T) {
			var served, under, most, begun atomic.Int64
			second := make(chan struct{})
			at := serveH2(t, tt.kind, tt.tls, 0, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				now := under.Add(1)
				switch begun.Add(1) {
				case 1: // there are several at a time: the next one does not wait for this one
					select {
					case <-second:
					case <-r.Context().Done():
					}
				case 2:
					close(second)
				}
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				body, _ := io.ReadAll(r.Body)
				served.Add(1)
				if r.Proto != "HTTP/2.0" || r.Header.Get("X-Kind") != "load" || string(body) != "question" {
					w.WriteHeader(400)
				}
				_, _ = io.WriteString(w, strings.Repeat("answer", 1000))
				under.Add(-1)
			}))
			p := Plan{Kind: HTTP, URL: at, Connections: 3, HTTP2: true, Streams: 5, Insecure: true, Body: "question",
				Header: []string{"X-Kind: load"}}
			r := run(t, p, Options{}, requests(200))
			if n := r.Total.Requests; n < 200 || n > served.Load() || r.Failures() != 0 || r.Open != 3 {
				t.Errorf("%d requests counted, %d served, %d connections, failures %v", n, served.Load(), r.Open,
					r.Total.Failed)
			}
			if n := most.Load(); n < 2 || n > 15 {
				t.Errorf("%d requests at a time, want up to 15", n)
			}
			if r.Total.Bytes < 6000*r.Total.Requests/2 {
				t.Errorf("%d bytes for %d requests", r.Total.Bytes, r.Total.Requests)
			}
		})
	}
}

// The server's limit makes requests wait; none is lost.
func TestHTTP2WaitsForStreams(t *testing.T) {
	t.Parallel()
	var under atomic.Int64
	at := serveH2(t, "net/http", false, 2, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if under.Add(1) > 2 {
			w.WriteHeader(500)
		}
		under.Add(-1)
	}))
	r := run(t, Plan{Kind: HTTP, URL: at, Connections: 1, HTTP2: true, Streams: 10}, Options{}, requests(100))
	if r.Failures() != 0 || r.Total.Lost != 0 {
		t.Errorf("failures %v, %d connections lost", r.Total.Failed, r.Total.Lost)
	}
}

// A server that wants its connections closed is connected to again, and loses no request.
func TestHTTP2AfterGoAway(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	at := serveH2(t, "net/http", false, 0, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if served.Add(1)%50 == 0 {
			w.Header().Set("Connection", "close") // net/http sends GOAWAY
		}
	}))
	r := run(t, Plan{Kind: HTTP, URL: at, Connections: 2, HTTP2: true, Streams: 3}, Options{},
		func(s *Sample) bool { return s.Requests >= 200 && s.Opened > 3 })
	if r.Failures() != 0 {
		t.Errorf("failures %v", r.Total.Failed)
	}
}

func TestHTTP2IsRefused(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.NotFoundHandler()) // it offers HTTP/1.1 only
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	p := Plan{Kind: HTTP, URL: s.URL, Connections: 1, HTTP2: true, Insecure: true, Duration: time.Second}
	_, err := Run(t.Context(), p, Options{OpenTimeout: 2 * time.Second})
	if err == nil || !strings.Contains(err.Error(), "no connection to") {
		t.Errorf("the error was %v", err)
	}
	for _, tt := range []struct {
		change func(p *Plan)
		want   string
	}{
		{func(p *Plan) { p.Pipeline = 2 }, "give streams instead"},
		{func(p *Plan) { p.HTTP2, p.Streams = false, 2 }, "HTTP/1 has a pipeline"},
		{func(p *Plan) { p.Kind = Echo }, "it is for http"},
		{func(p *Plan) { p.Header = []string{"Connection: close"} }, "HTTP/2 forbids it"},
	} {
		p := p
		tt.change(&p)
		if err := p.withDefaults().check(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("the error was %v, want %q", err, tt.want)
		}
	}
}

// A server without HTTP/2 is named as the reason, and not waited for until OpenTimeout.
func TestHTTP2WithoutTLSIsMissing(t *testing.T) {
	t.Parallel()
	at := serve(t, http.NotFoundHandler())
	p := Plan{Kind: HTTP, URL: at, HTTP2: true, Connections: 1, Duration: time.Second}
	_, err := Run(t.Context(), p, Options{})
	if err == nil || !strings.Contains(err.Error(), "by prior knowledge?") {
		t.Errorf("the error was %v", err)
	}
}
