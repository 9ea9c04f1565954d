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
	// errTokenExpired: the token was good once, or will be. Its client should fetch a new one.
	errTokenExpired = errors.New("push: token expired: issue a new one")
	// errTokenInvalid: the token was never good. Its client should not try again.
	errTokenInvalid = errors.New("push: invalid token")
)

// A tokenVerifier accepts JSON Web Tokens that were signed with HMAC SHA-256 and one secret, and nothing else: what a token
// says about its own algorithm is not believed (RFC 8725 §3.1), so "none" and keys of other kinds are refused.
type tokenVerifier struct {
	parser *jwt.Parser
	secret []byte
}

// claims are those of RFC 7519 and some more, with the names that servers of the Centrifuge protocol use.
type claims struct {
	jwt.RegisteredClaims
	// Info is shown to others in presence, joins and leaves: any JSON value.
	Info json.RawMessage `json:"info"`
	// Channels are those to which the bearer may subscribe without another token, where a token is needed.
	Channels []string `json:"channels"`
	// Channel makes it a token for one subscription, which must not open a connection.
	Channel string `json:"channel"`
	// Allow lists what such a token allows besides: "pub" is to publish.
	Allow []string `json:"allow"`
}

// A grant is what a valid token for a connection gives its bearer.
type grant struct {
	user     string    // never empty
	ends     time.Time // never zero
	info     []byte
	channels []string
}

// newTokenVerifier returns nil for an empty secret: then nobody needs a token.
func newTokenVerifier(secret string, now func() time.Time) *tokenVerifier {
	if secret == "" {
		return nil
	}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithTimeFunc(now),
		jwt.WithExpirationRequired())
	return &tokenVerifier{parser: parser, secret: []byte(secret)}
}

// verify returns what token grants, errTokenExpired, or errTokenInvalid with the reason. A token needs sub and exp.
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

// verifySubscription returns what a token for a subscription of that user to that channel grants, and when it ends.
func (v *tokenVerifier) verifySubscription(token, user, channel string) (*memberGrant, time.Time, error) {
	c, err := v.parse(token)
	switch {
	case err != nil:
		return nil, time.Time{}, err
	case c.Channel != channel:
		return nil, time.Time{}, fmt.Errorf("%w: it is for the channel %q", errTokenInvalid, c.Channel)
	case c.Subject != user:
		return nil, time.Time{}, fmt.Errorf("%w: it is another user's than the connection", errTokenInvalid)
	}
	return &memberGrant{info: c.Info, publish: slices.Contains(c.Allow, "pub")}, c.ExpiresAt.Time, nil
}

func (v *tokenVerifier) parse(token string) (c claims, err error) {
	_, err = v.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return v.secret, nil })
	switch {
	// The parser looks at claims only after the signature, so these two say that the token is ours.
	case errors.Is(err, jwt.ErrTokenExpired), errors.Is(err, jwt.ErrTokenNotValidYet):
		return c, errTokenExpired
	case err != nil:
		return c, fmt.Errorf("%w: %w", errTokenInvalid, err)
	case c.Subject == "":
		return c, fmt.Errorf("%w: it has no sub", errTokenInvalid)
	}
	c.Info = compact(c.Info)
	return c, nil
}

// compact returns valid JSON on one line, or nil for what says nothing or is not UTF-8.
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
