package webtest

import (
	"context"
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
	// URL is http://host:port, without a slash at its end.
	URL string
	// Config is the server that runs.
	Config *web.Server

	engine    *myriad.Engine
	transport *http.Transport
}

// NewServer starts a server. Close ends it. It panics if it cannot listen.
func NewServer(h http.Handler) *Server {
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		panic(fmt.Sprintf("webtest: start an engine: %v", err))
	}
	s := &Server{Config: &web.Server{Engine: engine, Handler: h}, engine: engine, transport: &http.Transport{}}
	ln, err := s.Config.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("webtest: listen: %v", err))
	}
	s.URL = "http://" + ln.Addr().String()
	return s
}

// Client is a client whose idle connections Close ends. Its requests, with their answers, may take
// a minute.
func (s *Server) Client() *http.Client {
	return &http.Client{Transport: s.transport, Timeout: patience}
}

// Close ends all connections, also those of streams and WebSockets, and returns when their
// callbacks have been called and the handlers have returned.
func (s *Server) Close() {
	s.transport.CloseIdleConnections()
	_ = s.Config.Close() // what it returns is the listener's error, and the engine closes that too
	_ = s.engine.Shutdown(context.Background())
}
