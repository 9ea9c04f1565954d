package push

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push/internal/strict"
)

var (
	// errTokenExpired says that the token has expired or is not valid yet. The client should fetch
	// a new one.
	errTokenExpired = errors.New("push: token expired: issue a new one")
	// errTokenInvalid says that the token can never be valid. The client should not try again.
	errTokenInvalid = errors.New("push: invalid token")
	// errKeyNotYetKnown says that the key of a token may be one that the server has not fetched
	// yet. The client should try again soon.
	errKeyNotYetKnown = errors.New("push: the key of the token is not known yet: try again later")
)

// A tokenVerifier accepts only JSON Web Tokens that one of its keys has signed. Each key serves the
// algorithms of its kind, so "none" is refused, and so is a token that chooses the algorithm of
// another kind of key.
type tokenVerifier struct {
	now   func() time.Time
	trust atomic.Pointer[trust]
}

// A trust is what tokens are checked with. It does not change: reload replaces it.
type trust struct {
	parser *jwt.Parser
	keys   []tokenKey
	remote *remoteKeys // nil without a URL

	issuer, audience string             // empty: anything
	expected         []jwt.ParserOption // they
}

// algorithms are those of RFC 7518 §3 and RFC 8037 that sign.
var algorithms = []string{"HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
	"ES384", "ES512", "EdDSA"}

// claims are the registered claims of RFC 7519, and claims with the names that Centrifugo uses.
type claims struct {
	jwt.RegisteredClaims
	// Info is any JSON value. Other clients see it in presence, joins and leaves.
	Info json.RawMessage `json:"info"`
	// B64Info is the same in base64.
	B64Info []byte `json:"b64info"`
	// Channels are the channels to which the server subscribes the bearer.
	Channels []string `json:"channels"`
	// Subs are such channels, too, each with what others see of the bearer there.
	Subs map[string]claimSub `json:"subs"`
	// ExpireAt is when the connection or the subscription ends, in seconds since 1970, if that is
	// not when the token expires; 0: never.
	ExpireAt *int64 `json:"expire_at"`
	// Channel makes it a token for one subscription. Such a token cannot open a connection.
	Channel string `json:"channel"`
	// Allow lists what such a token also allows: "pub" allows publishing.
	Allow []string `json:"allow"`
	// Client is the id of the only connection that may use such a token. Empty: any connection of
	// the user.
	Client string `json:"client"`
	// Caps are what the bearer may do in channels, besides what their rules allow.
	Caps json.RawMessage `json:"caps"`
	// Meta is any JSON value for hooks. Clients do not see it.
	Meta json.RawMessage `json:"meta"`

	// The claims below are refused: see unserved.
	Data     json.RawMessage `json:"data"`
	B64Data  json.RawMessage `json:"b64data"`
	Override json.RawMessage `json:"override"`
}

// A claimSub is what the claim subs says of one channel.
type claimSub struct {
	Info    json.RawMessage `json:"info"`
	B64Info []byte          `json:"b64info"`

	unserved string // a member that the server does not act on
}

// UnmarshalJSON notes a member that the server does not act on: see claims.unserved.
func (c *claimSub) UnmarshalJSON(text []byte) (err error) {
	type plain claimSub
	c.unserved, err = readClaim(text, (*plain)(c))
	return err
}

// readClaim reads a claim that is an object, and returns the name of a member that to does not
// have. That is no error yet, because the signature has not been checked.
func readClaim(text []byte, to any) (unserved string, err error) {
	err = strict.Unmarshal(text, to)
	if unknown := new(strict.UnknownError); errors.As(err, &unknown) {
		return unknown.Path, nil
	}
	return "", err
}

// A claimError is why a correctly signed token is refused. The client may see it.
type claimError string

func (e claimError) Error() string   { return string(e) }
func (e claimError) Is(t error) bool { return t == errTokenInvalid }

