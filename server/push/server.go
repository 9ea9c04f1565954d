package push

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/websocket"
	"github.com/myriad-go/myriad/workers"
)

// Config is what a Server can be told. The zero value serves everybody who can reach it: see APIKey
// and TokenSecret.
type Config struct {
	// APIKey is what the HTTP API needs in the header X-API-Key, or as "Authorization: apikey KEY".
	// Empty: it needs none.
	APIKey string
	// ConsoleKey is what an operator's view needs in X-API-Key: the console asks for it, and shows
	// channels, clients and what is published; with it /metrics names slow clients. Empty: APIKey;
	// and without any key, the view is for everybody if no TokenSecret is set either, else for
	// nobody.
	ConsoleKey string
	// DisableConsole leaves / and /console/ out.
	DisableConsole bool
	// TokenSecret signs the tokens (JWT, HS256, with sub and exp) that clients need to connect.
	// Empty: they need none.
	TokenSecret string
	// AllowedOrigins are the pages besides the server's own that may use it: hosts, or
	// scheme://host, with * for any part.
	AllowedOrigins []string
	// DenyClientPublish answers publications of clients with "permission denied": then only the API
	// publishes.
	DenyClientPublish bool

	// Namespaces are the rules of channels, by the part of their name before the first colon; the
	// one without a name has all others. None: all channels have the rules of the zero Namespace.
	Namespaces []Namespace

	Limits Limits
	Timing Timing

	// Engine is the one that runs the web.Server, for the console's view of loops and bytes.
	// Default: it shows none.
	Engine *myriad.Engine
	// Bus is closed by Shutdown. Default: NewMemoryBus, with the limits, the clock and the
	// randomness of this Config.
	Bus Bus
	// Logger gets one line for every client that is refused or disconnected as slow. Default:
	// slog.Default.
	Logger *slog.Logger
	// Version is what clients and the console are told. Default: "myriad".
	Version string
	// Clock and Random are for simulation. Default: the system's. Random is read under a lock.
	Clock  Clock
	Random io.Reader
}

// A Server pushes publications to subscribers. It is an http.Handler with these paths:
//
//	/connection/websocket  the Centrifuge client protocol v2, JSON
//	/events?channel=…      Server-Sent Events; channel may be repeated
//	/api/publish           POST {"channel": "…", "data": …}; what else there is under /api stands in api.go
//	/metrics  /health  /   Prometheus, a probe, and the console
//
// Who has the head of the answer of /events, or the reply to a subscribe command, gets everything
// that is published from then on.
//
// It must be run by a web.Server: clients are held without a goroutine, which net/http's server
// cannot do.
type Server struct {
	node           *node
	handler        http.Handler
	clients, admin http.Handler // parts of it
	apiKey         *secretKey   // nil: none is needed
	consoleKey     *secretKey   // nil: see Config.ConsoleKey

	pool       *workers.Pool // for commands
	webSockets *websocket.Options

	detach func(w http.ResponseWriter) (eventStream, error) // web.Detached, except in tests
}

// New returns a server that is ready to serve. Call Shutdown when done. It fails if an allowed
// origin or a namespace is malformed.
func New(c Config) (*Server, error) {
	origins, wrong := newOrigins(c.AllowedOrigins)
	n, err := newNode(c)
	if err = errors.Join(wrong, err); err != nil {
		return nil, err
	}
	pool := workers.New(workers.Config{Workers: commandWorkers, Queue: commandQueue, Logger: n.log})
	s := &Server{node: n, pool: pool, webSockets: newWebSockets(n, pool), detach: n.detach}
	s.apiKey, s.consoleKey = newSecretKey(c.APIKey), newSecretKey(c.ConsoleKey)
	if !c.DisableConsole {
		n.sampler = newSampler(n, c.Engine)
	}
	n.open()
	s.handler = origins.guard(s.routes(s.routeClients, s.routeAdmin))
	s.clients, s.admin = origins.guard(s.routes(s.routeClients)), origins.guard(s.routes(s.routeAdmin))
	return s, nil
}

func newNode(c Config) (*node, error) {
	rules, err := newNamespaces(c.Namespaces, c.TokenSecret != "")
	if err != nil {
		return nil, err
	}
	n := &node{
		rules: rules, bus: c.Bus, count: new(counters), limits: c.Limits.withDefaults(),
		timing: c.Timing.withDefaults(),
		clock:  c.Clock, log: c.Logger, version: c.Version, denyClientPublish: c.DenyClientPublish, random: c.Random,
	}
	if n.clock == nil {
		n.clock = systemClock{}
	}
	if n.log == nil {
		n.log = slog.Default()
	}
	if n.version == "" {
		n.version = "myriad"
	}
	if n.random == nil {
		n.random = rand.Reader
	}
	n.id = n.newClientID()
	n.started, n.engine = n.clock.Now(), c.Engine
	if n.bus == nil {
		n.bus = NewMemoryBus(MemoryConfig{
			HistoryBytes: n.limits.HistoryBytes, HistoryChannels: n.limits.HistoryChannels, Clock: n.clock,
			Random: lockedRandom{n},
		})
	}
	n.tokens = newTokenVerifier(c.TokenSecret, n.clock.Now)
	return n, nil
}

// routes has the probe, and what parts add.
func (s *Server) routes(parts ...func(*http.ServeMux)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.unlessDraining(s.serveHealth))
	for _, add := range parts {
		add(mux)
	}
	return mux
}

func (s *Server) routeClients(mux *http.ServeMux) {
	mux.HandleFunc("/connection/websocket", s.unlessDraining(s.serveWebSocket))
	mux.HandleFunc("/events", s.unlessDraining(s.serveEvents))
}

func (s *Server) routeAdmin(mux *http.ServeMux) {
	s.routeAPI(mux)
	s.routeMetrics(mux)
	if s.node.sampler != nil {
		s.routeConsole(mux)
	}
}

// ServeHTTP serves all paths.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Clients returns a handler of the paths that clients use, and of /health. With Admin it divides
// the server between two listeners, of which only this one needs to be reached by clients.
func (s *Server) Clients() http.Handler { return s.clients }

// Admin returns a handler of all other paths, and of /health: the HTTP API, the metrics and the
// console.
func (s *Server) Admin() http.Handler { return s.admin }

// serveHealth answers while clients are welcome: from the moment Drain or Shutdown begins it is
// 503, so that a load balancer stops sending them here.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte(`{}`))
}

func (s *Server) unlessDraining(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.node.isDraining() {
			writeError(w, http.StatusServiceUnavailable, apiInternal, "the server is shutting down")
			return
		}
		next(w, r)
	}
}

// isOpen tells whether nobody needs a key or a token.
func (s *Server) isOpen() bool {
	return s.apiKey == nil && s.consoleKey == nil && s.node.tokens == nil
}

// Drain refuses publications and new clients from now on, with 503, and returns when the
// publications under way are queued for their subscribers. It is for a caller that stops listening
// before it calls Shutdown.
func (s *Server) Drain() { s.node.refuse() }

// Shutdown drains, and then sends every client away: it gets what is queued for it and a proper
// close, with code 3001 "shutdown". Shutdown waits for them to go until ctx ends, and returns ctx's
// error if some are left: then the caller ends their connections. The bus is closed in any case.
// The web.Server that runs s must still be there.
func (s *Server) Shutdown(ctx context.Context) error {
	return errors.Join(s.node.drain(ctx), s.pool.Close(ctx), s.node.close())
}
