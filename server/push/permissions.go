package push

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/token"
)

// This file is what a client may do: by the rules of the channel, and by its token or hook.

func (g *Grant) access() policy.Access {
	return policy.Access{User: g.User, Channels: g.Channels, Caps: g.caps}
}

func (s *Session) access() policy.Access {
	if s.identity == nil {
		return policy.Access{}
	}
	a := policy.Access{User: s.identity.user, Channels: s.identity.channels}
	if caps := s.identity.caps.Load(); caps != nil {
		a.Caps = *caps
	}
	return a
}

// NeedsToken reports whether the client can subscribe only with a token for the channel, or by a
// hook.
func (s *Session) NeedsToken(name string) bool {
	rules := s.hub.rules.Of(name)
	return !s.watcher && !rules.IsOpen() && rules.NeedsToken(name, s.access())
}

// can reports whether the client has a capability for what in the channel.
func (s *Session) can(what policy.Right, name string) bool {
	if s.identity == nil {
		return false
	}
	caps := s.identity.caps.Load()
	return caps != nil && caps.Allow(what, name)
}

// mayPublish reports whether the rules of the channel let the client publish.
func (s *Session) mayPublish(name string) bool {
	if s.hub.rules.DenyClientPublish {
		return false
	}
	rules := s.hub.rules.Of(name)
	switch rules.Publish {
	case PublishClients:
		if !rules.IsForUsers(name) || policy.ListsUser(name, s.User()) {
			return true
		}
	case PublishSubscribers:
	case PublishToken:
		if m := s.member(name); m != nil && m.grant != nil && m.grant.publish {
			return true
		}
		return s.can(policy.RightPublish, name)
	case PublishNobody:
		return s.can(policy.RightPublish, name)
	}
	return s.member(name) != nil || s.can(policy.RightPublish, name)
}

// maySee reports whether the client may read the channel's history or presence: it is subscribed,
// or could subscribe without another token, or has the right.
func (s *Session) maySee(name string, what policy.Right) bool {
	return s.member(name) != nil || s.MayName(name) && !s.NeedsToken(name) || s.can(what, name)
}

// MayName reports whether the client may use the name.
func (s *Session) MayName(name string) bool {
	return s.hub.rules.Check(name) == nil && (s.watcher || s.hub.rules.Of(name).AllowsName(name))
}

// deniedPublish returns why the rules do not let the client publish.
func (s *Session) deniedPublish(name string) error {
	why := s.hub.rules.ExplainPublish(name, &TokenReport{}, s.access())
	if strings.HasPrefix(why, "yes") {
		why = "it is not subscribed"
	}
	return policy.Denied(why)
}

// notSeen is why a client may not read the history or presence of a channel.
var notSeen = policy.Denied("it is not subscribed, and could not subscribe without a token for the channel")

// addPersonal adds the user's personal channels to those to which the server subscribes it. The
// error is a claimError.
func (h *Hub) addPersonal(g *Grant) error {
	names, err := h.rules.PersonalChannels(g.User)
	if err != nil || len(names) == 0 {
		return err
	}
	for _, name := range names {
		if h.rules.Check(name) != nil {
			return claimError(h.rules.WhyNot(fmt.Sprintf("the user's personal channel %q", name), name))
		}
		if !slices.Contains(g.Channels, name) {
			g.Channels = append(g.Channels, name)
		}
	}
	if len(g.Channels) > h.limits.Channels {
		return claimError(fmt.Sprintf("%d channels with the personal ones, at most %d are allowed", len(g.Channels),
			h.limits.Channels))
	}
	slices.Sort(g.Channels)
	return nil
}

// These are names of package token for functions in which token is a variable.
var (
	errTokenExpired   = token.ErrExpired
	errKeyNotYetKnown = token.ErrKeyNotYetKnown
)

// A claimError is why a correctly signed token is refused. The client may see it.
type claimError = token.ClaimError

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
	given    []Capability        // not checked yet
	caps     policy.Capabilities // given, after node.checkGrant
	Data     []byte              // for the reply, from Hooks.Connect
}

// grantOf returns what a token for a connection grants, before node.checkGrant.
func grantOf(c token.Connection) Grant {
	return Grant{User: c.User, Ends: c.Ends, info: c.Info, Channels: c.Channels, Infos: c.Infos, meta: c.Meta,
		given: c.Capabilities}
}

// sortedNames returns the names without those that come twice.
func sortedNames(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
