package push

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/membus"
	"github.com/myriad-go/myriad/workers"
)

// Config configures a Server. The zero value requires neither keys nor tokens, so it suits only a
// trusted network. See APIKey and TokenSecret.
type Config struct {
	// APIKey is the key of the HTTP API. Requests carry it in X-API-Key, or as "Authorization:
	// apikey KEY". Empty: the API needs no key.
	APIKey string
	// ConsoleKey is the operator's key. Requests carry it in X-API-Key; the console asks for it.
	// With it, the console shows channels, clients and publications, and /metrics names slow
	// clients. If it is empty, APIKey is the operator's key. If both are empty, the console is open
	// to all when clients need neither tokens nor Hooks.Connect, and refused otherwise.
	ConsoleKey string
	// DisableConsole removes the paths / and /console/.
	DisableConsole bool
	// TokenSecret is the secret of the tokens (JWT with sub) that clients need to connect:
	// HS256, HS384 or HS512. Without it, TokenKeys and TokenKeysURL, clients need no token.
	TokenSecret string
	// TokenKeys are public keys for tokens, each in PEM: RSA of at least 2,048 bits (RS256 to
	// PS512), ECDSA (ES256, ES384, ES512) or Ed25519 (EdDSA).
	TokenKeys []string
	// TokenKeysURL is where a JSON Web Key Set with such keys is: https, or http on this machine.
	// The server fetches it when the first token comes, and again every five minutes. It also does
	// so, at most every 10 s, when no known key has signed a token. If fetching fails, keys are
	// used for an hour. A token is refused for good if the keys were fetched after it came, or if
	// it names a key (kid) that is known. Otherwise its client is told to try again.
	TokenKeysURL string
	// TokenIssuer and TokenAudience are what the claims iss and aud must have. Empty: anything.
	TokenIssuer, TokenAudience string
	// AllowedOrigins are the origins whose pages may use the server besides its own: hosts, or
	// scheme://host, each with a port unless the scheme implies it. In them * matches any text
	// within a host. Pages of origins that they name may send cookies. "*" allows every page
	// without them.
	AllowedOrigins []string
	// DenyClientPublish answers publications of clients with "permission denied": only the API may
	// publish.
	DenyClientPublish bool

	// Namespaces are the rules of channels, by the part of the channel's name before the first
	// colon. The namespace without a name has all other channels. If there is none, they have the
	// rules of the zero Namespace.
	Namespaces []Namespace

	// RPC answers the clients' rpc commands: it returns data for the reply, which is JSON for a
	// client that speaks JSON, or an Error. The server calls it on the client's goroutine, one call
	// at a time for each client. nil: clients are answered 108 "not available".
	RPC func(ctx context.Context, client Caller, method string, data []byte) ([]byte, error)
	// Message receives what clients send without expecting a reply, as RPC does. nil: such clients
	// are disconnected with 3508 "not available".
	Message func(ctx context.Context, client Caller, data []byte)
	// Hooks let a program decide what its clients may do.
	Hooks Hooks

	// Doors are the protocols that the server speaks, the HTTP API and the console among them.
	// Package push/doors has all there are. nil: no protocol; the paths are /health and /metrics.
	Doors []Door

	Limits Limits
	Timing Timing
	Rates  Rates

	// Engine is the engine of the web.Server, whose loops and bytes the console shows. nil: the
	// console omits them.
	Engine *myriad.Engine
	// Bus carries publications. Shutdown closes it. Default: a membus.Bus with the limits, the
	// clock and the randomness of this Config.
	Bus bus.Bus
	// Node names this node in a cluster. Default: "myriad".
	Node string
	// RemoveNode makes the cluster forget a node that is gone for good, if this process can. An
	// operator calls it by POST /cluster/remove?node=NAME, as myriad cluster remove does.
	RemoveNode func(ctx context.Context, node string) error
	// Logger gets one line for each client that is refused or disconnected as slow; of refusals at
	// most ten a second, with the number of those left out. Default: slog.Default.
	Logger *slog.Logger
	// Version is the version that clients and the console see. Default: "myriad".
	Version string
	// Clock and Random are for simulation. Default: the system's. Random is read under a lock.
	Clock  Clock
	Random io.Reader
}

