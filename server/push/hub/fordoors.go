package hub

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/myriad-go/myriad/server/push/guard"
	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"

	"github.com/myriad-go/myriad/server/push/token"

	"github.com/myriad-go/myriad/workers"
)

// This file holds what a door asks of its server, besides the operations of sessions and the calls
// of the Go API. Any goroutine may call it.

// Limits returns the limits with their defaults.
func (h *Hub) Limits() Limits { return h.limits }

// Timing returns the intervals and timeouts with their defaults.
func (h *Hub) Timing() Timing { return h.timing }

// Logger returns the logger.
func (h *Hub) Logger() *slog.Logger { return h.log }

// Clock returns the clock.
func (h *Hub) Clock() Clock { return h.clock }

// Version returns Config.Version.
func (h *Hub) Version() string { return h.version }

// NodeID returns the random id that names this node in the cluster.
func (h *Hub) NodeID() string { return h.id.String() }

// NewID returns a random UUID (RFC 9562 §5.4).
func (h *Hub) NewID() string { return h.random.newClientID().String() }

// Workers returns the pool that runs slow commands.
func (h *Hub) Workers() *workers.Pool { return h.pool }

// Bus returns the bus. A door that subscribes to it, or serves questions, ends that by OnClose: the
// bus may go on when the hub has ended.
func (h *Hub) Bus() bus.Bus { return h.bus }

// OnClose has f called once by Shutdown, when the sessions have ended or Shutdown's context has,
// and before the bus is closed. A door calls it from Open.
func (h *Hub) OnClose(f func()) { h.atClose = append(h.atClose, f) }

// LocalBus returns the bus if it is one within this process, else nil.
func (h *Hub) LocalBus() bus.Local { return h.local }

// BusDeadline returns ctx with the end of how long a method of the bus may wait for other nodes.
func (h *Hub) BusDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return h.deadline(ctx)
}

// PublishLog publishes p, whose data are as its kind says, to a log of the door, which is no
// channel: its name begins with a zero byte. It returns an Error for a publication above the
// limit, and ErrDraining while the server shuts down.
func (h *Hub) PublishLog(ctx context.Context, log bus.Topic, p bus.Publication) (bus.Position, error) {
	if p.Size() > h.limits.Publication {
		return bus.Position{}, ErrBadData
	}
	if !h.gate.enter() {
		return bus.Position{}, answer.ErrDraining
	}
	defer h.gate.leave()
	return h.publishTopic(ctx, log, p)
}

// PublishExact is Publish for data of that kind. JSON is sent as it is, spaces between its tokens
// included. It returns an Error for an invalid channel or invalid data.
func (h *Hub) PublishExact(ctx context.Context, channel string, data []byte, kind bus.Kind) error {
	_, err := h.Publish(ctx, channel, bus.Publication{Data: data, Kind: kind}, false, true)
	return err
}

// CountMessages adds to the number of messages that were queued for subscribers. A door calls it
// that delivers publications by itself.
func (h *Hub) CountMessages(n int) { h.count.messages.Add(uint64(n)) }

// Rules returns the rules of a channel. The Namespace is not changed; after Reload, Rules may
// return another.
func (h *Hub) Rules(channel string) *policy.Namespace { return h.rules.Of(channel) }

// CheckChannel returns an Error for a name that no channel has.
func (h *Hub) CheckChannel(name string) error { return h.rules.Check(name) }

// IsChannelName reports whether a channel may have the name.
func (h *Hub) IsChannelName(name string) bool { return h.rules.IsName(name) }

// ChannelRule says why CheckChannel refuses a name, in a sentence about subject.
func (h *Hub) ChannelRule(subject, name string) string { return h.rules.WhyNot(subject, name) }

// SubscribersHere returns how many subscribers a channel has on this node.
func (h *Hub) SubscribersHere(channel string) int { return h.channels.subscribers(channel) }

// MatchingChannels lists at most `most` channels of this node whose names are wanted, those with
// the most subscribers first.
func (h *Hub) MatchingChannels(wanted func(name string) bool, most int) ChannelList {
	return h.channels.matching(wanted, most)
}

