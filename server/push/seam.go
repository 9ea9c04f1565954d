package push

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/myriad-go/myriad/server/push/guard"

	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"

	"github.com/myriad-go/myriad/server/push/token"

	"github.com/myriad-go/myriad/workers"
)

// This file holds what a door asks of its server, besides the operations of sessions and the calls
// of the Go API. Any goroutine may call it.

// Limits returns the limits with their defaults.
func (s *Server) Limits() Limits { return s.node.limits }

// Timing returns the intervals and timeouts with their defaults.
func (s *Server) Timing() Timing { return s.node.timing }

// Logger returns the logger.
func (s *Server) Logger() *slog.Logger { return s.node.log }

// Clock returns the clock.
func (s *Server) Clock() Clock { return s.node.clock }

// Version returns Config.Version.
func (s *Server) Version() string { return s.node.version }

// NodeID returns the random id that names this node in the cluster.
func (s *Server) NodeID() string { return s.node.id.String() }

// NewID returns a random UUID (RFC 9562 §5.4).
func (s *Server) NewID() string { return s.node.newClientID().String() }

// Doors returns Config.Doors.
func (s *Server) Doors() []Door { return s.given }

// Workers returns the pool that runs slow commands.
func (s *Server) Workers() *workers.Pool { return s.pool }

// Bus returns the bus.
func (s *Server) Bus() bus.Bus { return s.node.bus }

// Local returns the bus if it is one within this process, else nil.
func (s *Server) Local() bus.Local { return s.node.local }

// BusDeadline returns ctx with the end of how long a method of the bus may wait for other nodes.
func (s *Server) BusDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.node.deadline(ctx)
}

// PublishLog publishes p, whose data are as its kind says, to a log of the door, which is no
// channel: its name begins with a zero byte. It returns an Error for a publication above the
// limit, and ErrDraining while the server shuts down.
func (s *Server) PublishLog(ctx context.Context, log bus.Topic, p Publication) (Position, error) {
	if p.Size() > s.node.limits.Publication {
		return Position{}, ErrBadData
	}
	if !s.node.gate.enter() {
		return Position{}, ErrDraining
	}
	defer s.node.gate.leave()
	return s.node.publishTopic(ctx, log, p)
}

// PublishExact is Publish for data of that kind. JSON is sent as it is, spaces between its tokens
// included. It returns an Error for an invalid channel or invalid data.
func (s *Server) PublishExact(ctx context.Context, channel string, data []byte, kind Kind) error {
	_, err := s.node.publishKept(ctx, channel, Publication{Data: data, Kind: kind}, false, true)
	return err
}

// CountMessages adds to the number of messages that were queued for subscribers. A door calls it
// that delivers publications by itself.
func (s *Server) CountMessages(n int) { s.node.count.messages.Add(uint64(n)) }

// Rules returns the rules of a channel. The Namespace is not changed; after Reload, Rules may
// return another.
func (s *Server) Rules(channel string) *Namespace { return s.node.rules.Of(channel) }

// CheckChannel returns an Error for a name that no channel has.
func (s *Server) CheckChannel(name string) error { return s.node.rules.Check(name) }

// IsChannelName reports whether a channel may have the name.
func (s *Server) IsChannelName(name string) bool { return s.node.rules.IsName(name) }

// ChannelRule says why CheckChannel refuses a name, in a sentence about subject.
func (s *Server) ChannelRule(subject, name string) string { return s.node.rules.WhyNot(subject, name) }

// SubscribersHere returns how many subscribers a channel has on this node.
func (s *Server) SubscribersHere(channel string) int { return s.node.hub.subscribers(channel) }

// ChannelsHere lists at most `most` channels of this node whose names are wanted, those with the
// most subscribers first.
func (s *Server) ChannelsHere(wanted func(name string) bool, most int) []ChannelInfo {
	return s.node.hub.matching(wanted, most).Channels
}