// A Server sends publications to subscribers. It is an http.Handler. With doors.All it has these
// paths:
//
//	/connection/websocket  the Centrifuge client protocol v2, JSON and Protobuf; its other transports
//	                       are beside it, and /emulation
//	/events?channel=…      Server-Sent Events; channel may be repeated
//	/.well-known/mercure   a Mercure hub
//	/api/publish           POST {"channel": "…", "data": …}; what else there is under /api stands in
//	                       docs/guides/api.md
//	/metrics  /health  /   Prometheus, a probe, and the console
//
// A client that has received the response header of /events, or the reply to a subscribe command,
// gets everything published from then on.
//
// A web.Server must serve it. Connected clients have no goroutine, which net/http's server does not
// support.
type Server struct {
	node           *node
	handler        http.Handler
	clients, admin http.Handler // parts of handler
	apiKey         *secretKey   // nil: no key is needed
	consoleKey     *secretKey   // nil: see Config.ConsoleKey

	removeNode func(ctx context.Context, node string) error // see Config.RemoveNode

	origins origins

	pool              *workers.Pool // for commands
	given             []Door
	doors, adminDoors []func(mux *http.ServeMux) // the paths of given

	detach func(w http.ResponseWriter) (ResponseStream, error) // calls web.Detached, except in tests
}

// New returns a server that is ready to serve. Call Shutdown when done. It fails if an allowed
// origin or a namespace is malformed, or if the doors have more forms than Door allows.
func New(c Config) (*Server, error) {
	origins, wrong := newOrigins(c.AllowedOrigins)
	n, err := newNode(c)
	if err = errors.Join(wrong, err); err != nil {
		return nil, err
	}
	pool := workers.New(workers.Config{Workers: commandWorkers + max(c.Hooks.AtOnce, 0), Queue: commandQueue,
		Logger: n.log})
	s := &Server{node: n, pool: pool, detach: n.detach, origins: origins.withHeaders(c.Hooks.Headers)}
	n.server, s.removeNode = s, c.RemoveNode
	s.apiKey, s.consoleKey = newSecretKey(c.APIKey), newSecretKey(c.ConsoleKey)
	if !c.DisableConsole {
		n.sampler = newSampler(n, c.Engine)
	}
	s.given = c.Doors
	n.open(c.Doors)
	for _, d := range c.Doors {
		clients, admin := d.Open(s)
		if clients != nil {
			s.doors = append(s.doors, clients)
		}
		if admin != nil {
			s.adminDoors = append(s.adminDoors, admin)
		}
	}
	guard := func(parts ...func(*http.ServeMux)) http.Handler {
		return s.origins.guard(plainBodies(s.routes(parts...)), func(r *http.Request) {
			n.refusedRequest(RefusedOrigin, r, "origin", r.Header.Get("Origin"))
		})
	}
	s.handler = guard(s.routeClients, s.routeAdmin)
	s.clients, s.admin = guard(s.routeClients), guard(s.routeAdmin)
	return s, nil
}

func newNode(c Config) (*node, error) {
	rules, err := newNamespaces(c.Namespaces, c.NeedsTokens())
	if err = errors.Join(err, c.Hooks.check(c.Namespaces), checkUsers(c.Namespaces, c.Authenticates()),
		c.Rates.check(), checkForms(c.Doors)); err != nil {
		return nil, err
	}
	n := &node{
		rules: newRuleTable(rules), bus: c.Bus, count: new(counters), limits: c.Limits.withDefaults(),
		timing: c.Timing.withDefaults(),
		clock:  c.Clock, log: c.Logger, version: c.Version, denyClientPublish: c.DenyClientPublish, random: c.Random,
		onRPC: guardedRPC(c.RPC), hooks: c.Hooks.guarded(), remember: c.Hooks.any() || c.RPC != nil ||
			c.Message != nil,
	}
	n.rates.Store(newRates(c.Rates))
	if n.clock == nil {
		n.clock = systemClock{}
	}
	if n.log == nil {
		n.log = slog.Default()
	}
	n.onMessage = guardedMessage(c.Message, n.log)
	if n.version == "" {
		n.version = "myriad"
	}
	if n.name = c.Node; n.name == "" {
		n.name = "myriad"
	}
	if n.random == nil {
		n.random = rand.Reader
	}
	n.id = n.newClientID()
	n.started, n.engine = n.clock.Now(), c.Engine
	if n.bus == nil {
		n.bus = membus.New(membus.Config{
			HistoryBytes: n.limits.HistoryBytes, HistoryChannels: n.limits.HistoryChannels,
			IdempotencyKeys: n.limits.IdempotencyKeys, Clock: n.clock, Random: lockedRandom{n},
		})
	}
	n.tokens, err = newTokenVerifier(c, n.clock, n.log)
	return n, err
}

