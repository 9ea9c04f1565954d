package hub

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/token"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

const testSecret = tokentest.Secret

var (
	sign   = tokentest.Sign
	tokens = tokentest.Tokens
)

// A token without exp does not expire: neither the connection nor the subscription has an end.
func TestTokenWithoutExpiry(t *testing.T) {
	n := newTestNode(t, withTokens)
	n.timing.Ping = 1000 * time.Hour
	c := n.dial()
	c.connect(sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "ann"}))
	subscription := sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "ann",
		"channel": "more"})
	c.frame([]byte(`{"id":3,"subscribe":{"channel":"more","token":"` + subscription + `"}}`))
	if got := strings.Join(c.Take(), "\n"); strings.Contains(got, "expires") || strings.Contains(got, "error") {
		t.Errorf("received %s", got)
	}
	n.clock.Advance(100 * time.Hour)
	c.WantOpen(t, "after a long time")
	c.Want(t, "after a long time")
	for _, claims := range []jwt.MapClaims{{"sub": "ann", "exp": nil}, {"sub": "ann", "exp": 0}, {"sub": "ann",
		"exp": ""}} {
		_, err := n.tokens.Connection(sign(t, jwt.SigningMethodHS256, []byte(testSecret), claims))
		if refused := err != nil; refused != (claims["exp"] != nil) {
			t.Errorf("%v: %v", claims, err)
		}
	}
}

// verifierOf returns the verifier of a configuration without mistakes.
func verifierOf(c token.Config, clock Clock) *token.Verifier {
	c.Now, c.Log = clock.Now, slog.New(slog.DiscardHandler)
	v, err := token.New(c)
	if err != nil {
		panic(err)
	}
	return v
}

func withTokens(c *Config) { c.Tokens = verifierOf(token.Config{Secret: testSecret}, c.Clock) }

func (f *fakeTransport) connect(token string) {
	f.frame([]byte("{\"id\":1,\"connect\":{\"token\":\"" + token +
		"\"}}\n{\"id\":2,\"subscribe\":{\"channel\":\"news\"}}"))
}

func TestConnectWithToken(t *testing.T) {
	n := newTestNode(t, withTokens)
	for name, token := range tokens(t, n.clock.Now()) {
		c := n.dial()
		c.connect(token)
		switch {
		case tokentest.IsValid(name):
			c.Want(t, name, `{"id":1,"connect":{"client":"`+c.s.ID()+`","version":"test","expires":true,`+
				`"ttl":60,"ping":25,"pong":true}}`+
				"\n"+`{"id":2,"subscribe":{}}`)
			c.WantOpen(t, name)
		case tokentest.IsExpired(name):
			// A client library disconnects, fetches a new token and reconnects. The server drops
			// the subscribe after the connect.
			c.Want(t, name, `{"id":1,"error":{"code":109,"message":"token expired"}}`)
			c.WantOpen(t, name)
			c.connect(token)
			c.WantClosed(t, name+", and the client goes on", answer.DisconnectBadRequest)
		default:
			c.Want(t, name)
			c.WantClosed(t, name, answer.DisconnectInvalidToken)
		}
		c.hangUp()
	}
	c := n.dial()
	c.frame([]byte(`{"id":1,"connect":{}}`))
	c.WantClosed(t, "missing", answer.DisconnectBadRequest)
	if n.channels.held() != 0 {
		t.Error("a client without a valid token was accepted")
	}
}