// Start begins a session of a client whose connection has just opened. Its first operation must be
// connect.
func (s *Server) Start(t Transport, f Form) *Session { return s.node.start(t, f) }

// StartConnected begins a session of a client that has shown who it is.
func (s *Server) StartConnected(t Transport, f Form, g Grant) *Session {
	return s.node.startConnected(t, f, g)
}

// Authenticates reports whether clients must show who they are.
func (s *Server) Authenticates() bool { return s.node.authenticates() }

// Authenticate returns what a token grants. If clients need not show who they are, the grant is
// zero.
func (s *Server) Authenticate(token string) (Grant, error) { return s.node.authenticate(token) }

// AuthenticateRequest returns what the token of a request grants, or what Hooks.Connect says of a
// client without one. It asks about the channels that the client wants. f is the form of its
// session.
func (s *Server) AuthenticateRequest(r *http.Request, f Form, token string, channels []string) (Grant, error) {
	n := s.node
	g, err := n.authenticate(token)
	if !errors.Is(err, ErrNoToken) || n.hooks.Connect == nil {
		return g, err
	}
	id := n.newClientID()
	client := s.Asking(r).caller(f)
	client.Client = id.String()
	g, err = n.connectByHook(client, r.RemoteAddr, ConnectRequest{Token: token, Channels: channels})
	g.id = id
	return g, err
}

// An Asking is what hooks may learn of the request by which a client has connected.
type Asking struct {
	header http.Header
	values context.Context // nil without a hook for it
}

// Asking returns what hooks may learn of a request, or nil if there is no hook. Only the request's
// handler may call it. A door whose clients have no HTTP request passes nil: hooks then learn the
// client's transport and protocol alone.
func (s *Server) Asking(r *http.Request) *Asking {
	switch {
	case !s.node.remember:
		return nil
	case r == nil:
		return new(Asking)
	}
	return &Asking{s.node.hooks.selected(r.Header), s.node.hooks.values(r)}
}

// KeepsValues reports whether a has the values of the request's context, so that the request need
// not keep it.
func (a *Asking) KeepsValues() bool { return a != nil && a.values != nil }

// caller returns what hooks learn of a client with that form.
func (a *Asking) caller(f Form) Caller {
	c := Caller{Encoding: "json"}
	if c.Transport, c.Protocol = f.Kind(); c.Protocol == "protobuf" {
		c.Encoding = "binary"
	}
	if a != nil {
		c.Header, c.values = a.header, a.values
	}
	return c
}

// Introduce tells hooks of the client: a is what Server.Asking has returned. The door calls it
// once, right after the start of the session and before Session.Ended. A session that is connected
// already has the grant g.
func (s *Session) Introduce(a *Asking, g Grant) {
	if a == nil {
		return
	}
	c := a.caller(s.form().Form)
	c.Meta = g.meta
	if s.IsConnected() {
		c.values = nil
	}
	s.node.callers.add(s, c)
}

// Refused counts a refusal, and logs it with details, which are names and values in turn.
func (s *Server) Refused(why Refusal, remote string, details ...any) {
	s.node.refused(why, remote, details...)
}

// RefusedRequest is Refused for a request that gets an error response.
func (s *Server) RefusedRequest(why Refusal, r *http.Request, details ...any) {
	s.node.refusedRequest(why, r, details...)
}

// Tokens returns what checks clients' tokens, or nil: the server has no keys for them.
func (s *Server) Tokens() *token.Verifier { return s.node.tokens }

// Within returns ctx with an end after d, by the server's clock.
func (s *Server) Within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return s.node.within(ctx, d)
}

// TTL returns the whole seconds until ends, at most a year.
func (s *Server) TTL(ends time.Time) uint32 { return s.node.ttl(ends) }

// ID returns the client's id, a UUID that names it in the whole cluster.
func (s *Session) ID() string { return s.id.String() }

