package webtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
)

// patience bounds a request with the whole of its answer.
const patience = time.Minute

// A Server is a web.Server on an engine and an address of its own.
type Server struct {
	// URL is http://host:port or https://host:port, without a slash at its end. It is empty until
	// the server has started.
	URL string
	// Config is the server that runs. Between NewUnstartedServer and Start or StartTLS it may be
	// changed, with its TLSConfig and its Engine.
	Config *web.Server
	// EnableHTTP2 has Client speak HTTP/2 with a server of StartTLS. Set it before. The server
	// itself speaks HTTP/2 with every client that offers it, unless Config.Protocols says
	// otherwise.
	EnableHTTP2 bool

	engine    *myriad.Engine // nil if it is the program's own
	leaf      *x509.Certificate
	transport *http.Transport
}

// NewServer starts a server. Close ends it. It panics if it cannot listen.
func NewServer(h http.Handler) *Server {
	s := NewUnstartedServer(h)
	s.Start()
	return s
}

// NewTLSServer starts a server of HTTPS. Close ends it. It panics if it cannot listen. Client
// trusts its certificate, which is for 127.0.0.1, ::1, localhost, example.com and its subdomains.
func NewTLSServer(h http.Handler) *Server {
	s := NewUnstartedServer(h)
	s.StartTLS()
	return s
}

// NewUnstartedServer returns a server that does not listen yet. When Config is as it should be,
// call Start or StartTLS, and later Close.
func NewUnstartedServer(h http.Handler) *Server {
	return &Server{Config: &web.Server{Handler: h}}
}

// Start starts a server of NewUnstartedServer. Without Config.Engine it starts an engine, which
// Close ends. It panics if it cannot listen, or if the server has been started.
func (s *Server) Start() {
	s.begin("http", &http.Transport{}, func() (*web.Listener, error) { return s.Config.Listen("tcp", "127.0.0.1:0") })
}

// StartTLS is Start for HTTPS. If Config.TLSConfig has no certificate, and no function that gets
// one, the server uses that of NewTLSServer. Client trusts the first certificate in TLSConfig.
func (s *Server) StartTLS() {
	config := new(tls.Config)
	if s.Config.TLSConfig != nil {
		config = s.Config.TLSConfig.Clone()
	}
	if len(config.Certificates) == 0 && config.GetCertificate == nil && config.GetConfigForClient == nil {
		config.Certificates = []tls.Certificate{certificate()}
	}
	if len(config.Certificates) > 0 {
		leaf, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
		if err != nil {
			panic(fmt.Sprintf("webtest: Config.TLSConfig.Certificates[0]: %v", err))
		}
		s.leaf = leaf
	}
	s.Config.TLSConfig = config
	transport := &http.Transport{TLSClientConfig: s.trust(), ForceAttemptHTTP2: s.EnableHTTP2}
	s.begin("https", transport, func() (*web.Listener, error) {
		return s.Config.ListenTLS("tcp", "127.0.0.1:0", "", "")
	})
}

func (s *Server) begin(scheme string, transport *http.Transport, listen func() (*web.Listener, error)) {
	if s.URL != "" {
		panic("webtest: the server has been started already")
	}
	if s.Config.Engine == nil {
		engine, err := myriad.Start(myriad.Config{})
		if err != nil {
			panic(fmt.Sprintf("webtest: start an engine: %v", err))
		}
		s.Config.Engine, s.engine = engine, engine
	}
	ln, err := listen()
	if err != nil {
		s.Close()
		panic(fmt.Sprintf("webtest: listen: %v", err))
	}
	s.transport = transport
	s.URL = scheme + "://" + ln.Addr().String()
}

// trust is the configuration of clients.
func (s *Server) trust() *tls.Config {
	roots := x509.NewCertPool()
	if s.leaf != nil {
		roots.AddCert(s.leaf)
	}
	return &tls.Config{RootCAs: roots}
}

// Certificate returns the certificate that Client trusts. It is nil without TLS, and if only a
// function of TLSConfig has certificates.
func (s *Server) Certificate() *x509.Certificate { return s.leaf }

// Client is a client whose idle connections Close ends, and that trusts Certificate. Its requests,
// with their answers, may take a minute. The server must have been started.
func (s *Server) Client() *http.Client {
	if s.transport == nil {
		panic("webtest: a client of a server that has not been started")
	}
	return &http.Client{Transport: s.transport, Timeout: patience}
}

// Close ends all connections, also those of streams and WebSockets, and returns when their
// callbacks have been called and the handlers have returned. With a Config.Engine of the program's
// own it closes the server alone, and upgraded connections stay. A server that has not been started
// needs no Close.
func (s *Server) Close() {
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
	_ = s.Config.Close() // what it returns is the listener's error, and the engine closes that too
	if s.engine != nil {
		_ = s.engine.Shutdown(context.Background())
	}
}