// Subscriptions returns the number of members of all channels, other than operators.
func (h *Hub) Subscriptions() int { return h.channels.subscriptions() }

// Sessions returns the sessions that have not ended.
func (h *Hub) Sessions() []*Session { return h.wheel.all() }

// Clients returns the sessions of clients that have not ended, without those of operators.
func (h *Hub) Clients() []*Session {
	return slices.DeleteFunc(h.wheel.all(), func(s *Session) bool { return s.watcher })
}

// Start begins a session of a client whose connection has just opened. Its first operation must be
// connect. from is what RequestInfo has returned, or nil for a client that has sent no HTTP
// request: hooks then learn the client's transport and protocol alone.
func (h *Hub) Start(t Transport, f Form, from *RequestInfo) *Session { return h.start(t, f, from) }

// StartConnected begins a session of a client that has shown who it is. from is that of Start.
func (h *Hub) StartConnected(t Transport, f Form, g Grant, from *RequestInfo) *Session {
	return h.startConnected(t, f, g, from)
}

// Authenticates reports whether clients must show who they are.
func (h *Hub) Authenticates() bool { return h.authenticates() }

// Authenticate returns what a token grants. If clients need not show who they are, the grant is
// zero.
func (h *Hub) Authenticate(token string) (Grant, error) { return h.authenticate(token) }

// AuthenticateRequest returns what the token of a request grants, or what Hooks.Connect says of a
// client without one. It asks about the channels that the client wants. f is the form of its
// session. AdmitRequest also answers the client that is refused.
func (h *Hub) AuthenticateRequest(r *http.Request, f Form, token string, channels []string) (Grant, error) {
	g, err := h.authenticate(token)
	if !errors.Is(err, ErrNoToken) || h.hooks.Connect == nil {
		return g, err
	}
	id := h.random.newClientID()
	client := h.RequestInfo(r).caller(f)
	client.Client = id.String()
	g, err = h.connectByHook(client, r.RemoteAddr, ConnectRequest{Token: token, Channels: channels})
	g.id = id
	return g, err
}

// A RequestInfo is what hooks may learn of the request by which a client has connected.
type RequestInfo struct {
	header http.Header
	values context.Context // nil without a hook for it
}

// RequestInfo returns what hooks may learn of a request, or nil if there is no hook. Only the
// request's handler may call it.
func (h *Hub) RequestInfo(r *http.Request) *RequestInfo {
	if !h.remember {
		return nil
	}
	return &RequestInfo{h.hooks.selected(r.Header), h.hooks.values(r)}
}

// KeepsValues reports whether a has the values of the request's context, so that the request need
// not keep it.
func (a *RequestInfo) KeepsValues() bool { return a != nil && a.values != nil }

// caller returns what hooks learn of a client with that form.
func (a *RequestInfo) caller(f Form) Caller {
	c := Caller{Encoding: "json"}
	if c.Transport, c.Protocol = f.Kind(); c.Protocol == "protobuf" {
		c.Encoding = "binary"
	}
	if a != nil {
		c.Header, c.values = a.header, a.values
	}
	return c
}

// CountRefusal counts a refusal, and logs it with details, which are names and values in turn.
func (h *Hub) CountRefusal(why Refusal, remote string, details ...any) {
	h.refused(why, remote, details...)
}

// CountRequestRefusal is CountRefusal for a request that gets an error response.
func (h *Hub) CountRequestRefusal(why Refusal, r *http.Request, details ...any) {
	h.refusedRequest(why, r, details...)
}

// Table returns the rules of all channels.
func (h *Hub) Table() *policy.Table { return h.rules }

// SetRules replaces the namespaces and the rates.
func (h *Hub) SetRules(all policy.Namespaces, rates policy.Rates) {
	h.rates.Set(rates)
	h.rules.Set(all)
}

// Tokens returns what checks clients' tokens, or nil: the server has no keys for them.
func (h *Hub) Tokens() *token.Verifier { return h.tokens }

// Within returns ctx with an end after d, by the server's clock.
func (h *Hub) Within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return h.within(ctx, d)
}

