// Package token checks JSON Web Tokens (RFC 7519): whose signature they have, whether they have
// expired, and what their claims grant.
//
// A [Verifier] has the keys. It fetches the key set at a URL (RFC 7517), and fetches it again if a
// token names a key that is not in it. [Verifier.Connection] and [Verifier.Subscription] read the
// claims that Centrifugo's tokens have. [Verifier.Read] is for a protocol with claims of its own.
package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push/internal/strict"
)

// A Verifier reports why it refuses a token by one of these errors, found by errors.Is.
var (
	// ErrExpired says that the token has expired or is not valid yet. The client should fetch a new
	// one.
	ErrExpired = errors.New("push: token expired: issue a new one")
	// ErrInvalid says that the token can never be valid. The client should not try again.
	ErrInvalid = errors.New("push: invalid token")
	// ErrKeyNotYetKnown says that the key of a token may be one that the Verifier has not fetched
	// yet. The client should try again after RetryAfter.
	ErrKeyNotYetKnown = errors.New("push: the key of the token is not known yet: try again later")
)

// A ClaimError is why a correctly signed token is refused. The client may see it. errors.Is finds
// ErrInvalid in it.
type ClaimError string

func (e ClaimError) Error() string   { return string(e) }
func (e ClaimError) Is(t error) bool { return t == ErrInvalid }

// A Config says which tokens a [Verifier] accepts. Secret, Keys and KeysURL may be set together: a
// token needs the signature of one key.
type Config struct {
	Secret  string   // for HS256, HS384 and HS512; empty: none
	Keys    []string // public keys in PEM: PUBLIC KEY, RSA PUBLIC KEY or CERTIFICATE; one text may have several
	KeysURL string   // of a JSON Web Key Set, by https, or by http on this machine; empty: none

	Issuer, Audience string // what the claims iss and aud must be; empty: anything

	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // for fetches of KeysURL that fail; nil: discarded
}

// HasKeys reports whether there is a key to check tokens with.
func (c Config) HasKeys() bool { return c.Secret != "" || len(c.Keys) > 0 || c.KeysURL != "" }

// A Verifier accepts only tokens that one of its keys has signed. Each key serves the algorithms of
// its kind. So "none" is refused, and so is an RSA key as the secret of HS256. Any goroutine may
// call its methods. They may wait up to 5 seconds for a fetch of Config.KeysURL.
type Verifier struct {
	now   func() time.Time
	trust atomic.Pointer[trust]
}

// A trust is what tokens are checked with. It does not change: Reload replaces it.
type trust struct {
	parser *jwt.Parser
	keys   []verifyKey
	remote *remoteKeys // nil without a URL

	issuer, audience string // empty: anything
}

// algorithms are those of RFC 7518 §3 and RFC 8037 that sign.
var algorithms = []string{"HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
	"ES384", "ES512", "EdDSA"}

// New returns nil without a key: clients then need no token. An Issuer or Audience without a key is
// an error, and so is a key that cannot be read or is too weak. New does not fetch KeysURL yet.
func New(c Config) (*Verifier, error) {
	if !c.HasKeys() {
		if c.Issuer != "" || c.Audience != "" {
			return nil, errors.New("push: an issuer or audience of tokens without a key to check them: set a key too")
		}
		return nil, nil
	}
	v := &Verifier{now: c.Now}
	if v.now == nil {
		v.now = time.Now
	}
	t, err := v.newTrust(c)
	if err == nil && c.KeysURL != "" {
		log := c.Log
		if log == nil {
			log = slog.New(slog.DiscardHandler)
		}
		t.remote, err = newRemoteKeys(c.KeysURL, v.now, log)
	}
	if err != nil {
		return nil, err
	}
	v.trust.Store(t)
	return v, nil
}

// Reload replaces Secret, Keys, Issuer and Audience for the tokens that are checked from now on. It
// ignores the other fields: the URL of keys, and what has been fetched from it, stays. If Reload
// fails, nothing changes.
func (v *Verifier) Reload(c Config) error {
	t, err := v.newTrust(c)
	if err != nil {
		return err
	}
	t.remote = v.trust.Load().remote
	v.trust.Store(t)
	return nil
}

