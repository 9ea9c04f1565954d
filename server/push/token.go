package push

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
)

var (
	// errTokenExpired says that the token has expired or is not valid yet. The client should fetch
	// a new one.
	errTokenExpired = errors.New("push: token expired: issue a new one")
	// errTokenInvalid says that the token can never be valid. The client should not try again.
	errTokenInvalid = errors.New("push: invalid token")
)

// A tokenVerifier accepts only JSON Web Tokens that are signed with HMAC SHA-256 and its secret. It
// ignores the token's own choice of an algorithm (RFC 8725 §3.1), so it refuses "none" and other
// kinds of keys.
type tokenVerifier struct {
	parser *jwt.Parser
	secret []byte
}

// claims are the registered claims of RFC 7519, and claims with the names that Centrifugo uses.
type claims struct {
	jwt.RegisteredClaims
	// Info is any JSON value. Other clients see it in presence, joins and leaves.
	Info json.RawMessage `json:"info"`
	// Channels are the channels with SubscribeToken to which the bearer may subscribe without
	// another token.
	Channels []string `json:"channels"`
	// Channel makes it a token for one subscription. Such a token cannot open a connection.
	Channel string `json:"channel"`
	// Allow lists what such a token also allows: "pub" allows publishing.
	Allow []string `json:"allow"`
	// Client is the id of the only connection that may use such a token. Empty: any connection of
	// the user.
	Client string `json:"client"`

	// The claims below are refused: see unserved.
	Subs     json.RawMessage `json:"subs"`
	Caps     json.RawMessage `json:"caps"`
	ExpireAt json.RawMessage `json:"expire_at"`
	B64Info  json.RawMessage `json:"b64info"`
	Data     json.RawMessage `json:"data"`
	B64Data  json.RawMessage `json:"b64data"`
	Override json.RawMessage `json:"override"`
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
		{"subs", c.Subs, false, "let clients subscribe themselves"},
		{"caps", c.Caps, false, "use namespaces with publish and subscribe-token, and tokens for subscriptions"},
		{"expire_at", c.ExpireAt, subscription,
			"the connection or subscription ends with exp, unless the client brings a new token"},
		{"b64info", c.B64Info, subscription, "put JSON into info"},
		{"data", c.Data, true, "put it into info, or publish it"},
		{"b64data", c.B64Data, true, "put it into info, or publish it"},
		{"override", c.Override, true, "set the rules of the namespace"},
	} {
		if claim.subscription == subscription && len(claim.value) > 0 && string(claim.value) != "null" {
			return claimError("the claim " + claim.name + " is not served: " + claim.instead)
		}
	}
	return nil
}

// A grant is what a valid token for a connection allows.
type grant struct {
	user     string    // never empty
	ends     time.Time // never zero
	info     []byte
	channels []string
	watcher  bool // an operator with the console's key instead of a token
}

// newTokenVerifier returns nil for an empty secret: clients then need no token.
func newTokenVerifier(secret string, now func() time.Time) *tokenVerifier {
	if secret == "" {
		return nil
	}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithTimeFunc(now),
		jwt.WithExpirationRequired())
	return &tokenVerifier{parser: parser, secret: []byte(secret)}
}

// verify returns what token grants, errTokenExpired, or errTokenInvalid with the reason. A token
// needs sub and exp.
func (v *tokenVerifier) verify(token string) (grant, error) {
	c, err := v.parse(token)
	switch {
	case err != nil:
		return grant{}, err
	case c.Channel != "":
		return grant{}, fmt.Errorf("%w: it is for a subscription to one channel, not for a connection", errTokenInvalid)
	}
	return grant{user: c.Subject, ends: c.ExpiresAt.Time, info: c.Info, channels: c.Channels}, nil
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
	return &memberGrant{info: c.Info, publish: slices.Contains(c.Allow, "pub")}, c.ExpiresAt.Time, nil
}

func (v *tokenVerifier) parse(token string) (c claims, err error) {
	_, err = v.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return v.secret, nil })
	switch {
	// The parser checks claims after the signature, so on these two errors the signature is valid.
	case errors.Is(err, jwt.ErrTokenExpired), errors.Is(err, jwt.ErrTokenNotValidYet):
		return c, errTokenExpired
	case err != nil:
		return c, fmt.Errorf("%w: %w", errTokenInvalid, err)
	case c.Subject == "":
		return c, fmt.Errorf("%w: it has no sub", errTokenInvalid)
	}
	c.Info = compact(c.Info)
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
