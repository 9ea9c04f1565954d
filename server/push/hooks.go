package push

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/strict"
	"github.com/myriad-go/myriad/web"
)

// Hooks let a program decide what its clients may do. The server calls a hook on the client's
// goroutine, one call at a time for each client, and the client waits for it. A hook may block, but
// sixteen that do keep all clients' commands waiting: raise AtOnce by as many as may, and give what
// they call a timeout, because their ctx does not end with the client. A hook returns an Error for
// the client, or a Disconnect; the client gets any other error as 100 "internal server error",
// which is temporary, and the log has its text. A panic counts as such an error. Package push/proxy
// has hooks that ask a backend by HTTP.
type Hooks struct {
	// Connect says who a client is that connects without a token, by the Centrifuge protocol or
	// /events. ctx has the values of the client's HTTP request: so a program's own middleware can
	// say who its user is. With Connect, a client without a token and without this hook's consent
	// is refused, by the other doors too, which do not ask it. nil: tokens alone count.
	Connect func(ctx context.Context, client Caller, r ConnectRequest) (ConnectAnswer, error)
	// Refresh is called when a connection expires that Connect has accepted. nil: it ends then. If
	// the hook fails, it is called again after Timing.Refresh. No client waits for it.
	Refresh func(ctx context.Context, client Caller) (RefreshAnswer, error)
	// Subscribe is called for subscriptions to channels whose rules have SubscribeHook.
	Subscribe func(ctx context.Context, client Caller, r SubscribeRequest) (SubscribeAnswer, error)
	// SubRefresh is called when a subscription expires that Subscribe has allowed, in channels
	// whose rules have SubRefreshHook. If the hook fails, it is called again after Timing.Refresh.
	// No client waits for it.
	SubRefresh func(ctx context.Context, client Caller, channel string) (SubRefreshAnswer, error)
	// Publish is called for publications of clients to channels whose rules have PublishHook.
	Publish func(ctx context.Context, client Caller, r PublishRequest) (PublishAnswer, error)

	// Headers are the fields of the client's HTTP request that hooks get in Caller.Header.
	Headers []string
	// AtOnce is how many calls of hooks may block at the same time without delaying clients that do
	// not wait for one. Default 0: hooks share the goroutines of slow commands.
	AtOnce int
}

// A Caller is the client that a hook is asked about. In Connect it has no user yet.
type Caller struct {
	ClientInfo
	Transport string      // as Form.Kind says: such as "websocket", "http_stream", "uni_sse", "events", "redis"
	Protocol  string      // as Form.Kind says: such as "json", "protobuf", "resp3"
	Encoding  string      // of data: "binary" for the protocol "protobuf", else "json"
	Header    http.Header // those in Hooks.Headers
	Meta      []byte      // JSON of the token's claim meta, or that Connect has answered; clients do not see it

	values context.Context // of the request, for Connect alone; nil without any
}

// A ConnectRequest is a client's connect command.
type ConnectRequest struct {
	Token         string
	Data          []byte
	Name, Version string   // of the client
	Channels      []string // of the server-side subscriptions that it had before
}

// A ConnectAnswer says who the client is.
type ConnectAnswer struct {
	User     string
	ExpireAt int64             // seconds since 1970; 0: never
	Info     []byte            // JSON that others see in presence, joins and leaves
	Data     []byte            // for the client, in the reply
	Channels []string          // to which the server subscribes the client
	Infos    map[string][]byte // by channel: JSON that others see there
	Meta     []byte            // JSON for later hooks
	Caps     []Capability      // what else the client may do
}

// A RefreshAnswer says whether a connection goes on.
type RefreshAnswer struct {
	Expired  bool
	ExpireAt int64        // seconds since 1970; 0: never; a time that has passed is as Expired
	Caps     []Capability // instead of those that the client has; nil: they stay
	Info     []byte       // JSON that others see, instead of what they saw; nil: it stays
	Meta     []byte       // JSON for later hooks; nil: it stays
}

// A SubscribeRequest is a client's subscribe command.
type SubscribeRequest struct {
	Channel, Token string
	Data           []byte
}

