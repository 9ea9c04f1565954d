package push

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/guard"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/membus"
	"github.com/myriad-go/myriad/server/push/token"
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

	// Engine is the engine of the web.Server. The server asks how late it is: clients of a late
	// server have more time, and publications are refused that could not be delivered
	// (ErrOverloaded). The console shows its loops and bytes. nil: it is never late, and the
	// console omits them.
	Engine *myriad.Engine
	// Bus carries publications. Several servers may share it. Its maker closes it, after Shutdown
	// of all of them. Default: a membus.Bus of the server's own, which Shutdown closes, with the
	// limits, the clock and the randomness of this Config.
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
	// OpenStream begins a response that does not end. It is for tests whose ResponseWriter is not
	// that of a web.Server. Default: web.Detached.
	OpenStream func(w http.ResponseWriter) (hub.ResponseStream, error)
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
	config         Config
	hub            *hub.Hub
	own            *membus.Bus // the bus that New has made; nil: it has made none
	cluster        *cluster
	sampler        *sampler // nil without a console
	unready        atomic.Bool
	handler        http.Handler
	clients, admin http.Handler // parts of handler

	doors, adminDoors []func(mux *http.ServeMux) // the paths of the doors
}

// An AdminDoor is a door for programs and operators, which also uses the calls of the Server.
type AdminDoor interface {
	Door
	// OpenAdmin prepares the door for its server, and returns what adds its paths to a mux. New
	// calls it once, after Open.
	OpenAdmin(s *Server) (admin func(mux *http.ServeMux))
}

// New returns a server that is ready to serve. Call Shutdown when done. It fails if an allowed
// origin or a namespace is malformed, or if the doors have more forms than Door allows.
func New(c Config) (*Server, error) {
	c = c.withDefaults()
	origins, wrong := guard.NewOrigins(c.AllowedOrigins, c.Hooks.Headers)
	rules, err := policy.NewNamespaces(c.Namespaces, c.NeedsTokens())
	if err = errors.Join(wrong, err, c.Hooks.Check(c.Namespaces), checkUsers(c.Namespaces,
		c.Authenticates())); err != nil {
		return nil, err
	}
	tokens, err := newTokenVerifier(c, c.Clock, c.Logger)
	if err != nil {
		return nil, err
	}
	var own *membus.Bus
	if c.Bus == nil {
		own = membus.New(membus.Config{
			HistoryBytes: c.Limits.HistoryBytes, HistoryChannels: c.Limits.HistoryChannels,
			IdempotencyKeys: c.Limits.IdempotencyKeys, Clock: c.Clock, Random: c.Random,
		})
		c.Bus = own
	}
	s := &Server{config: c, own: own}
	s.hub, err = hub.New(hub.Config{
		Bus: c.Bus, OwnsBus: own != nil, Rules: newTable(c, rules), Rates: c.Rates, Tokens: tokens,
		Keys: guard.NewKeys(c.APIKey, c.ConsoleKey, c.Authenticates()), Origins: origins, Limits: c.Limits,
		Timing: c.Timing, Forms: hub.FormsOf(c.Doors), Hooks: c.Hooks, RPC: c.RPC, Message: c.Message,
		Version: c.Version, Clock: c.Clock, Random: c.Random, OpenStream: c.OpenStream, Logger: c.Logger,
		Console: !c.DisableConsole, Late: func() time.Duration { return lateOf(c.Engine) },
	})
	if err != nil {
		if own != nil {
			err = errors.Join(err, own.Close())
		}
		return nil, err
	}
	if !c.DisableConsole {
		s.sampler = newSampler(s.hub, c.Engine, c.Clock.Now())
	}
	s.cluster = newCluster(s.hub, c)
	for _, d := range c.Doors {
		s.open(d)
	}
	guard := func(parts ...func(*http.ServeMux)) http.Handler {
		return origins.Guard(guard.PlainBodies(s.routes(parts...)), func(r *http.Request) {
			s.hub.CountRequestRefusal(hub.RefusedOrigin, r, "origin", r.Header.Get("Origin"))
		})
	}
	s.handler = guard(s.routeClients, s.routeAdmin)
	s.clients, s.admin = guard(s.routeClients), guard(s.routeAdmin)
	s.hub.StartClock(s.sampler.tick)
	return s, nil
}

