package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/server/push/token"
)

// A TokenReport says what a token is and what it allows.
type TokenReport = token.Report

// CheckToken checks a token as a server with that Config does. The error says why the server
// refuses the token; the report then has the header and the claims alone. It may fetch
// Config.TokenKeysURL.
func CheckToken(ctx context.Context, c Config, token string) (r TokenReport, err error) {
	if c.Clock == nil {
		c.Clock = systemClock{}
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
	if _, err = new(regexCache).capabilities(r.Capabilities); err != nil {
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

// A ChannelNote says what the bearer may do in a channel, and why.
type ChannelNote struct {
	Channel            string
	Subscribe, Publish string // begin with "yes", "no" or "asks"
}

// ExplainToken says what a server with that Config makes of a token, and of its bearer in the
// channels. The error says why the server refuses the token. The explanation then has what could be
// read: its notes, also without a key, and the channels as if the token were valid.
func ExplainToken(ctx context.Context, c Config, token string, channels ...string) (e TokenExplanation, err error) {
	rules, err := newNamespaces(c.Namespaces, c.NeedsTokens())
	if err != nil {
		return e, err
	}
	e.TokenReport, err = CheckToken(ctx, c, token)
	n := &node{rules: newRuleTable(rules), limits: c.Limits.withDefaults(), denyClientPublish: c.DenyClientPublish}
	return e, n.notes(&e, err, c.TokenIssuer, c.TokenAudience, channels)
}

// explainToken is ExplainToken with the node's own keys and rules.
func (n *node) explainToken(token string, channels []string) (e TokenExplanation, err error) {
	e.TokenReport, err = reportToken(n.tokens, token)
	issuer, audience := n.tokens.Expects()
	return e, n.notes(&e, err, issuer, audience, channels)
}

// notes adds the notes to e, of whose token refused says why the server refuses it. It returns
// refused, or why it could not read the claims.
func (n *node) notes(e *TokenExplanation, refused error, issuer, audience string, channels []string) error {
	given, notes, wrong := token.Explain(e.Claims, issuer, audience)
	e.Notes = notes
	g := Grant{User: given.User, Channels: given.Channels}
	if wrong == nil {
		g.caps, wrong = new(regexCache).capabilities(given.Capabilities)
	}
	if wrong != nil {
		return errors.Join(refused, wrong)
	}
	for _, name := range channels {
		e.Channels = append(e.Channels, n.explain(name, &given, g.access()))
	}
	return refused
}

// explain says what a client with that access may do in the channel.
func (n *node) explain(name string, given *TokenReport, a access) ChannelNote {
	note := ChannelNote{Channel: name}
	rules := n.rules.of(name)
	switch {
	case !n.validChannel(name):
		note.Subscribe = "no: it is no name of a channel (107)"
	case given.Channel == name:
		note.Subscribe = "yes: the token is for it"
	case given.Channel != "":
		note.Subscribe = fmt.Sprintf("no: the token is for the channel %q (103)", given.Channel)
	default:
		note.Subscribe = rules.explainSubscribe(name, a)
	}
	note.Publish = n.explainPublish(rules, name, given, a)
	if n.validChannel(name) && !n.rules.Load().knows(name) {
		note.Subscribe = "no: the part before the colon names no namespace, and the rule known-only refuses that (102)"
		note.Publish = note.Subscribe
	}
	return note
}

func (ns *Namespace) explainSubscribe(name string, a access) string {
	switch {
	case slices.Contains(a.channels, name):
		return "yes: the server subscribes the bearer"
	case !ns.AllowsName(name):
		return fmt.Sprintf("no: the name does not match channel-regex %s (107)", ns.ChannelRegex)
	case ns.IsForUsers(name) && listsUser(name, a.user):
		return "yes: the name lists the user"
	case ns.SubscribeHook && !ns.IsForUsers(name):
		return "asks the backend of --proxy-subscribe"
	case !ns.needsToken(name, a):
		if ns.isOpen() || !ns.SubscribeToken && !ns.IsForUsers(name) {
			return "yes: every client may"
		}
		return "yes: by the claim caps"
	case ns.IsForUsers(name):
		return "no: the name lists other users (103)"
	}
	return "no: the rule subscribe-token wants a token with the claim channel, or the channel in channels or caps (103)"
}

func (n *node) explainPublish(rules *Namespace, name string, given *TokenReport, a access) string {
	switch {
	case n.denyClientPublish:
		return "no: --deny-client-publish (103)"
	case !rules.AllowsName(name):
		return fmt.Sprintf("no: the name does not match channel-regex %s (107)", rules.ChannelRegex)
	case rules.PublishHook:
		return "asks the backend of --proxy-publish"
	case a.caps.allow(rightPublish, name):
		return "yes: by the claim caps"
	case rules.Publish == PublishToken && given.Channel == name && given.Publish:
		return "yes, when subscribed: by the claim allow"
	case rules.Publish == PublishClients && (!rules.IsForUsers(name) || listsUser(name, a.user)):
		return "yes: every client may"
	case rules.Publish == PublishClients || rules.Publish == PublishSubscribers:
		return "yes, when subscribed"
	}
	return "no: the rule publish=" + string(rules.Publish) + " (103)"
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