// A SubscribeAnswer allows a subscription.
type SubscribeAnswer struct {
	Info     []byte // JSON that others see in presence, joins and leaves
	Data     []byte // for the client, in the reply
	ExpireAt int64  // when the client has to subscribe again, in seconds since 1970; 0: never
	Publish  bool   // the client may publish under the rule PublishToken
}

// A PublishRequest is a client's publish command.
type PublishRequest struct {
	Channel string
	Data    []byte
}

// A PublishAnswer allows a publication.
type PublishAnswer struct {
	Data        []byte // instead of the client's; nil: the client's
	SkipHistory bool
}

func (h *Hooks) any() bool {
	return h.Connect != nil || h.Refresh != nil || h.Subscribe != nil || h.SubRefresh != nil || h.Publish != nil
}

// check returns an error for rules that need a hook that is not there.
func (h *Hooks) check(rules []Namespace) (err error) {
	for _, ns := range rules {
		if ns.SubscribeHook && h.Subscribe == nil {
			err = errors.Join(err, ns.wrong("subscribe-proxy needs a backend: set --proxy-subscribe (Hooks.Subscribe)"))
		}
		if ns.SubRefreshHook && (h.SubRefresh == nil || !ns.SubscribeHook) {
			err = errors.Join(err, ns.wrong("sub-refresh-proxy needs subscribe-proxy and a backend: "+
				"set --proxy-sub-refresh (Hooks.SubRefresh)"))
		}
		if ns.PublishHook && h.Publish == nil {
			err = errors.Join(err, ns.wrong("publish-proxy needs a backend: set --proxy-publish (Hooks.Publish)"))
		}
	}
	return err
}

// values returns those of the request's context for Connect. Only the request's handler may call
// it.
func (h *Hooks) values(r *http.Request) context.Context {
	if h.Connect == nil {
		return nil
	}
	return web.ValuesOf(r)
}

// selected returns the header fields that hooks want.
func (h *Hooks) selected(header http.Header) http.Header {
	kept := http.Header{}
	for _, name := range h.Headers {
		if values := header.Values(name); len(values) > 0 {
			kept[http.CanonicalHeaderKey(name)] = slices.Clone(values)
		}
	}
	return kept
}

// callers are what hooks know of sessions besides their identity. Without hooks it is empty.
type callers struct {
	mu   sync.Mutex
	list map[*Session]Caller
}

func (c *callers) add(s *Session, known Caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list == nil {
		c.list = make(map[*Session]Caller)
	}
	c.list[s] = known
}

func (c *callers) setMeta(s *Session, meta []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.list[s]; ok {
		known.Meta = meta
		c.list[s] = known
	}
}

// dropValues frees what only Connect gets.
func (c *callers) dropValues(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.list[s]; ok {
		known.values = nil
		c.list[s] = known
	}
}

func (c *callers) get(s *Session) Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list[s]
}

func (c *callers) drop(s *Session) {
	if !s.node.remember {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.list, s)
}

// caller returns what hooks may learn of the client.
func (s *Session) caller() Caller {
	c := s.node.callers.get(s)
	c.ClientInfo = s.info()
	return c
}

// A hookRefusal is an Error or a Disconnect of a hook, which was counted as such.
type hookRefusal struct{ error }

func (r hookRefusal) Unwrap() error { return r.error }

// IsHookRefusal reports whether a hook has decided err, which was counted then.
func IsHookRefusal(err error) bool { return errors.As(err, new(hookRefusal)) }

// hookFailed returns the error for the client. It counts what the hook has decided, and logs an
// error that the client must not see.
func (n *node) hookFailed(hook string, c Caller, remote string, err error) error {
	if errors.As(err, new(Error)) || errors.As(err, new(Disconnect)) {
		n.refused(RefusedHook, remote, "hook", hook, "client", c.Client, "user", c.User, "error", OneLine(err))
		return hookRefusal{err}
	}
	n.log.Error("push: a hook failed", "hook", hook, "client", c.Client, "error", err)
	return ErrInternal
}

