package hub

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/policy"
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
	bus.ClientInfo
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
	ExpireAt int64               // seconds since 1970; 0: never
	Info     []byte              // JSON that others see in presence, joins and leaves
	Data     []byte              // for the client, in the reply
	Channels []string            // to which the server subscribes the client
	Infos    map[string][]byte   // by channel: JSON that others see there
	Meta     []byte              // JSON for later hooks
	Caps     []policy.Capability // what else the client may do
}

// A RefreshAnswer says whether a connection goes on.
type RefreshAnswer struct {
	Expired  bool
	ExpireAt int64               // seconds since 1970; 0: never; a time that has passed is as Expired
	Caps     []policy.Capability // instead of those that the client has; nil: they stay
	Info     []byte              // JSON that others see, instead of what they saw; nil: it stays
	Meta     []byte              // JSON for later hooks; nil: it stays
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

// A SubRefreshAnswer says whether a subscription goes on.
type SubRefreshAnswer struct {
	Expired  bool  // the subscription ends, as without the hook
	ExpireAt int64 // seconds since 1970; 0: never; a time that has passed is as Expired
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

// Check returns an error for rules that need a hook that is not there.
func (h *Hooks) Check(rules []policy.Namespace) (err error) {
	for _, ns := range rules {
		if ns.SubscribeHook && h.Subscribe == nil {
			err = errors.Join(err, ns.Wrong("subscribe-proxy needs a backend: set --proxy-subscribe (Hooks.Subscribe)"))
		}
		if ns.SubRefreshHook && (h.SubRefresh == nil || !ns.SubscribeHook) {
			err = errors.Join(err, ns.Wrong("sub-refresh-proxy needs subscribe-proxy and a backend: "+
				"set --proxy-sub-refresh (Hooks.SubRefresh)"))
		}
		if ns.PublishHook && h.Publish == nil {
			err = errors.Join(err, ns.Wrong("publish-proxy needs a backend: set --proxy-publish (Hooks.Publish)"))
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