// TTL returns the whole seconds until ends, at most a year.
func (h *Hub) TTL(ends time.Time) uint32 { return h.ttl(ends) }

// HasConsole reports whether the server has a console.
func (h *Hub) HasConsole() bool { return h.console }

// OperatorGrant is that of an operator with the console's key instead of a token. Clients do not
// see the subscriptions, and no counter includes them.
var OperatorGrant = Grant{watcher: true}

// Detach begins a response that outlives its handler. For an error see NotDetached.
func (h *Hub) Detach(w http.ResponseWriter) (ResponseStream, error) { return h.openStream(w) }

// NeedsToken reports whether a client with g needs a token for the channel that it does not have.
func (h *Hub) NeedsToken(g Grant, channel string) bool {
	return h.Rules(channel).NeedsToken(channel, g.access())
}

// IsDraining reports whether Drain or Shutdown was called.
func (h *Hub) IsDraining() bool { return h.isDraining() }

// ConnectWait returns how long the user of g has to wait; 0: it may connect. The attempt is
// counted.
func (h *Hub) ConnectWait(g Grant) (wait time.Duration) {
	return h.rates.Connect(g.User, h.clock.Now())
}

// MayOpen reports whether a client of that address may open another connection now. The attempt is
// counted.
func (h *Hub) MayOpen(remote string) bool {
	return h.rates.Open(remote, h.clock.Now()) == 0
}

// LimitConnections answers 429 to addresses that open connections too often.
func (h *Hub) LimitConnections(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodOptions {
			if wait := h.rates.Open(r.RemoteAddr, h.clock.Now()); wait > 0 {
				h.RefuseRate(w, r, wait)
				return
			}
		}
		next(w, r)
	}
}

// MayCallNow reports whether the address may call the API, or answers 429.
func (h *Hub) MayCallNow(w http.ResponseWriter, r *http.Request) bool {
	wait := h.CountCall(r)
	if wait > 0 {
		h.RefuseRate(w, r, wait)
	}
	return wait == 0
}

// CountCall counts a call of the API, and returns how long the address has to wait. 0: it may call
// now.
func (h *Hub) CountCall(r *http.Request) (wait time.Duration) {
	return h.rates.Call(r.RemoteAddr, h.clock.Now())
}

// RefuseRate answers 429 (RFC 6585 §4) with the seconds to wait (RFC 9110 §10.2.3).
func (h *Hub) RefuseRate(w http.ResponseWriter, r *http.Request, wait time.Duration) {
	h.refusedRequest(RefusedRate, r)
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	answer.WriteError(w, http.StatusTooManyRequests, answer.ErrTooManyRequests.Code, answer.ErrTooManyRequests.Message)
}

// Keys returns the keys of the API and of operators.
func (h *Hub) Keys() *guard.Keys { return h.keys }

// ForOperator runs next for operators only (see Config.ConsoleKey): it may show the names of
// channels and clients, and what is published.
func (h *Hub) ForOperator(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case h.keys.IsOperator(r):
			next(w, r)
		case !h.keys.HasOperators():
			answer.WriteError(w, http.StatusForbidden, answer.ErrPermissionDenied.Code,
				"clients need a token here, so the console needs a key: set --console-key (MYRIAD_CONSOLE_KEY) or "+
					"--api-key")
		default:
			h.refusedRequest(RefusedKey, r)
			answer.WriteError(w, http.StatusUnauthorized, answer.ErrUnauthorized.Code,
				"the header X-API-Key is missing or wrong")
		}
	}
}

// ComesFromAllowedPage reports whether Origin, or else Referer, says that an allowed page sent r.
func (h *Hub) ComesFromAllowedPage(r *http.Request) bool { return h.origins.Vouch(r) }

// UnlessDraining answers 503 in place of next when Drain or Shutdown was called.
func (h *Hub) UnlessDraining(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if h.isDraining() {
			answer.WriteError(w, http.StatusServiceUnavailable, answer.ErrInternal.Code, "the server is shutting down")
			return
		}
		next(w, r)
	}
}