func (s *Session) hookFailed(hook string, err error) error {
	return s.node.hookFailed(hook, s.caller(), s.t.Remote(), err)
}

// connectByHook asks who the client is.
func (n *node) connectByHook(c Caller, remote string, r ConnectRequest) (Grant, error) {
	ctx := context.Background()
	if c.values != nil {
		ctx, c.values = c.values, nil
	}
	a, err := n.hooks.Connect(ctx, c, r)
	if err != nil {
		return Grant{}, n.hookFailed("connect", c, remote, err)
	}
	g := Grant{User: a.User, Ends: endOf(a.ExpireAt), info: strict.Compact(a.Info), Data: a.Data, given: a.Caps,
		Hooked: true, Channels: sortedNames(a.Channels)}
	if err = n.checkGrant(&g); err != nil {
		return Grant{}, n.hookFailed("connect", c, remote, err)
	}
	for name, info := range a.Infos {
		if g.Infos == nil {
			g.Infos = make(map[string][]byte)
		}
		g.Infos[name] = strict.Compact(info)
	}
	if json.Valid(a.Meta) {
		g.meta = a.Meta
	}
	return g, nil
}

// endOf returns when what a hook grants ends; zero: never.
func endOf(expireAt int64) time.Time {
	if expireAt == 0 {
		return time.Time{}
	}
	return time.Unix(expireAt, 0)
}

// isPast reports whether a hook has named a time that has passed. 0 is none.
func (n *node) isPast(expireAt int64) bool {
	return expireAt != 0 && !endOf(expireAt).After(n.clock.Now())
}

// refreshByHook asks whether a connection that has expired goes on.
func (s *Session) refreshByHook() {
	if s.IsClosing() {
		return
	}
	a, err := s.node.hooks.Refresh(context.Background(), s.caller())
	var why Disconnect
	switch {
	case errors.As(err, &why):
		s.hookFailed("refresh", err)
		s.Disconnect(why)
	case err != nil:
		s.node.log.Error("push: a hook failed", "hook", "refresh", "client", s.id.String(), "error", err)
	case a.Expired || s.node.isPast(a.ExpireAt):
		s.Disconnect(DisconnectExpired)
	default:
		s.refreshed(a)
	}
}

// refreshed applies the answer of Hooks.Refresh.
func (s *Session) refreshed(a RefreshAnswer) {
	if a.Caps != nil {
		caps, err := s.node.regexes.capabilities(a.Caps)
		if err != nil {
			s.hookFailed("refresh", err)
			return
		}
		s.setCapabilities(caps)
	}
	if s.identity != nil {
		s.identity.show(strict.Compact(a.Info))
	}
	if len(a.Meta) > 0 && json.Valid(a.Meta) {
		s.node.callers.setMeta(s, a.Meta)
	}
	s.expireFrom(endOf(a.ExpireAt))
}

// subscribeByHook asks whether the client may subscribe, and sets what the hook grants.
func (s *Session) subscribeByHook(name string, w *SubscribeCommand) error {
	a, err := s.node.hooks.Subscribe(context.Background(), s.caller(), SubscribeRequest{name, w.Token, w.Data})
	if err != nil {
		return s.hookFailed("subscribe", err)
	}
	w.answer = a.Data
	w.grant = &memberGrant{info: strict.Compact(a.Info), publish: a.Publish, hooked: true}
	if end := endOf(a.ExpireAt); !end.IsZero() {
		w.grant.expires = sinceEpoch(end)
	}
	return nil
}

// publishByHook asks whether the client may publish, and publishes what the hook allows.
func (s *Session) publishByHook(channel string, p Publication, exact bool) error {
	a, err := s.node.hooks.Publish(context.Background(), s.caller(), PublishRequest{channel, p.Data})
	if err != nil {
		return s.hookFailed("publish", err)
	}
	if a.Data != nil {
		p.Data, p.Kind = a.Data, KindOf(a.Data)
	}
	_, err = s.node.publishKept(context.Background(), channel, p, a.SkipHistory, exact)
	return err
}