// open opens a door, and keeps what adds its paths to a mux.
func (s *Server) open(d Door) {
	clients, admin := d.Open(s.hub)
	if clients != nil {
		s.doors = append(s.doors, clients)
	}
	if admin != nil {
		s.adminDoors = append(s.adminDoors, admin)
	}
	if a, ok := d.(AdminDoor); ok {
		s.adminDoors = append(s.adminDoors, a.OpenAdmin(s))
	}
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = hub.SystemClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Version, c.Node = cmp.Or(c.Version, "myriad"), cmp.Or(c.Node, "myriad")
	if c.Random == nil {
		c.Random = rand.Reader
	} else {
		c.Random = &lockedReader{r: c.Random}
	}
	c.Limits = c.Limits.WithDefaults()
	return c
}

// newTable returns a table of all, with what c says of every channel.
func newTable(c Config, all policy.Namespaces) *policy.Table {
	t := &policy.Table{LongestName: c.Limits.WithDefaults().ChannelName, DenyClientPublish: c.DenyClientPublish}
	t.Set(all)
	return t
}

// AllowsAnyOrigin reports whether an allowed origin names no site: then every web page may use the
// server, without cookies.
func (c Config) AllowsAnyOrigin() bool { return guard.NamesNoSite(c.AllowedOrigins) }

// NeedsTokens reports whether clients need a token.
func (c Config) NeedsTokens() bool { return c.tokens().HasKeys() }

// Authenticates reports whether clients must show who they are: by a token, or to Hooks.Connect.
func (c Config) Authenticates() bool { return c.NeedsTokens() || c.Hooks.Connect != nil }

// tokens returns the part of c that says which tokens are accepted.
func (c Config) tokens() token.Config {
	return token.Config{Secret: c.TokenSecret, Keys: c.TokenKeys, KeysURL: c.TokenKeysURL, Issuer: c.TokenIssuer,
		Audience: c.TokenAudience}
}

// newTokenVerifier returns nil without a key: clients then need no token.
func newTokenVerifier(c Config, clock Clock, log *slog.Logger) (*token.Verifier, error) {
	t := c.tokens()
	t.Now, t.Log = clock.Now, log
	return token.New(t)
}

// checkUsers returns an error for rules about users if no client has one.
func checkUsers(list []Namespace, authenticates bool) (err error) {
	for _, ns := range list {
		if (ns.UserLimited || ns.Personal) && !authenticates {
			err = errors.Join(err,
				ns.Wrong("channels for users, and no client has a user: set a token secret too, or a "+
					"hook for connect"))
		}
	}
	return err
}

// routes returns a handler of /health and of the paths that parts add.
func (s *Server) routes(parts ...func(*http.ServeMux)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.hub.UnlessDraining(s.serveHealth))
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
	(&promMetrics{hub: s.hub, bus: s.config.Bus, node: s.config.Node, engine: s.config.Engine}).route(mux)
}

// ServeHTTP serves all paths.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Clients returns a handler of the paths that clients use, and of /health. Clients and Admin
// together divide the server between two listeners; clients need to reach only this one.
func (s *Server) Clients() http.Handler { return s.clients }

// Admin returns a handler of all other paths, and of /health: the HTTP API, the metrics and the
// console.
func (s *Server) Admin() http.Handler { return s.admin }

