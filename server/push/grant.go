package push

import (
	"log/slog"
	"slices"
	"time"

	"github.com/myriad-go/myriad/server/push/token"
)

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
	User     string            // "": none; a token has one
	Ends     time.Time         // when the client has to show again who it is; zero: never
	info     []byte            // JSON that others see; nil: none
	Channels []string          // to which the server subscribes the bearer, sorted
	Infos    map[string][]byte // by channel: JSON that others see there; nil without one
	id       clientID          // that a hook was asked about; zero: the session gets one
	watcher  bool              // an operator with the console's key instead of a token
	Hooked   bool              // Hooks.Connect has granted it
	meta     []byte            // JSON for hooks
	given    []Capability      // not checked yet
	caps     capabilities      // given, after node.checkGrant
	Data     []byte            // for the reply, from Hooks.Connect
}

// grantOf returns what a token for a connection grants, before node.checkGrant.
func grantOf(c token.Connection) Grant {
	return Grant{User: c.User, Ends: c.Ends, info: c.Info, Channels: c.Channels, Infos: c.Infos, meta: c.Meta,
		given: c.Capabilities}
}

// sortedNames returns the names without those that come twice.
func sortedNames(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
