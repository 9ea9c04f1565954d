package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/token"
)

// A TokenReport says what a token is and what it allows.
type TokenReport = token.Report

// CheckToken checks a token as a server with that Config does. The error says why the server
// refuses the token; the report then has the header and the claims alone. It may fetch
// Config.TokenKeysURL.
func CheckToken(ctx context.Context, c Config, token string) (r TokenReport, err error) {
	if c.Clock == nil {
		c.Clock = hub.SystemClock{}
	}
	v, wrong := newTokenVerifier(c, c.Clock, slog.New(slog.DiscardHandler))
	if r, err = reportToken(v, token); wrong != nil {
		return r, wrong
	}
	return r, err
}

// reportToken is CheckToken with the keys of v, which may be nil.
func reportToken(v *token.Verifier, text string) (TokenReport, error) {
	r, err := v.Report(text)
	if err != nil {
		return r, err
	}
	if _, err = new(policy.RegexCache).Capabilities(r.Capabilities); err != nil {
		return TokenReport{Header: r.Header, Claims: r.Claims}, fmt.Errorf("push: the server refuses it: %w", err)
	}
	return r, nil
}

// A TokenExplanation says what each part of a token does, and what its bearer may do in channels.
type TokenExplanation struct {
	TokenReport
	Notes    []ClaimNote
	Channels []ChannelNote // those that ExplainToken was asked about
}

// A ClaimNote says what one claim does.
type ClaimNote = token.Note

// ExplainToken says what a server with that Config makes of a token, and of its bearer in the
// channels. The error says why the server refuses the token. The explanation then has what could be
// read: its notes, also without a key, and the channels as if the token were valid.
func ExplainToken(ctx context.Context, c Config, token string, channels ...string) (e TokenExplanation, err error) {
	rules, err := policy.NewNamespaces(c.Namespaces, c.NeedsTokens())
	if err != nil {
		return e, err
	}
	e.TokenReport, err = CheckToken(ctx, c, token)
	return e, e.explain(newTable(c, rules), err, c.TokenIssuer, c.TokenAudience, channels)
}

// explain adds the notes to e, of whose token refused says why the server refuses it. It returns
// refused, or why it could not read the claims.
func (e *TokenExplanation) explain(rules *policy.Table, refused error, issuer, audience string,
	channels []string) error {
	given, notes, wrong := token.Explain(e.Claims, issuer, audience)
	e.Notes = notes
	a := policy.Access{User: given.User, Channels: given.Channels}
	if wrong == nil {
		a.Caps, wrong = new(policy.RegexCache).Capabilities(given.Capabilities)
	}
	if wrong != nil {
		return errors.Join(refused, wrong)
	}
	for _, name := range channels {
		e.Channels = append(e.Channels, rules.Explain(name, &given, a))
	}
	return refused
}

// String returns the explanation as lines of text.
func (e *TokenExplanation) String() string {
	var out bytes.Buffer
	if e.Header != nil {
		fmt.Fprintf(&out, "header: %s\n", e.Header)
	}
	for _, note := range e.Notes {
		fmt.Fprintf(&out, "%s: %s: %s\n", note.Name, oneLineValue(note.Value), note.Does)
	}
	for _, note := range e.Channels {
		fmt.Fprintf(&out, "channel %q: subscribe: %s; publish: %s\n", note.Channel, note.Subscribe, note.Publish)
	}
	return out.String()
}

// oneLineValue shortens a long value.
func oneLineValue(value json.RawMessage) string {
	const most = 60
	text := strings.ToValidUTF8(string(value), "?")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
