package token

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A Report says what a token is and what it allows.
type Report struct {
	Header, Claims json.RawMessage // as the token has them, also of a token that is refused
	User           string
	Channel        string       // the token is for a subscription to this channel; empty: for connections
	Channels       []string     // to which the server subscribes the bearer
	Capabilities   []Capability // of a token for connections; not checked
	Publish        bool         // of a subscription: the bearer may publish
	Ends           time.Time    // when the connection or the subscription ends; zero: never
}

// Report checks a token of either kind. The error says why it is refused; the report then has the
// header and the claims alone. v may be nil.
func (v *Verifier) Report(token string) (r Report, err error) {
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
	c, err := v.claims(token)
	if err != nil {
		text := strings.ReplaceAll(err.Error(), "\n", ": ") // a joined error has lines
		return r, fmt.Errorf("push: the server refuses it: %s", strings.TrimPrefix(text, "push: "))
	}
	if _, err = c.infos(); err != nil {
		return r, err
	}
	list, err := c.capabilities()
	if err != nil {
		return r, fmt.Errorf("push: the server refuses it: %w", err)
	}
	if c.Channel == "" {
		r.Capabilities = list
	}
	r.User, r.Channel, r.Channels, r.Publish, r.Ends = c.Subject, c.Channel, c.channels(), c.publish(), c.ends()
	return r, nil
}

// A Note says what one claim does.
type Note struct {
	Name  string
	Value json.RawMessage
	Does  string
}

// Explain says what each of the claims does under a Config with that issuer and audience, and what
// they would grant. It does not check the token that has them. The error names a claim that could
// not be read. There are no notes if the claims are of other types than those that a Verifier
// reads.
func Explain(text json.RawMessage, issuer, audience string) (r Report, notes []Note, err error) {
	var c claims
	if err := json.Unmarshal(text, &c); err != nil {
		return r, nil, fmt.Errorf("push: the claims are not of the types that the server reads: %w", err)
	}
	var names map[string]json.RawMessage
	_ = json.Unmarshal(text, &names) // it is an object, because c could be read
	for _, name := range slices.Sorted(maps.Keys(names)) {
		notes = append(notes, Note{name, names[name], c.does(name, issuer, audience)})
	}
	r = Report{User: c.Subject, Channel: c.Channel, Channels: c.channels(), Publish: c.publish(), Ends: c.ends()}
	_, wrong := c.infos()
	r.Capabilities, err = c.capabilities()
	return r, notes, errors.Join(wrong, err)
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
	case c.publish():
		return "the bearer may publish in the channel under the rule publish=token"
	}
	return "nothing: only \"pub\" adds a right, because every subscriber may read history and presence"
}
