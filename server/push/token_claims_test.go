package push

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

var manyChannels = strings.Split(strings.Trim(fmt.Sprint(rand.Perm(129)), "[]"), " ")

// A claim that the server does not implement is refused by name, because its issuer relies on it.
func TestClaimsAreRefusedByName(t *testing.T) {
	n := newTestNode(t, withTokens,
		func(n *node) { n.rules = mustRules(t, Namespace{Name: "p", SubscribeToken: true}) })
	for _, tt := range []struct {
		claim string
		value any
		want  string // in the log; empty: the token is valid
	}{
		{"channels", []string{"p:mine"}, ""},
		{"channels", []string{}, ""},
		{"channels", []string{"p:mine", "news"}, ""},
		{"channels", []string{"p:mine", "a\x01"}, `the claim channels has \"a\\x01\", which is not a name`},
		{"channels", manyChannels, "the claim channels has 129 names, at most 128 are allowed"},
		{"subs", map[string]any{"news": map[string]any{}}, ""},
		{"subs", map[string]any{"a": map[string]any{"data": 1}}, "the claim subs has data, b64data or override"},
		{"subs", map[string]any{"a": map[string]any{"override": map[string]any{}}}, "the claim subs has data"},
		{"subs", nil, ""},
		{"caps", []any{map[string]any{"channels": []string{"a"}, "allow": []string{"pub"}}}, ""},
		{"expire_at", 0, ""},
		{"subs", map[string]any{"a": map[string]any{"recover": true}}, "the claim subs has recover for the channel"},
		{"subs", map[string]any{"a": map[string]any{"info": 1, "data": nil}}, ""},
		{"caps", []any{map[string]any{"channels": []string{"a"}, "deny": []string{"pub"}}}, "the claim caps has deny"},
		{"b64info", "eyJ9", "the claim b64info is not JSON in base64"},
		{"b64info", "?", "illegal base64"},
		{"meta", map[string]any{"a": 1}, ""}, // no answer shows it, here or in Centrifugo
		{"data", 1, ""},
		{"roles", []string{"admin"}, ""}, // RFC 7519 §4: claims that are not understood are ignored
	} {
		c := n.dial()
		claims := jwt.MapClaims{"sub": "ann", "exp": n.clock.Now().Add(time.Minute).Unix(), tt.claim: tt.value}
		c.frame([]byte(`{"id":1,"connect":{"token":"` + sign(t, jwt.SigningMethodHS256, []byte(testSecret), claims) +
			`"}}`))
		if tt.want == "" {
			c.wantOpen(t, tt.claim)
			continue
		}
		c.wantClosed(t, tt.claim, endInvalidToken)
		if !strings.Contains(n.log.String(), tt.want) {
			t.Errorf("%s %v: the log says\n%s, want %s", tt.claim, tt.value, n.log, tt.want)
		}
	}
}

// The same holds for tokens of subscriptions. A token that names a connection is valid for that
// connection only.
func TestSubscriptionClaims(t *testing.T) {
	n := newTestNode(t, withTokens,
		func(n *node) { n.rules = mustRules(t, Namespace{Name: "p", SubscribeToken: true}) })
	c := n.dial()
	c.frame([]byte(`{"id":1,"connect":{"token":"` + tokens(t, n.clock.Now())["good"] + `"}}`))
	c.take()
	for _, tt := range []struct {
		claim string
		value any
		want  string
	}{
		{"override", map[string]any{"presence": map[string]any{"value": true}}, "the claim override is not served"},
		{"data", 1, "the claim data is not served"},
		{"b64data", "MQ==", "the claim b64data is not served"},
		{"allow", []string{"pub", "adm"}, "the claim allow has "},
		{"client", "another", "it is for another connection"},
		{"client", c.s.id.String(), ""},
	} {
		claims := jwt.MapClaims{"sub": "ann", "exp": n.clock.Now().Add(time.Minute).Unix(), "channel": "p:1",
			tt.claim: tt.value}
		c.frame([]byte(`{"id":2,"subscribe":{"channel":"p:1","token":"` +
			sign(t, jwt.SigningMethodHS256, []byte(testSecret), claims) + `"}}`))
		got := strings.Join(c.take(), "")
		if tt.want == "" {
			if !strings.HasPrefix(got, `{"id":2,"subscribe":{`) {
				t.Errorf("%s %v: %s", tt.claim, tt.value, got)
			}
			continue
		}
		if got != `{"id":2,"error":{"code":103,"message":"permission denied"}}` ||
			!strings.Contains(n.log.String(), tt.want) {
			t.Errorf("%s %v: %s; the log says\n%s, want %s", tt.claim, tt.value, got, n.log, tt.want)
		}
	}
}

// The answer to an SSE subscriber names the claim.
func TestEventsTellTheClaim(t *testing.T) {
	ts := newTestServer(t, Config{TokenSecret: testSecret})
	claims := jwt.MapClaims{"sub": "ann", "exp": ts.clock.Now().Add(time.Minute).Unix(), "channels": []string{"a\n"}}
	w := ts.do("GET", "/events?channel=news&token="+sign(t, jwt.SigningMethodHS256, []byte(testSecret), claims), "")
	if w.Code != 401 || !strings.Contains(w.Body.String(),
		`"code":3500,"message":"invalid token: the claim channels has \"a`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
