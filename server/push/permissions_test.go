package push_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/golang-jwt/jwt/v5"
)

// /events has the rule of ChannelRegex, too.
func TestChannelRegexOfEvents(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{ChannelRegex: "^a$"}}})
	if w := ts.Do("GET", "/events?channel=b", ""); w.Code != 400 || !strings.Contains(w.Body.String(),
		"channel regex") {
		t.Errorf("events: %d %s", w.Code, w.Body)
	}
}

// The API and /events have the rule known-only, too.
func TestKnownOnlyOfTheAPI(t *testing.T) {
	rules := []push.Namespace{{KnownOnly: true}, {Name: "n", HistorySize: 1, Presence: true}}
	ts := servertest.New(t, push.Config{Namespaces: rules})
	for method, more := range map[string]string{"publish": `,"data":1`, "presence": "", "presence_stats": "",
		"history": "", "history_remove": "", "subscribe": `,"user":"ann"`} {
		w := ts.Do("POST", "/api/"+method, `{"channel":"o:a"`+more+`}`, "X-Centrifugo-Error-Mode", "transport")
		if w.Code != 404 || w.Body.String() != `{"code":102,"message":"unknown channel"}` {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
	if w := ts.Do("GET", "/events?channel=o:a", ""); w.Code != 400 || !strings.Contains(w.Body.String(), "known-only") {
		t.Errorf("events: %d %s", w.Code, w.Body)
	}
	if _, err := policy.NewNamespaces([]push.Namespace{{Name: "a", KnownOnly: true}}, false); err == nil {
		t.Error("a namespace with a name has the rule")
	}
}

// Streams of events obey the same rules.
func TestEventsOfLimitedChannels(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, Namespaces: []push.Namespace{{UserLimited: true},
		{Name: "p", SubscribeToken: true}}})
	token := func(c jwt.MapClaims) string {
		c["exp"] = ts.Config().Clock.Now().Add(time.Hour).Unix()
		return tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), c)
	}
	for _, tt := range []struct {
		channel string
		claims  jwt.MapClaims
		want    string
	}{
		{"dialog#42", jwt.MapClaims{"sub": "43"}, "is for other users"},
		{"p:1", jwt.MapClaims{"sub": "43", "caps": caps(capOf("", []string{"pub"}, "p:1"))},
			"the token's claim channels"},
		{"dialog#42", jwt.MapClaims{"sub": "42"}, ""},
		{"p:1", jwt.MapClaims{"sub": "43", "caps": caps(capOf("", []string{"sub"}, "p:1"))}, ""},
	} {
		path := "/events?channel=" + url.QueryEscape(tt.channel) + "&token=" + token(tt.claims)
		if tt.want == "" {
			if w := ts.Do("GET", path, ""); w.Code != 200 {
				t.Errorf("%s: %d %s", tt.channel, w.Code, w.Body)
			}
			continue
		}
		if w := ts.Do("GET", path, ""); w.Code != 403 || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s: %d %s", tt.channel, w.Code, w.Body)
		}
	}
}

// Rules about users need clients that have one.
func TestPersonalChannelsNeedUsers(t *testing.T) {
	if _, err := push.New(push.Config{Namespaces: []push.Namespace{{Personal: true}}}); err == nil ||
		!strings.Contains(err.Error(), "no client has a user") {
		t.Errorf("without users: %v", err)
	}
}

func capOf(match string, allow []string, channels ...string) any {
	return map[string]any{"channels": channels, "match": match, "allow": allow}
}

func caps(list ...any) []any { return list }
