package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A TokenExplanation says what each part of a token does, and what its bearer may do in channels.
type TokenExplanation struct {
	TokenReport
	Notes    []ClaimNote
	Channels []ChannelNote // those that ExplainToken was asked about
}

// A ClaimNote says what one claim does.
type ClaimNote struct {
	Name  string
	Value json.RawMessage
	Does  string
}

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
	e.TokenReport, err = n.tokens.report(token)
	issuer, audience := "", ""
	if n.tokens != nil {
		t := n.tokens.trust.Load()
		issuer, audience = t.issuer, t.audience
	}
	return e, n.notes(&e, err, issuer, audience, channels)
}

// notes adds the notes to e, of whose token refused says why the server refuses it. It returns
// refused, or why it could not read the claims.
func (n *node) notes(e *TokenExplanation, refused error, issuer, audience string, channels []string) error {
	var given claims
	if unread := json.Unmarshal(e.Claims, &given); unread != nil {
		return errors.Join(refused, fmt.Errorf("push: the claims are not of the types that the server reads: %w",
			unread))
	}
	var names map[string]json.RawMessage
	_ = json.Unmarshal(e.Claims, &names) // it is an object, because given could be read
	for _, name := range slices.Sorted(maps.Keys(names)) {
		e.Notes = append(e.Notes, ClaimNote{name, names[name], given.does(name, issuer, audience)})
	}
	g := grant{user: given.Subject}
	wrong := g.addChannels(&given)
	list, unread := given.capabilities()
	if wrong = errors.Join(wrong, unread); wrong == nil {
		g.caps, wrong = new(regexCache).capabilities(list)
	}
	if wrong != nil {
		return errors.Join(refused, wrong)
	}
	for _, name := range channels {
		e.Channels = append(e.Channels, n.explain(name, &given, g.access()))
	}
	return refused
}

// claimNotes are what claims do in tokens for connections.
var claimNotes = map[string]string{
	"sub": "the user", "info": "others see it in presence, joins and leaves",
	"b64info":  "the same as info, in base64",
	"channels": "the server subscribes the bearer to them",
	"subs": "the server subscribes the bearer to them, each " +
		"with its info",
	"caps": "what the bearer may do in channels besides what their rules allow",
	"meta": "for the backend of --proxy-…; clients do not see it",
	"jti":  "ignored", "iat": "ignored",
}

// subscriptionNotes are those that differ in tokens for subscriptions.
var subscriptionNotes = map[string]string{
	"channel": "the token is for a subscription to this channel", "client": "the one connection that may use it",
	"info": "others see it in this channel", "caps": "ignored: the token is for one channel",
	"channels": "ignored: the token is for one channel", "subs": "ignored: the token is for one channel",
	"meta": "ignored: the token is for one channel",
	"data": "refused: put it into info, or publish it", "b64data": "refused: put it into info, or publish it",
	"override": "refused: set the rules of the namespace",
}

// does says what a claim does.
func (c *claims) does(name, issuer, audience string) string {
	switch name {
	case "exp":
		return timeNote("the token expires at", c.ExpiresAt)
	case "nbf":
		return timeNote("the token is valid from", c.NotBefore)
	case "expire_at":
		return c.endNote()
	case "iss":
		return expected(issuer, "--token-issuer")
	case "aud":
		return expected(audience, "--token-audience")
	case "allow":
		return c.allowNote()
	}
	if note := subscriptionNotes[name]; note != "" && c.Channel != "" {
		return note
	}
	if note := claimNotes[name]; note != "" {
		return note
	}
	return "ignored: no claim of this server"
}

func timeNote(what string, at *jwt.NumericDate) string {
	if at == nil {
		return "ignored: it is null"
	}
	return what + " " + at.UTC().Format(time.RFC3339)
}

func (c *claims) endNote() string {
	switch {
	case c.ExpireAt == nil:
		return "ignored: it is null"
	case *c.ExpireAt <= 0:
		return "the connection or the subscription never ends"
	}
	return timeNote("the connection or the subscription ends at", jwt.NewNumericDate(time.Unix(*c.ExpireAt, 0)))
}

func expected(value, option string) string {
	if value == "" {
		return "ignored without " + option
	}
	return fmt.Sprintf("must be %q (%s)", value, option)
}

func (c *claims) allowNote() string {
	switch {
	case c.Channel == "":
		return "ignored: it belongs to tokens for subscriptions"
	case slices.Contains(c.Allow, "pub"):
		return "the bearer may publish in the channel under the rule publish=token"
	}
	return "nothing: only \"pub\" adds a right, because every subscriber may read history and presence"
}

// explain says what a client with that access may do in the channel.
func (n *node) explain(name string, c *claims, a access) ChannelNote {
	note := ChannelNote{Channel: name}
	rules := n.rules.of(name)
	switch {
	case !n.validChannel(name):
		note.Subscribe = "no: it is no name of a channel (107)"
	case c.Channel == name:
		note.Subscribe = "yes: the token is for it"
	case c.Channel != "":
		note.Subscribe = fmt.Sprintf("no: the token is for the channel %q (103)", c.Channel)
	default:
		note.Subscribe = rules.explainSubscribe(name, a)
	}
	note.Publish = n.explainPublish(rules, name, c, a)
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
	case !ns.allowsName(name):
		return fmt.Sprintf("no: the name does not match channel-regex %s (107)", ns.ChannelRegex)
	case ns.forUsers(name) && listsUser(name, a.user):
		return "yes: the name lists the user"
	case ns.SubscribeHook && !ns.forUsers(name):
		return "asks the backend of --proxy-subscribe"
	case !ns.needsToken(name, a):
		if ns.isOpen() || !ns.SubscribeToken && !ns.forUsers(name) {
			return "yes: every client may"
		}
		return "yes: by the claim caps"
	case ns.forUsers(name):
		return "no: the name lists other users (103)"
	}
	return "no: the rule subscribe-token wants a token with the claim channel, or the channel in channels or caps (103)"
}

func (n *node) explainPublish(rules *Namespace, name string, c *claims, a access) string {
	switch {
	case n.denyClientPublish:
		return "no: --deny-client-publish (103)"
	case !rules.allowsName(name):
		return fmt.Sprintf("no: the name does not match channel-regex %s (107)", rules.ChannelRegex)
	case rules.PublishHook:
		return "asks the backend of --proxy-publish"
	case a.caps.allow(rightPublish, name):
		return "yes: by the claim caps"
	case rules.Publish == PublishToken && c.Channel == name && slices.Contains(c.Allow, "pub"):
		return "yes, when subscribed: by the claim allow"
	case rules.Publish == PublishClients && (!rules.forUsers(name) || listsUser(name, a.user)):
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
