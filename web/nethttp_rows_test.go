package web

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/myriad-go/myriad"
)

// aServer is what http.Server and Server both are.
type aServer interface {
	Serve(net.Listener) error
	ServeTLS(l net.Listener, certFile, keyFile string) error
	Close() error
}

// listenFor has s serve on a new address until stop is called.
func listenFor(t *testing.T, s aServer, serve func(net.Listener) error) (addr string, stop func()) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serve(ln) }()
	stop = func() {
		_ = s.Close()
		if err := <-served; err != http.ErrServerClosed { //nolint:errorlint // its identity is meant
			t.Error(err)
		}
	}
	return ln.Addr().String(), stop
}

// Whether HTTP/2 is served depends on Protocols alone. Serve changes no field.
func TestProtocolsAlone(t *testing.T) {
	certs := httptest.NewUnstartedServer(nil)
	certs.StartTLS()
	defer certs.Close()
	config := &tls.Config{Certificates: certs.TLS.Certificates}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })
	for _, c := range []struct {
		godebug, theirs, ours string
		entry                 bool // of net/http in TLSNextProto
	}{
		{"http2server=1", "HTTP/2.0", "HTTP/2.0", true},
		{"http2server=0", "HTTP/1.1", "HTTP/2.0", false},
	} {
		t.Run(c.godebug, func(t *testing.T) {
			t.Setenv("GODEBUG", c.godebug)
			tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
			ask := func(s aServer) string {
				addr, stop := listenFor(t, s, func(l net.Listener) error { return s.ServeTLS(l, "", "") })
				defer stop()
				defer tr.CloseIdleConnections()
				r, err := (&http.Client{Transport: tr, Timeout: hangs}).Get("https://" + addr)
				return mustBody(t, r, err)
			}
			theirs := &http.Server{Handler: h, TLSConfig: config.Clone()}
			ours := prepare(t, &Server{Handler: h, TLSConfig: config.Clone()}, myriad.Config{Loops: 1}).Server
			if got := ask(theirs); got != c.theirs {
				t.Errorf("http.Server speaks %s, not %s", got, c.theirs)
			}
			if got := ask(ours); got != c.ours {
				t.Errorf("Server speaks %s, not %s", got, c.ours)
			}
			if (theirs.TLSNextProto["h2"] != nil) != c.entry || ours.TLSNextProto != nil {
				t.Errorf("TLSNextProto is %v and %v", theirs.TLSNextProto, ours.TLSNextProto)
			}
		})
	}
}

// Behind a reset there is no connection to give.
func TestHijackOfAResetConn(t *testing.T) {
	ask := func(s func(http.Handler) aServer) error {
		began, hijacked := make(chan bool), make(chan error, 1)
		of := s(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-r.Context().Done()
			nc, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = nc.Close()
			}
			hijacked <- err
		}))
		addr, stop := listenFor(t, of, of.Serve)
		defer stop()
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		<-began
		_ = nc.(*net.TCPConn).SetLinger(0)
		_ = nc.Close()
		return <-hijacked
	}
	if err := ask(func(h http.Handler) aServer { return &http.Server{Handler: h} }); err != nil {
		t.Errorf("http.Server: %v", err)
	}
	err := ask(func(h http.Handler) aServer {
		return prepare(t, &Server{Handler: h}, myriad.Config{Loops: 1}).Server
	})
	if err == nil {
		t.Error("Server: Hijack has succeeded")
	}
}