func TestTokenEnds(t *testing.T) {
	n := newTestNode(t, withTokens)
	c := n.dial()
	c.connect(sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "ann",
		"exp": n.clock.Now().Add(20 * time.Second).Unix()}))
	c.Take()
	advance := func(d time.Duration) { // advances the clock and answers pings meanwhile
		for ; d > 0; d -= time.Second {
			n.clock.Advance(time.Second)
			for range c.Take() {
				c.frame([]byte("{}"))
			}
		}
	}
	advance(30 * time.Second)
	c.WantOpen(t, "there is time left to refresh")
	refresh := func(user string, d time.Duration) string {
		token := sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": user,
			"exp": n.clock.Now().Add(d).Unix()})
		return `{"id":7,"refresh":{"token":"` + token + `"}}`
	}
	c.frame([]byte(refresh("ann", 40*time.Second)))
	c.Want(t, "refreshed", `{"id":7,"refresh":{"client":"`+c.s.ID()+`","expires":true,"ttl":40}}`)
	advance(64 * time.Second)
	c.WantOpen(t, "refreshed")
	advance(2 * time.Second)
	c.WantClosed(t, "not refreshed again", answer.DisconnectExpired)
}

// A token's exp may be beyond the times that the server can represent. Such a token never expires.
func TestTokenOfManyYears(t *testing.T) {
	const year = 365 * 24 * 3600
	clock := pushtest.NewClock()
	for name, exp := range map[string]int64{
		"ten years": clock.Now().Unix() + 10*year, "2262": 9223372036, "2262, plus": 9223372037, "2286": 9999999999,
		"9999": 253402300799, "a float's last integer": 1 << 53,
	} {
		token := sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "ann", "exp": exp})
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t, withTokens)
			c := n.dial()
			c.connect(token)
			c.Want(t, "connect", `{"id":1,"connect":{"client":"`+c.s.ID()+`","version":"test",`+
				`"expires":true,"ttl":31536000,"ping":25,"pong":true}}`+
				"\n"+`{"id":2,"subscribe":{}}`)
			c.frame([]byte(`{"id":7,"refresh":{"token":"` + token + `"}}`))
			c.Want(t, "refresh", `{"id":7,"refresh":{"client":"`+c.s.ID()+`","expires":true,"ttl":31536000}}`)
			for range 100 {
				n.clock.Advance(time.Second)
				for range c.Take() {
					c.frame([]byte("{}"))
				}
			}
			c.WantOpen(t, "later")
		})
	}
}

func TestRefreshRefused(t *testing.T) {
	for _, tt := range []struct {
		name, token string
		want        answer.Disconnect
	}{
		{"expired", "expired", answer.DisconnectExpired},
		{"forged", "another secret", answer.DisconnectInvalidToken},
		{"another user's", "", answer.DisconnectInvalidToken},
		{"missing", "missing", answer.DisconnectBadRequest},
	} {
		n := newTestNode(t, withTokens)
		all := tokens(t, n.clock.Now())
		all[""] = sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "eve",
			"exp": n.clock.Now().Add(time.Hour).Unix()})
		c := n.dial()
		c.connect(all["good"])
		c.frame([]byte(`{"id":7,"refresh":{"token":"` + all[tt.token] + `"}}`))
		c.WantClosed(t, tt.name, tt.want)
	}
}

func TestPublishedByUser(t *testing.T) {
	n := newTestNode(t, withTokens)
	c := n.dial()
	c.connect(tokens(t, n.clock.Now())["good"])
	c.Take()
	c.frame([]byte(`{"id":3,"publish":{"channel":"news","data":1}}`))
	c.Want(t, "own publication",
		`{"push":{"channel":"news","pub":{"data":1,"info":{"user":"ann","client":"`+c.s.ID()+`"}}}}`,
		`{"id":3,"publish":{}}`)
}

// So do the answers to tokens for subscriptions, and to a refresh.
func TestSubscriptionsForKeysThatAreNotKnownYet(t *testing.T) {
	keys, server := tokentest.NewSigners(), tokentest.NewKeyServer(t)
	server.Set(500)
	signed := tokentest.SignNamed(t, jwt.SigningMethodES256, keys.P256, "e", jwt.MapClaims{"sub": "ann"})
	const again = `"error":{"code":100,"message":"internal server error","temporary":true}`
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{SubscribeToken: true}))
	c := n.as(jwt.MapClaims{"sub": "ann"})
	n.tokens = verifierOf(token.Config{KeysURL: server.URL}, n.clock)
	sub := tokentest.SignNamed(t, jwt.SigningMethodES256, keys.P256, "e", jwt.MapClaims{"sub": "ann", "channel": "a"})
	c.asks(t, "subscribe", `{"id":2,"subscribe":{"channel":"a","token":"`+sub+`"}}`, `{"id":2,`+again+`}`)
	c.asks(t, "refresh", `{"id":2,"refresh":{"token":"`+signed+`"}}`, `{"id":2,`+again+`}`)
	c.WantOpen(t, "after them")
}

