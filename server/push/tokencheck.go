package push

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// A TokenReport says what a token is and what it allows.
type TokenReport struct {
	Header, Claims json.RawMessage // as the token has them, also of a token that is refused
	User           string
	Channel        string   // the token is for a subscription to this channel; empty: for connections
	Channels       []string // to which the server subscribes the bearer
	Capabilities   []Capability
	Publish        bool      // of a subscription: the bearer may publish
	Ends           time.Time // when the connection or the subscription ends; zero: never
}

// CheckToken checks a token as a server with that Config does. The error says why the server
// refuses the token; the report then has the header and the claims alone. It may fetch
// Config.TokenKeysURL.
func CheckToken(ctx context.Context, c Config, token string) (r TokenReport, err error) {
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	v, wrong := newTokenVerifier(c, c.Clock, slog.New(slog.DiscardHandler))
	if r, err = v.report(token); wrong != nil {
		return r, wrong
	}
	return r, err
}

// report is CheckToken with the keys of v, which may be nil.
func (v *tokenVerifier) report(token string) (r TokenReport, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return r, errors.New("push: it is no JSON Web Token: write HEADER.CLAIMS.SIGNATURE")
	}
	for i, to := range []*json.RawMessage{&r.Header, &r.Claims} {
		text, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || !json.Valid(text) {
			return r, errors.New("push: it is no JSON Web Token: its header or its claims are no JSON in base64url")
		}
		*to = text
	}
	if v == nil {
		return r,
			errors.New("push: there is no secret and no key to check it with: set a token secret or a token key")
	}
	claims, err := v.parse(token)
	if err != nil {
		return r, fmt.Errorf("push: the server refuses it: %s", strings.TrimPrefix(oneLine(err), "push: "))
	}
	var g grant
	if err := g.addChannels(&claims); err != nil {
		return r, err
	}
	list, err := claims.capabilities()
	if err == nil && claims.Channel == "" {
		_, err = new(regexCache).capabilities(list)
		r.Capabilities = list
	}
	if err != nil {
		return r, fmt.Errorf("push: the server refuses it: %w", err)
	}
	r.User, r.Channel, r.Channels, r.Ends = claims.Subject, claims.Channel, g.channels, claims.ends()
	for _, right := range claims.Allow {
		r.Publish = r.Publish || right == "pub"
	}
	return r, nil
}
