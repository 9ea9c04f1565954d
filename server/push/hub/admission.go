package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/strict"
	"github.com/myriad-go/myriad/server/push/policy"
	"github.com/myriad-go/myriad/server/push/token"
)

// admission says who a client is, and what it may do: by its token, or by Hooks.Connect.
type admission struct {
	*node
	callbacks *callbacks
	tokens    *token.Verifier   // nil: clients need no token
	regexes   policy.RegexCache // of capabilities
}

// ErrNoToken is returned for a client without a token where the server requires one.
var ErrNoToken = errors.New("push: connect has no token, and the server requires one")

// Tokens returns what checks clients' tokens, or nil: the server has no keys for them.
func (a *admission) Tokens() *token.Verifier { return a.tokens }

// Authenticates reports whether clients must show who they are, by a token or to Hooks.Connect.
func (a *admission) Authenticates() bool { return a.tokens != nil || a.callbacks.hooks.Connect != nil }

// Authenticate returns what a token grants. If clients need not show who they are, the grant is
// zero.
func (a *admission) Authenticate(token string) (Grant, error) {
	switch {
	case !a.Authenticates():
		return Grant{}, nil
	case token == "" || a.tokens == nil:
		return Grant{}, ErrNoToken
	}
	c, err := a.tokens.Connection(token)
	if err != nil {
		return Grant{}, err
	}
	g := grantOf(c)
	return g, a.checkGrant(&g)
}

// checkGrant returns an error for channels that no client may be subscribed to.
func (a *admission) checkGrant(g *Grant) error {
	for _, name := range g.Channels {
		if a.rules.Check(name) != nil {
			return claimError(a.rules.WhyNot(fmt.Sprintf("the claim channels has %q, which", name), name))
		}
	}
	if len(g.Channels) > a.limits.Channels {
		return claimError(fmt.Sprintf("the claim channels has %d names, at most %d are allowed",
			len(g.Channels), a.limits.Channels))
	}
	var err error
	g.caps, err = a.regexes.Capabilities(g.given)
	return err
}

// AuthenticateRequest returns what the token of a request grants, or what Hooks.Connect says of a
// client without one. It asks about the channels that the client wants. f is the form of its
// session. Hub.AdmitRequest also answers the client that is refused.
func (a *admission) AuthenticateRequest(r *http.Request, f Form, token string, channels []string) (Grant, error) {
	g, err := a.Authenticate(token)
	if !errors.Is(err, ErrNoToken) || a.callbacks.hooks.Connect == nil {
		return g, err
	}
	id := a.random.newClientID()
	client := a.callbacks.RequestInfo(r).caller(f)
	client.Client = id.String()
	g, err = a.connectByHook(client, r.RemoteAddr, ConnectRequest{Token: token, Channels: channels})
	g.id = id
	return g, err
}

// connectByHook asks who the client is.
func (a *admission) connectByHook(c Caller, remote string, r ConnectRequest) (Grant, error) {
	ctx := context.Background()
	if c.values != nil {
		ctx, c.values = c.values, nil
	}
	said, err := a.callbacks.hooks.Connect(ctx, c, r)
	if err != nil {
		return Grant{}, a.callbacks.hookFailed("connect", c, remote, err)
	}
	g := Grant{User: said.User, Ends: endOf(said.ExpireAt), info: strict.Compact(said.Info), Data: said.Data,
		given: said.Caps, Hooked: true, Channels: sortedNames(said.Channels)}
	if err = a.checkGrant(&g); err != nil {
		return Grant{}, a.callbacks.hookFailed("connect", c, remote, err)
	}
	for name, info := range said.Infos {
		if g.Infos == nil {
			g.Infos = make(map[string][]byte)
		}
		g.Infos[name] = strict.Compact(info)
	}
	if json.Valid(said.Meta) {
		g.meta = said.Meta
	}
	return g, nil
}

// addPersonal adds the user's personal channels to those to which the server subscribes it. The
// error is a claimError.
func (a *admission) addPersonal(g *Grant) error {
	names, err := a.rules.PersonalChannels(g.User)
	if err != nil || len(names) == 0 {
		return err
	}
	for _, name := range names {
		if a.rules.Check(name) != nil {
			return claimError(a.rules.WhyNot(fmt.Sprintf("the user's personal channel %q", name), name))
		}
		if !slices.Contains(g.Channels, name) {
			g.Channels = append(g.Channels, name)
		}
	}
	if len(g.Channels) > a.limits.Channels {
		return claimError(fmt.Sprintf("%d channels with the personal ones, at most %d are allowed", len(g.Channels),
			a.limits.Channels))
	}
	slices.Sort(g.Channels)
	return nil
}

// A Grant is what a client may do, as its token or Hooks.Connect says. The zero value is that of a
// client that need not show who it is.
type Grant struct {
	User     string              // "": none; a token has one
	Ends     time.Time           // when the client has to show again who it is; zero: never
	info     []byte              // JSON that others see; nil: none
	Channels []string            // to which the server subscribes the bearer, sorted
	Infos    map[string][]byte   // by channel: JSON that others see there; nil without one
	id       clientID            // that a hook was asked about; zero: the session gets one
	watcher  bool                // an operator with the console's key instead of a token
	Hooked   bool                // Hooks.Connect has granted it
	meta     []byte              // JSON for hooks
	given    []policy.Capability // not checked yet
	caps     policy.Capabilities // given, after admission.checkGrant
	Data     []byte              // for the reply, from Hooks.Connect
}

// grantOf returns what a token for a connection grants, before admission.checkGrant.
func grantOf(c token.Connection) Grant {
	return Grant{User: c.User, Ends: c.Ends, info: c.Info, Channels: c.Channels, Infos: c.Infos, meta: c.Meta,
		given: c.Capabilities}
}

// sortedNames returns the names without those that come twice.
func sortedNames(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

func (g *Grant) access() policy.Access {
	return policy.Access{User: g.User, Channels: g.Channels, Caps: g.caps}
}

// OperatorGrant is that of an operator with the console's key instead of a token. Clients do not
// see the subscriptions, and no counter includes them.
var OperatorGrant = Grant{watcher: true}

// NeedsToken reports whether a client with g needs a token for the channel that it does not have.
func (a *admission) NeedsToken(g Grant, channel string) bool {
	return a.Rules(channel).NeedsToken(channel, g.access())
}

// ConnectWait returns how long the user of g has to wait; 0: it may connect. The attempt is
// counted.
func (a *admission) ConnectWait(g Grant) (wait time.Duration) {
	return a.rates.Connect(g.User, a.clock.Now())
}

// These are names of package token for functions in which token is a variable.
var (
	errTokenExpired   = token.ErrExpired
	errKeyNotYetKnown = token.ErrKeyNotYetKnown
)

// A claimError is why a correctly signed token is refused. The client may see it.
type claimError = token.ClaimError