// unserved returns an error for a claim of Centrifugo's tokens that this server does not implement.
// The server ignores all other claims, as RFC 7519 §4 requires.
func (c *claims) unserved() error {
	subscription := c.Channel != ""
	for _, claim := range []struct {
		name         string
		value        json.RawMessage
		subscription bool // the claim belongs to tokens for subscriptions; else to those for connections
		instead      string
	}{
		{"data", c.Data, true, "put it into info, or publish it"},
		{"b64data", c.B64Data, true, "put it into info, or publish it"},
		{"override", c.Override, true, "set the rules of the namespace"},
	} {
		if claim.subscription == subscription && len(claim.value) > 0 && string(claim.value) != "null" {
			return claimError("the claim " + claim.name + " is not served: " + claim.instead)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Subs)) {
		switch member := c.Subs[name].unserved; member {
		case "":
		case "data", "b64data", "override":
			return claimError(fmt.Sprintf("the claim subs has data, b64data or override for the channel %q, which "+
				"are not served: put data into info, and set the rules of the namespace", name))
		default:
			return claimError(fmt.Sprintf("the claim subs has %s for the channel %q, which is not served: it takes "+
				"info and b64info", member, name))
		}
	}
	for _, right := range c.Allow {
		if _, known := rightNames[right]; subscription && !known {
			return claimError(fmt.Sprintf("the claim allow has %q: use pub", right))
		}
	}
	return nil
}

// infoOf returns the JSON of the claim info, or of b64info.
func infoOf(info json.RawMessage, inBase64 []byte) ([]byte, error) {
	if len(inBase64) == 0 {
		return compact(info), nil
	}
	if !json.Valid(inBase64) {
		return nil, claimError("the claim b64info is not JSON in base64, which clients read it as")
	}
	return compact(inBase64), nil
}

// ends returns when what the token grants ends; zero: never.
func (c *claims) ends() time.Time {
	switch {
	case c.ExpireAt == nil && c.ExpiresAt == nil:
		return time.Time{}
	case c.ExpireAt == nil:
		return c.ExpiresAt.Time
	case *c.ExpireAt == 0:
		return time.Time{}
	}
	return time.Unix(*c.ExpireAt, 0)
}

// A grant is what a valid token for a connection allows.
type grant struct {
	user     string    // never empty
	ends     time.Time // zero: never
	info     []byte
	channels []string          // to which the server subscribes the bearer, sorted
	infos    map[string][]byte // by channel; nil without one
	id       clientID          // that a hook was asked about; zero: the session gets one
	watcher  bool              // an operator with the console's key instead of a token
	hooked   bool              // Hooks.Connect has granted it
	meta     []byte            // JSON for hooks
	given    []Capability      // not checked yet
	caps     capabilities      // given, after node.checkGrant
	data     []byte            // for the reply, from Hooks.Connect
}

// NeedsTokens reports whether clients need a token.
func (c Config) NeedsTokens() bool {
	return c.TokenSecret != "" || len(c.TokenKeys) > 0 || c.TokenKeysURL != ""
}

// Authenticates reports whether clients must show who they are: by a token, or to Hooks.Connect.
func (c Config) Authenticates() bool { return c.NeedsTokens() || c.Hooks.Connect != nil }

// newTokenVerifier returns nil without a key: clients then need no token.
func newTokenVerifier(c Config, clock Clock, log *slog.Logger) (v *tokenVerifier, err error) {
	if !c.NeedsTokens() {
		if c.TokenIssuer != "" || c.TokenAudience != "" {
			return nil, errors.New("push: an issuer or audience of tokens without a key to check them: set a key too")
		}
		return nil, nil
	}
	v = &tokenVerifier{now: clock.Now}
	t, err := v.newTrust(c)
	if err != nil {
		return nil, err
	}
	if c.TokenKeysURL != "" {
		t.remote, err = newRemoteKeys(c.TokenKeysURL, clock, log)
	}
	v.trust.Store(t)
	return v, err
}

// newTrust returns what c says, without the keys of its URL.
func (v *tokenVerifier) newTrust(c Config) (*trust, error) {
	t := &trust{issuer: c.TokenIssuer, audience: c.TokenAudience}
	if c.TokenIssuer != "" {
		t.expected = append(t.expected, jwt.WithIssuer(c.TokenIssuer))
	}
	if c.TokenAudience != "" {
		t.expected = append(t.expected, jwt.WithAudience(c.TokenAudience))
	}
	t.parser = jwt.NewParser(append([]jwt.ParserOption{jwt.WithValidMethods(algorithms), jwt.WithTimeFunc(v.now)},
		t.expected...)...)
	if c.TokenSecret != "" {
		key, _ := newTokenKey("", []byte(c.TokenSecret)) // a secret has no error
		t.keys = append(t.keys, key)
	}
	for _, text := range c.TokenKeys {
		keys, err := readTokenKeys(text)
		if err != nil {
			return nil, err
		}
		t.keys = append(t.keys, keys...)
	}
	return t, nil
}