// newTrust returns what c says, without the keys of its URL.
func (v *Verifier) newTrust(c Config) (*trust, error) {
	t := &trust{issuer: c.Issuer, audience: c.Audience}
	options := []jwt.ParserOption{jwt.WithValidMethods(algorithms), jwt.WithTimeFunc(v.now)}
	if c.Issuer != "" {
		options = append(options, jwt.WithIssuer(c.Issuer))
	}
	if c.Audience != "" {
		options = append(options, jwt.WithAudience(c.Audience))
	}
	t.parser = jwt.NewParser(options...)
	if c.Secret != "" {
		key, _ := newKey("", []byte(c.Secret)) // a secret has no error
		t.keys = append(t.keys, key)
	}
	for _, text := range c.Keys {
		keys, err := readKeys(text)
		if err != nil {
			return nil, err
		}
		t.keys = append(t.keys, keys...)
	}
	return t, nil
}

// Expects returns what the claims iss and aud must be; empty: anything. v may be nil.
func (v *Verifier) Expects() (issuer, audience string) {
	if v == nil {
		return "", ""
	}
	t := v.trust.Load()
	return t.issuer, t.audience
}

// Read checks a token, and reads its claims into c. It checks the signature, exp, nbf, iss and aud;
// what else c has is the caller's to check. The error is ErrExpired, ErrKeyNotYetKnown, or
// ErrInvalid with the reason.
func (v *Verifier) Read(token string, c jwt.Claims) error {
	err := v.trust.Load().read(token, c, v.now())
	switch {
	case errors.Is(err, ErrKeyNotYetKnown):
		return err
	// The parser checks claims after the signature, so on these two errors the signature is valid.
	case errors.Is(err, jwt.ErrTokenExpired), errors.Is(err, jwt.ErrTokenNotValidYet):
		return ErrExpired
	case err != nil:
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// A Connection is what a token for a connection grants.
type Connection struct {
	User         string            // never empty
	Ends         time.Time         // when the connection ends; zero: never
	Info         []byte            // JSON that other clients see in presence, joins and leaves; or nil
	Channels     []string          // to which the server subscribes the bearer, sorted
	Infos        map[string][]byte // what replaces Info in one of them; nil without any
	Capabilities []Capability      // as the token has them: not checked
	Meta         []byte            // JSON for hooks, or nil
}

// Connection checks a token for a connection. A token needs sub. A token without exp does not
// expire (RFC 7519 §4.1.4: exp is optional). The errors are those of Read, and a ClaimError for a
// claim of Centrifugo's that is not served.
func (v *Verifier) Connection(token string) (Connection, error) {
	c, err := v.claims(token)
	switch {
	case err != nil:
		return Connection{}, err
	case c.Channel != "":
		return Connection{}, fmt.Errorf("%w: it is for a subscription to one channel, not for a connection", ErrInvalid)
	}
	to := Connection{User: c.Subject, Ends: c.ends(), Info: c.Info, Channels: c.channels(),
		Meta: strict.Compact(c.Meta)}
	if to.Capabilities, err = c.capabilities(); err == nil {
		to.Infos, err = c.infos()
	}
	if err != nil {
		return Connection{}, err
	}
	return to, nil
}

// A Subscription is what a token for a subscription to one channel grants.
type Subscription struct {
	Ends    time.Time // when the subscription ends; zero: never
	Info    []byte    // JSON that other clients see in the channel, or nil
	Publish bool      // the bearer may publish in the channel
}

// Subscription checks a token with which the connection of that user subscribes to that channel.
// The errors are those of Connection.
func (v *Verifier) Subscription(token, user, client, channel string) (Subscription, error) {
	c, err := v.claims(token)
	switch {
	case err != nil:
		return Subscription{}, err
	case c.Channel != channel:
		return Subscription{}, fmt.Errorf("%w: it is for the channel %q", ErrInvalid, c.Channel)
	case c.Subject != user:
		return Subscription{}, fmt.Errorf("%w: it is for another user than the connection's", ErrInvalid)
	case c.Client != "" && c.Client != client:
		return Subscription{}, fmt.Errorf("%w: it is for another connection, %q", ErrInvalid, c.Client)
	}
	return Subscription{Ends: c.ends(), Info: c.Info, Publish: c.publish()}, nil
}

// claims checks a token, and returns its claims. Info is compact.
func (v *Verifier) claims(token string) (c claims, err error) {
	if err = v.Read(token, &c); err != nil {
		return c, err
	}
	if c.Subject == "" {
		return c, fmt.Errorf("%w: it has no sub", ErrInvalid)
	}
	if ends := c.ends(); !ends.IsZero() && !v.now().Before(ends) {
		return c, ErrExpired
	}
	if c.Info, err = infoOf(c.Info, c.B64Info); err != nil {
		return c, err
	}
	return c, c.unserved()
}

// A Capability lets one client do some things in some channels, whatever the rules of their
// namespaces say. It only grants: several of them grant what each grants.
type Capability struct {
	// Channels are names, or patterns of the kind that Match says.
	Channels []string `json:"channels"`
	// Match is "" for names, "wildcard" for patterns in which * matches any text, or "regex" for
	// regular expressions (RE2), which match any part of a name unless they begin with ^ and end
	// with $.
	Match string `json:"match,omitempty"`
	// Allow lists "sub" (subscribe), "pub" (publish), "prs" (ask who is present) and "hst" (read
	// the history).
	Allow []string `json:"allow"`
}

// These are the rights that the claims allow and caps may name.
const (
	RightSubscribe = "sub"
	RightPublish   = "pub"
	RightPresence  = "prs"
	RightHistory   = "hst"
)

var rights = []string{RightSubscribe, RightPublish, RightPresence, RightHistory}

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
	c.unserved, err = strict.UnmarshalSome(text, (*plain)(c))
	return err
}

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
			return ClaimError("the claim " + claim.name + " is not served: " + claim.instead)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Subs)) {
		switch member := c.Subs[name].unserved; member {
		case "":
		case "data", "b64data", "override":
			return ClaimError(fmt.Sprintf("the claim subs has data, b64data or override for the channel %q, which "+
				"are not served: put data into info, and set the rules of the namespace", name))
		default:
			return ClaimError(fmt.Sprintf("the claim subs has %s for the channel %q, which is not served: it takes "+
				"info and b64info", member, name))
		}
	}
	for _, right := range c.Allow {
		if subscription && !slices.Contains(rights, right) {
			return ClaimError(fmt.Sprintf("the claim allow has %q: use pub", right))
		}
	}
	return nil
}