// checkUsers returns an error for rules about users if no client has one.
func checkUsers(list []Namespace, authenticates bool) (err error) {
	for _, ns := range list {
		if (ns.UserLimited || ns.Personal) && !authenticates {
			err = errors.Join(err,
				ns.wrong("channels for users, and no client has a user: set a token secret too, or a "+
					"hook for connect"))
		}
	}
	return err
}

// routes returns a handler of /health and of the paths that parts add.
func (s *Server) routes(parts ...func(*http.ServeMux)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.UnlessDraining(s.serveHealth))
	for _, add := range parts {
		add(mux)
	}
	return mux
}

func (s *Server) routeClients(mux *http.ServeMux) {
	for _, route := range s.doors {
		route(mux)
	}
}

func (s *Server) routeAdmin(mux *http.ServeMux) {
	for _, route := range s.adminDoors {
		route(mux)
	}
	s.routeMetrics(mux)
}

// ServeHTTP serves all paths.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Clients returns a handler of the paths that clients use, and of /health. Clients and Admin
// together divide the server between two listeners; clients need to reach only this one.
func (s *Server) Clients() http.Handler { return s.clients }

// Admin returns a handler of all other paths, and of /health: the HTTP API, the metrics and the
// console.
func (s *Server) Admin() http.Handler { return s.admin }

// serveHealth answers 200 until Drain or Shutdown begins, then 503, so that a load balancer stops
// sending clients. It also answers 503 while this node does not have what other nodes publish.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if problem := s.node.bus.State().Problem; problem != "" {
		WriteError(w, http.StatusServiceUnavailable, ErrInternal.Code, problem)
		return
	}
	WriteJSON(w, http.StatusOK, []byte(`{}`))
}

// UnlessDraining answers 503 in place of next when Drain or Shutdown was called.
func (s *Server) UnlessDraining(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.node.isDraining() {
			WriteError(w, http.StatusServiceUnavailable, ErrInternal.Code, "the server is shutting down")
			return
		}
		next(w, r)
	}
}

// isOpen reports whether the server requires neither keys nor tokens.
func (s *Server) isOpen() bool {
	return s.apiKey == nil && s.consoleKey == nil && !s.node.authenticates()
}

// Reload takes Rates, Namespaces, TokenSecret, TokenKeys, TokenIssuer and TokenAudience from c, for
// what comes later: connected clients and their subscriptions stay. It ignores the other fields. If
// it fails, nothing changes. Namespaces must pass CheckNamespaces; nil leaves the rules as they
// are.
func (s *Server) Reload(c Config) error {
	rules, err := s.nextRules(c)
	if err = errors.Join(err, c.Rates.check()); err != nil {
		return err
	}
	if c.NeedsTokens() != (s.node.tokens != nil) {
		return errors.New("push: a running server cannot begin or cease to need tokens: restart it for that")
	}
	if s.node.tokens != nil {
		if err := s.node.tokens.Reload(c.tokens()); err != nil {
			return err
		}
	}
	s.node.rates.Store(newRates(c.Rates))
	s.node.rules.Store(&rules)
	return nil
}

// Drain makes the server refuse publications and new clients with 503. It returns when the running
// publications are queued for their subscribers. It is for a caller that stops listening before it
// calls Shutdown.
func (s *Server) Drain() { _ = s.node.refuse(context.Background()) }

// Shutdown drains, and then disconnects every client: the client gets what is queued for it, and a
// close with code 3001 "shutdown". Shutdown waits until the clients have disconnected or ctx ends.
// If some remain, it returns ctx's error, and the caller must close their connections. It always
// closes the bus. The web.Server that serves s must still run.
func (s *Server) Shutdown(ctx context.Context) error {
	return errors.Join(s.node.drain(ctx), s.pool.Close(ctx), s.node.close())
}