// reload replaces keys, issuer and audience. The URL of keys stays.
func (v *tokenVerifier) reload(c Config) error {
	t, err := v.newTrust(c)
	if err != nil {
		return err
	}
	t.remote = v.trust.Load().remote
	v.trust.Store(t)
	return nil
}

// verify returns what token grants, errTokenExpired, errKeyNotYetKnown, or errTokenInvalid with the
// reason. A token
// needs sub. A token without exp does not expire (RFC 7519 §4.1.4: exp is optional).
func (v *tokenVerifier) verify(token string) (grant, error) {
	c, err := v.parse(token)
	switch {
	case err != nil:
		return grant{}, err
	case c.Channel != "":
		return grant{}, fmt.Errorf("%w: it is for a subscription to one channel, not for a connection",
			errTokenInvalid)
	}
	g := grant{user: c.Subject, ends: c.ends(), info: c.Info, meta: compact(c.Meta)}
	if g.given, err = c.capabilities(); err != nil {
		return grant{}, err
	}
	return g, g.addChannels(&c)
}

// capabilities reads the claim caps.
func (c *claims) capabilities() (list []Capability, err error) {
	if len(c.Caps) == 0 {
		return nil, nil
	}
	switch unserved, err := readClaim(c.Caps, &list); {
	case err != nil:
		return nil, claimError("the claim caps is no list of objects with channels, match and allow")
	case unserved != "":
		return nil, claimError("the claim caps has " + unserved +
			", which is not served: it takes channels, match and allow")
	}
	return list, nil
}

// addChannels takes the claims channels and subs.
func (g *grant) addChannels(c *claims) error {
	g.channels = slices.AppendSeq(slices.Clone(c.Channels), maps.Keys(c.Subs))
	slices.Sort(g.channels)
	g.channels = slices.Compact(g.channels)
	for name, sub := range c.Subs {
		info, err := infoOf(sub.Info, sub.B64Info)
		if err != nil {
			return err
		}
		if info != nil && g.infos == nil {
			g.infos = make(map[string][]byte)
		}
		if info != nil {
			g.infos[name] = info
		}
	}
	return nil
}

// verifySubscription checks a token for that user's connection to subscribe to that channel. It
// returns what the token grants and when it expires.
func (v *tokenVerifier) verifySubscription(token, user, client, channel string) (*memberGrant, time.Time, error) {
	c, err := v.parse(token)
	switch {
	case err != nil:
		return nil, time.Time{}, err
	case c.Channel != channel:
		return nil, time.Time{}, fmt.Errorf("%w: it is for the channel %q", errTokenInvalid, c.Channel)
	case c.Subject != user:
		return nil, time.Time{}, fmt.Errorf("%w: it is for another user than the connection's", errTokenInvalid)
	case c.Client != "" && c.Client != client:
		return nil, time.Time{}, fmt.Errorf("%w: it is for another connection, %q", errTokenInvalid, c.Client)
	}
	return &memberGrant{info: c.Info, publish: slices.Contains(c.Allow, "pub")}, c.ends(), nil
}

func (v *tokenVerifier) parse(token string) (c claims, err error) {
	t := v.trust.Load()
	err = t.read(t.parser, v.now, token, &c)
	switch {
	case errors.Is(err, errKeyNotYetKnown):
		return c, err
	// The parser checks claims after the signature, so on these two errors the signature is valid.
	case errors.Is(err, jwt.ErrTokenExpired), errors.Is(err, jwt.ErrTokenNotValidYet):
		return c, errTokenExpired
	case err != nil:
		return c, fmt.Errorf("%w: %w", errTokenInvalid, err)
	case c.Subject == "":
		return c, fmt.Errorf("%w: it has no sub", errTokenInvalid)
	}
	if ends := c.ends(); !ends.IsZero() && !v.now().Before(ends) {
		return c, errTokenExpired
	}
	if c.Info, err = infoOf(c.Info, c.B64Info); err != nil {
		return c, err
	}
	return c, c.unserved()
}

// compact returns info on one line, or nil if info is empty or not UTF-8.
func compact(info []byte) []byte {
	if len(info) == 0 || string(info) == "null" || !utf8.Valid(info) {
		return nil
	}
	var b bytes.Buffer
	if json.Compact(&b, info) != nil {
		return nil
	}
	return b.Bytes()
}