var manyChannels = strings.Split(strings.Trim(fmt.Sprint(rand.Perm(129)), "[]"), " ")

// A claim that the server does not implement is refused by name, because its issuer relies on it.
func TestClaimsAreRefusedByName(t *testing.T) {
	n := newTestNode(t, withTokens,
		func(c *Config) { c.Rules = mustRules(t, policy.Namespace{Name: "p", SubscribeToken: true}) })
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
			c.WantOpen(t, tt.claim)
			continue
		}
		c.WantClosed(t, tt.claim, answer.DisconnectInvalidToken)
		if !strings.Contains(n.log.String(), tt.want) {
			t.Errorf("%s %v: the log says\n%s, want %s", tt.claim, tt.value, n.log, tt.want)
		}
	}
}

// The same holds for tokens of subscriptions. A token that names a connection is valid for that
// connection only.
func TestSubscriptionClaims(t *testing.T) {
	n := newTestNode(t, withTokens,
		func(c *Config) { c.Rules = mustRules(t, policy.Namespace{Name: "p", SubscribeToken: true}) })
	c := n.dial()
	c.frame([]byte(`{"id":1,"connect":{"token":"` + tokens(t, n.clock.Now())["good"] + `"}}`))
	c.Take()
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
		{"client", c.s.ID(), ""},
	} {
		claims := jwt.MapClaims{"sub": "ann", "exp": n.clock.Now().Add(time.Minute).Unix(), "channel": "p:1",
			tt.claim: tt.value}
		c.frame([]byte(`{"id":2,"subscribe":{"channel":"p:1","token":"` +
			sign(t, jwt.SigningMethodHS256, []byte(testSecret), claims) + `"}}`))
		got := strings.Join(c.Take(), "")
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

// subs subscribe like channels, each with an info of its own. expire_at takes the place of exp.
func TestClaimsOfSubscriptions(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{Presence: true}))
	c := n.dial()
	c.frame([]byte(`{"id":1,"connect":{"token":"` + n.signed(jwt.MapClaims{"sub": "ann", "info": 1, "expire_at": 0,
		"channels": []string{"b"}, "subs": map[string]any{"a": map[string]any{"info": map[string]int{"x": 1}},
			"c": map[string]any{"b64info": "WzFd"}}}) + `"}}`))
	if got := c.Take(); len(got) != 1 ||
		!strings.Contains(got[0], `"version":"test","subs":{"a":{},"b":{},"c":{}},"ping"`) {
		t.Errorf("received %q", got)
	}
	for channel, want := range map[string]string{"a": `,"chan_info":{"x":1}`, "b": "", "c": `,"chan_info":[1]`} {
		c.frame([]byte(`{"id":2,"presence":{"channel":"` + channel + `"}}`))
		if got := c.Take(); len(got) != 1 || !strings.HasSuffix(got[0], `"conn_info":1`+want+`}}}}`) {
			t.Errorf("%s: %q", channel, got)
		}
	}
	late := n.clock.Now().Add(-time.Minute).Unix()
	expired := n.dial()
	expired.frame([]byte(`{"id":1,"connect":{"token":"` + n.signed(jwt.MapClaims{"sub": "ann", "expire_at": late}) +
		`"}}`))
	expired.Want(t, "expired", `{"id":1,"error":{"code":109,"message":"token expired"}}`)
}