// Form returns the form in which the client gets messages.
func (s *Session) Form() Form { return s.form().Form }

// AnswersPings reports whether the client must answer pings.
func (s *Session) AnswersPings() bool { return s.form().answered }

// Server returns the session's server.
func (s *Session) Server() *Server { return s.node.server }

// HasConsole reports whether the server has a console.
func (s *Server) HasConsole() bool { return s.node.sampler != nil }

// WatcherGrant is that of an operator with the console's key instead of a token. Clients do not see
// the subscriptions, and no counter includes them.
var WatcherGrant = Grant{watcher: true}

// Detach begins a response that outlives its handler. For an error see NotDetached.
func (s *Server) Detach(w http.ResponseWriter) (ResponseStream, error) { return s.detach(w) }

// Lacks reports whether a client with g needs a token for the channel that it does not have.
func (s *Server) Lacks(g Grant, channel string) bool {
	return s.Rules(channel).NeedsToken(channel, g.access())
}

// IsDraining reports whether Drain or Shutdown was called.
func (s *Server) IsDraining() bool { return s.node.isDraining() }

// MayConnectNow returns how long the user of g has to wait; 0: it may connect. The attempt is
// counted.
func (s *Server) MayConnectNow(g Grant) (wait time.Duration) {
	return s.node.rates.Connect(g.User, s.node.clock.Now())
}

// MayOpen reports whether a client of that address may open another connection now. The attempt is
// counted.
func (s *Server) MayOpen(remote string) bool {
	return s.node.rates.Open(remote, s.node.clock.Now()) == 0
}

// LimitConnections answers 429 to addresses that open connections too often.
func (s *Server) LimitConnections(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodOptions {
			if wait := s.node.rates.Open(r.RemoteAddr, s.node.clock.Now()); wait > 0 {
				s.RefuseRate(w, r, wait)
				return
			}
		}
		next(w, r)
	}
}

// MayCallNow reports whether the address may call the API, or answers 429.
func (s *Server) MayCallNow(w http.ResponseWriter, r *http.Request) bool {
	wait := s.CountCall(r)
	if wait > 0 {
		s.RefuseRate(w, r, wait)
	}
	return wait == 0
}

// CountCall counts a call of the API, and returns how long the address has to wait. 0: it may call
// now.
func (s *Server) CountCall(r *http.Request) (wait time.Duration) {
	return s.node.rates.Call(r.RemoteAddr, s.node.clock.Now())
}

// RefuseRate answers 429 (RFC 6585 §4) with the seconds to wait (RFC 9110 §10.2.3).
func (s *Server) RefuseRate(w http.ResponseWriter, r *http.Request, wait time.Duration) {
	s.node.refusedRequest(RefusedRate, r)
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	answer.WriteError(w, http.StatusTooManyRequests, ErrTooManyRequests.Code, ErrTooManyRequests.Message)
}

// Keys returns the keys of the API and of operators.
func (s *Server) Keys() *guard.Keys { return s.keys }

// ForOperator runs next for operators only (see Config.ConsoleKey): it may show the names of
// channels and clients, and what is published.
func (s *Server) ForOperator(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case s.keys.IsOperator(r):
			next(w, r)
		case !s.keys.HasOperators():
			answer.WriteError(w, http.StatusForbidden, ErrPermissionDenied.Code,
				"clients need a token here, so the console needs a key: set --console-key (MYRIAD_CONSOLE_KEY) or "+
					"--api-key")
		default:
			s.node.refusedRequest(RefusedKey, r)
			answer.WriteError(w, http.StatusUnauthorized, ErrUnauthorized.Code,
				"the header X-API-Key is missing or wrong")
		}
	}
}

// ComesFromAllowedPage reports whether Origin, or else Referer, says that an allowed page sent r.
func (s *Server) ComesFromAllowedPage(r *http.Request) bool { return s.origins.Vouch(r) }
