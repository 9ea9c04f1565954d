package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/internal/strict"
	"github.com/myriad-go/myriad/server/push/policy"
	"github.com/myriad-go/myriad/server/push/token"
)

// This file says who a client is, and what it may do: by its token, or by Hooks.Connect.

// authenticates reports whether clients must show who they are, by a token or to Hooks.Connect.
func (h *Hub) authenticates() bool { return h.tokens != nil || h.hooks.Connect != nil }

// authenticate returns what the token grants. If clients need not show who they are, it returns the
// zero grant.
func (h *Hub) authenticate(token string) (Grant, error) {
	switch {
	case !h.authenticates():
		return Grant{}, nil
	case token == "" || h.tokens == nil:
		return Grant{}, ErrNoToken
	}
	c, err := h.tokens.Connection(token)
	if err != nil {
		return Grant{}, err
	}
	g := grantOf(c)
	return g, h.checkGrant(&g)
}

// checkGrant returns an error for channels that no client may be subscribed to.
func (h *Hub) checkGrant(g *Grant) error {
	for _, name := range g.Channels {
		if h.rules.Check(name) != nil {
			return claimError(h.rules.WhyNot(fmt.Sprintf("the claim channels has %q, which", name), name))
		}
	}
	if len(g.Channels) > h.limits.Channels {
		return claimError(fmt.Sprintf("the claim channels has %d names, at most %d are allowed",
			len(g.Channels), h.limits.Channels))
	}
	var err error
	g.caps, err = h.regexes.Capabilities(g.given)
	return err
}

// A hookRefusal is an Error or a Disconnect of a hook, which was counted as such, or logged.
type hookRefusal struct{ error }

func (r hookRefusal) Unwrap() error { return r.error }

// IsHookRefusal reports whether a hook has decided err, which was counted then.
func IsHookRefusal(err error) bool { return errors.As(err, new(hookRefusal)) }

// hookFailed returns the error for the client. It counts what the hook has decided, and logs an
// error that the client must not see.
func (h *Hub) hookFailed(hook string, c Caller, remote string, err error) error {
	switch {
	case errors.Is(err, errBadDisconnect):
		h.log.Error("push: a hook failed", "hook", hook, "client", c.Client, "error", OneLine(err))
		return hookRefusal{err}
	case errors.As(err, new(answer.Error)), errors.As(err, new(answer.Disconnect)):
		h.refused(RefusedHook, remote, "hook", hook, "client", c.Client, "user", c.User, "error", OneLine(err))
		return hookRefusal{err}
	}
	h.log.Error("push: a hook failed", "hook", hook, "client", c.Client, "error", err)
	return answer.ErrInternal
}

// connectByHook asks who the client is.
func (h *Hub) connectByHook(c Caller, remote string, r ConnectRequest) (Grant, error) {
	ctx := context.Background()
	if c.values != nil {
		ctx, c.values = c.values, nil
	}
	a, err := h.hooks.Connect(ctx, c, r)
	if err != nil {
		return Grant{}, h.hookFailed("connect", c, remote, err)
	}
	g := Grant{User: a.User, Ends: endOf(a.ExpireAt), info: strict.Compact(a.Info), Data: a.Data, given: a.Caps,
		Hooked: true, Channels: sortedNames(a.Channels)}
	if err = h.checkGrant(&g); err != nil {
		return Grant{}, h.hookFailed("connect", c, remote, err)
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
func (h *Hub) isPast(expireAt int64) bool {
	return expireAt != 0 && !endOf(expireAt).After(h.clock.Now())
}

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

func (g *Grant) access() policy.Access {
	return policy.Access{User: g.User, Channels: g.Channels, Caps: g.caps}
}

// notSeen is why a client may not read the history or presence of a channel.
var notSeen = policy.Denied("it is not subscribed, and could not subscribe without a token for the channel")

// These are names of package token for functions in which token is a variable.
var (
	errTokenExpired   = token.ErrExpired
	errKeyNotYetKnown = token.ErrKeyNotYetKnown
)

// A claimError is why a correctly signed token is refused. The client may see it.
type claimError = token.ClaimError
