package push

import (
	"errors"
	"fmt"
	"time"

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

// claims are those of RFC 7519 and one more.
type claims struct {
	jwt.RegisteredClaims
	// Channel is set in tokens for one subscription, which must not open a connection.
	Channel string `json:"channel"`
}

// A grant is what a valid token gives its bearer.
type grant struct {
	user string    // never empty
	ends time.Time // never zero
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
	var c claims
	_, err := v.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return v.secret, nil })
	switch {
	// The parser looks at claims only after the signature, so these two say that the token is ours.
	case errors.Is(err, jwt.ErrTokenExpired), errors.Is(err, jwt.ErrTokenNotValidYet):
		return grant{}, errTokenExpired
	case err != nil:
		return grant{}, fmt.Errorf("%w: %w", errTokenInvalid, err)
	case c.Subject == "":
		return grant{}, fmt.Errorf("%w: it has no sub", errTokenInvalid)
	case c.Channel != "":
		return grant{}, fmt.Errorf("%w: it is for a subscription to one channel, not for a connection", errTokenInvalid)
	}
	return grant{user: c.Subject, ends: c.ExpiresAt.Time}, nil
}
