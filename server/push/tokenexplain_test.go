package push_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

func TestExplainToken(t *testing.T) {
	clock := pushtest.NewClock()
	config := push.Config{TokenSecret: tokentest.Secret, TokenIssuer: "me", Clock: clock, Namespaces: []push.Namespace{
		{}, {Name: "t", SubscribeToken: true, Publish: push.PublishToken}, {Name: "u", UserLimited: true},
		{Name: "h", SubscribeHook: true, PublishHook: true}, {Name: "r", ChannelRegex: "^[0-9]+$",
			Publish: push.PublishNobody},
		{Name: "s", Publish: push.PublishSubscribers},
	}}
	const yes = "yes: every client may"
	for _, tt := range []struct {
		name     string
		claims   jwt.MapClaims
		notes    map[string]string    // by claim: a part of what it does
		channels map[string][2]string // subscribe and publish
		err      string
	}{
		{"a connection", jwt.MapClaims{"sub": "42", "iss": "me", "exp": 1_800_000_060, "channels": []string{"t:mine"},
			"caps": tokentest.Caps(tokentest.Cap("wildcard", []string{"sub", "pub"}, "t:x*")), "color": "red",
			"allow": []string{"pub"}},
			map[string]string{"sub": "the user", "iss": `must be "me"`, "exp": "expires at 2027-01-15T08:01:00Z",
				"channels": "the server subscribes", "color": "ignored: no claim",
				"allow": "belongs to tokens for subs"},
			map[string][2]string{
				"news": {yes, yes}, "t:mine": {"yes: the server subscribes", "no: the rule publish=token"},
				"t:1":   {"no: the rule subscribe-token", "no: the rule publish=token"},
				"t:x":   {"yes: by the claim caps", "yes: by the claim caps"},
				"u:#42": {"yes: the name lists the user", yes}, "u:#43": {"no: the name lists other",
					"yes, when subscribed"},
				"u:x": {yes, yes}, "h:1": {"asks the backend of --proxy-sub", "asks the backend of --proxy-pub"},
				"r:1": {yes, "no: the rule publish=nobody"}, "r:x": {"no: the name does not match",
					"no: the name does not"},
				"s:1": {yes, "yes, when subscribed"}, "a\x01": {"no: it is no name", yes},
			}, ""},
		{"a subscription", jwt.MapClaims{"sub": "42", "iss": "me", "exp": 1_800_000_060, "channel": "t:1",
			"client": "c",
			"allow":  []string{"pub"}, "expire_at": 0, "meta": 1, "jti": "x"},
			map[string]string{"channel": "for a subscription", "client": "the one connection", "allow": "may publish",
				"expire_at": "never ends", "meta": "for one channel", "jti": "ignored"},
			map[string][2]string{"t:1": {"yes: the token is for it", "yes, when subscribed: by the claim allow"},
				"t:2": {`no: the token is for the channel "t:1"`, "no: the rule publish=token"}}, ""},
		{"other rights", jwt.MapClaims{"sub": "42", "iss": "me", "exp": 1_800_000_060, "channel": "t:1",
			"allow": []string{"hst"}, "expire_at": 1_800_000_030, "nbf": 1},
			map[string]string{"allow": "nothing", "expire_at": "ends at 2027", "nbf": "valid from 1970"}, nil, ""},
		{"expired", jwt.MapClaims{"sub": "42", "iss": "me", "exp": 1}, map[string]string{"exp": "1970"},
			map[string][2]string{"news": {yes, yes}}, "token expired"},
		{"another issuer", jwt.MapClaims{"sub": "42", "iss": "you", "exp": 1_800_000_060}, nil, nil, "issuer"},
		{"bad caps", jwt.MapClaims{"sub": "42", "iss": "me", "exp": 1_800_000_060, "caps": 1}, nil, nil,
			"claim caps"},
		{"nulls", jwt.MapClaims{"sub": "42", "exp": nil, "nbf": nil, "expire_at": nil, "iss": "me"},
			map[string]string{"exp": "it is null", "expire_at": "it is null"}, nil, ""},
		{"of another type", jwt.MapClaims{"sub": 42}, nil, nil, "not of the types"},
	} {
		token := tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), tt.claims)
		e, err := push.ExplainToken(t.Context(), config, token, slices.Collect(maps.Keys(tt.channels))...)
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
		wantExplained(t, tt.name, e, tt.notes, tt.channels)
	}
}

func wantExplained(t *testing.T, name string, e push.TokenExplanation, notes map[string]string,
	channels map[string][2]string) {
	t.Helper()
	said := map[string]string{}
	for _, note := range e.Notes {
		said[note.Name] = note.Does
	}
	for claim, want := range notes {
		if !strings.Contains(said[claim], want) {
			t.Errorf("%s: %s: %q, want %q", name, claim, said[claim], want)
		}
	}
	for _, note := range e.Channels {
		want := channels[note.Channel]
		if !strings.HasPrefix(note.Subscribe, want[0]) || !strings.HasPrefix(note.Publish, want[1]) {
			t.Errorf("%s: %q: %q, %q; want %q", name, note.Channel, note.Subscribe, note.Publish, want)
		}
	}
	if len(e.Channels) != len(channels) {
		t.Errorf("%s: %d channels of %d", name, len(e.Channels), len(channels))
	}
}

// What a token is said to allow is what the server allows.
func TestExplanationsHold(t *testing.T) {
	rules := []push.Namespace{{}, {Name: "t", SubscribeToken: true, Publish: push.PublishToken}, {Name: "u",
		UserLimited: true},
		{Name: "r", ChannelRegex: "^[0-9]+$", Publish: push.PublishNobody}, {Name: "s",
			Publish: push.PublishSubscribers},
		{Name: "ut", UserLimited: true, SubscribeToken: true, Publish: push.PublishSubscribers}}
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, Namespaces: rules})
	given := jwt.MapClaims{"sub": "42", "channels": []string{"t:mine"}, "caps": tokentest.Caps(
		tokentest.Cap("wildcard", []string{"sub", "pub"}, "t:x*"), tokentest.Cap("", []string{"pub"}, "r:1", "ut:1"))}
	c := ts.Client(given)
	channels := []string{"news", "t:mine", "t:1", "t:x1", "u:#42", "u:#43", "u:7", "r:1", "r:2", "r:x", "s:1", "ut:1",
		"ut:#42", "ut:#43", "ut:x"}
	e, err := ts.ExplainToken(tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), given), channels)
	if err != nil {
		t.Fatal(err)
	}
	for _, note := range e.Channels {
		c.Frame([]byte(`{"id":4,"publish":{"channel":"` + note.Channel + `","data":1}}`))
		publish := !strings.Contains(strings.Join(c.Take(), ""), `"error"`)
		c.Frame([]byte(`{"id":2,"subscribe":{"channel":"` + note.Channel + `"}}`))
		answer := strings.Join(c.Take(), "")
		subscribe := !strings.Contains(answer, `"error"`) || strings.Contains(answer, `"code":105`)
		// t:mine is subscribed from the start
		if subscribe != strings.HasPrefix(note.Subscribe, "yes") || publish != strings.HasPrefix(note.Publish,
			"yes:") {
			t.Errorf("%s: subscribe %v, publish %v, but %+v", note.Channel, subscribe, publish, note)
		}
	}
}