// infoOf returns the JSON of the claim info, or of b64info.
func infoOf(info json.RawMessage, inBase64 []byte) ([]byte, error) {
	if len(inBase64) == 0 {
		return strict.Compact(info), nil
	}
	if !json.Valid(inBase64) {
		return nil, ClaimError("the claim b64info is not JSON in base64, which clients read it as")
	}
	return strict.Compact(inBase64), nil
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

// capabilities reads the claim caps.
func (c *claims) capabilities() (list []Capability, err error) {
	if len(c.Caps) == 0 {
		return nil, nil
	}
	switch unserved, err := strict.UnmarshalSome(c.Caps, &list); {
	case err != nil:
		return nil, ClaimError("the claim caps is no list of objects with channels, match and allow")
	case unserved != "":
		return nil, ClaimError("the claim caps has " + unserved +
			", which is not served: it takes channels, match and allow")
	}
	return list, nil
}

// channels returns the names in the claims channels and subs, sorted.
func (c *claims) channels() []string {
	names := slices.AppendSeq(slices.Clone(c.Channels), maps.Keys(c.Subs))
	slices.Sort(names)
	return slices.Compact(names)
}

// infos returns the info of each channel in the claim subs that has one.
func (c *claims) infos() (infos map[string][]byte, err error) {
	for name, sub := range c.Subs {
		info, err := infoOf(sub.Info, sub.B64Info)
		if err != nil {
			return nil, err
		}
		if info != nil && infos == nil {
			infos = make(map[string][]byte)
		}
		if info != nil {
			infos[name] = info
		}
	}
	return infos, nil
}

// publish reports whether a token for a subscription lets its bearer publish.
func (c *claims) publish() bool { return slices.Contains(c.Allow, RightPublish) }