// serveHealth answers 200 until Unready, Drain or Shutdown is called, then 503, so that a load
// balancer stops sending clients. It also answers 503 while this node does not have what other
// nodes publish. With Config.Engine the body says how late the loops are, and what waits for that.
// That does not change the status: under overload all nodes are late at once, and a load balancer
// would take them all out.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if problem := s.config.Bus.State().Problem; problem != "" {
		answer.WriteError(w, http.StatusServiceUnavailable, ErrInternal.Code, problem)
		return
	}
	if s.unready.Load() {
		answer.WriteError(w, http.StatusServiceUnavailable, ErrInternal.Code, "the server will shut down")
		return
	}
	body := []byte(`{}`)
	if s.config.Engine != nil {
		stats := s.config.Engine.Stats()
		body = fmt.Appendf(nil, `{"late_us":%d,"tasks_late_us":%d,"newcomers_waiting":%d}`, stats.Late.Microseconds(),
			stats.LateTasks.Microseconds(), stats.Newcomers.Waiting)
	}
	answer.WriteJSON(w, http.StatusOK, body)
}

// lateOf returns how late the loops of an engine are, 0 without one.
func lateOf(engine *myriad.Engine) time.Duration {
	if engine == nil {
		return 0
	}
	return engine.Late()
}

// Config returns what New was given, with defaults for Bus, Clock, Random, Logger, Node, Version
// and Limits.
func (s *Server) Config() Config { return s.config }

// Doors returns Config.Doors.
func (s *Server) Doors() []Door { return s.config.Doors }

// Reload takes Rates, Namespaces, TokenSecret, TokenKeys, TokenIssuer and TokenAudience from c, for
// what comes later: connected clients and their subscriptions stay. It ignores the other fields. If
// it fails, nothing changes. Namespaces must pass CheckNamespaces; nil leaves the rules as they
// are.
func (s *Server) Reload(c Config) error {
	rules, err := s.nextRules(c)
	if err = errors.Join(err, c.Rates.Check()); err != nil {
		return err
	}
	tokens := s.hub.Tokens()
	if c.NeedsTokens() != (tokens != nil) {
		return errors.New("push: a running server cannot begin or cease to need tokens: restart it for that")
	}
	if tokens != nil {
		if err := tokens.Reload(c.tokens()); err != nil {
			return err
		}
	}
	s.hub.SetRules(rules, c.Rates)
	return nil
}

// CheckNamespaces returns why a running server cannot change to c.Namespaces. Channels keep what
// they have from their rules while they have subscribers: the history, its age, recovery, join and
// leave notices, and the policy for slow subscribers. So these cannot change for any channel, and
// in a cluster all nodes must agree on histories.
func (s *Server) CheckNamespaces(c Config) error {
	_, err := s.nextRules(c)
	return err
}

// nextRules returns the rules of c.Namespaces, or those in use if that is nil.
func (s *Server) nextRules(c Config) (policy.Namespaces, error) {
	now := s.hub.Table().Namespaces()
	if c.Namespaces == nil {
		return now, nil
	}
	next, err := policy.NewNamespaces(c.Namespaces, s.hub.Tokens() != nil)
	err = errors.Join(err, s.config.Hooks.Check(c.Namespaces), checkUsers(c.Namespaces, s.hub.Authenticates()))
	if err != nil {
		return next, err
	}
	return next, now.CheckChange(&next)
}

// Unready makes GET /health answer 503, and changes nothing else. So load balancers send new
// clients elsewhere while the server still serves. It is for a caller that will shut down some time
// later.
func (s *Server) Unready() { s.unready.Store(true) }

// Drain makes the server refuse publications and new clients with 503. It returns when the running
// publications are queued for their subscribers. It is for a caller that stops listening before it
// calls Shutdown.
func (s *Server) Drain() { _ = s.hub.Drain(context.Background()) }

// Shutdown drains, and then disconnects every client: the client gets what is queued for it, and a
// close with code 3001 "shutdown". Shutdown waits until the clients have disconnected or ctx ends.
// If some remain, it returns ctx's error, and the caller must close their connections. In each case
// it closes the bus, unless that is Config.Bus: the maker of that one closes it afterwards. The
// web.Server that serves s must still run.
func (s *Server) Shutdown(ctx context.Context) error { return s.hub.Shutdown(ctx) }

// A lockedReader is a reader that several goroutines use.
type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return io.ReadFull(l.r, p)
}
