package push

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const testSecret = "a secret that is long enough for HS256"

func sign(t *testing.T, method jwt.SigningMethod, key any, c jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, c).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// tokens returns named tokens whose times are relative to now.
func tokens(t *testing.T, now time.Time) map[string]string {
	t.Helper()
	in := func(d time.Duration) int64 { return now.Add(d).Unix() }
	hs := func(c jwt.MapClaims) string { return sign(t, jwt.SigningMethodHS256, []byte(testSecret), c) }
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := hs(jwt.MapClaims{"sub": "ann", "exp": in(time.Minute)})
	parts := strings.Split(good, ".")
	other := strings.Split(hs(jwt.MapClaims{"sub": "eve", "exp": in(time.Minute)}), ".")
	header := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	all := jwt.MapClaims{"sub": "ann", "exp": in(time.Minute)}
	return map[string]string{
		"good": good,
		"good since a day": hs(jwt.MapClaims{"sub": "ann", "exp": in(time.Minute), "nbf": in(-24 * time.Hour),
			"iat": in(-24 * time.Hour)}),
		"expired":        hs(jwt.MapClaims{"sub": "ann", "exp": in(-time.Second)}),
		"not yet":        hs(jwt.MapClaims{"sub": "ann", "exp": in(time.Hour), "nbf": in(time.Minute)}),
		"without sub":    hs(jwt.MapClaims{"exp": in(time.Minute)}),
		"for a channel":  hs(jwt.MapClaims{"sub": "ann", "exp": in(time.Minute), "channel": "news"}),
		"another secret": sign(t, jwt.SigningMethodHS256, []byte("another"), all),
		"expired, forged": sign(t, jwt.SigningMethodHS256, []byte("another"),
			jwt.MapClaims{"sub": "ann", "exp": in(-time.Hour)}),
		"good, HS512":       sign(t, jwt.SigningMethodHS512, []byte(testSecret), all),
		"RS256":             sign(t, jwt.SigningMethodRS256, rsaKey, all),
		"none":              sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, all),
		"none, signed":      header(`{"alg":"none","typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"nOnE":              header(`{"alg":"nOnE"}`) + "." + parts[1] + ".",
		"other claims":      parts[0] + "." + other[1] + "." + parts[2],
		"without signature": parts[0] + "." + parts[1] + ".",
		"two parts":         parts[0] + "." + parts[1],
		"exp is a string":   hs(jwt.MapClaims{"sub": "ann", "exp": "tomorrow"}),
		"garbage":           "garbage",
		"dots":              "..",
	}
}

var tokenOutcomes = map[string]error{
	"good": nil, "good since a day": nil,
	"expired": errTokenExpired, "not yet": errTokenExpired,
	"without sub": errTokenInvalid, "for a channel": errTokenInvalid,
	"another secret": errTokenInvalid, "expired, forged": errTokenInvalid, "HS512": errTokenInvalid,
	"RS256": errTokenInvalid,
	"none":  errTokenInvalid, "none, signed": errTokenInvalid, "nOnE": errTokenInvalid,
	"other claims":      errTokenInvalid,
	"without signature": errTokenInvalid, "two parts": errTokenInvalid, "exp is a string": errTokenInvalid,
	"garbage": errTokenInvalid, "dots": errTokenInvalid,
}

func TestVerify(t *testing.T) {
	clock := newFakeClock()
	v := verifierOf(Config{TokenSecret: testSecret}, clock)
	all := tokens(t, clock.Now())
	if len(all) != len(tokenOutcomes) {
		t.Fatalf("%d tokens, %d outcomes", len(all), len(tokenOutcomes))
	}
	for name, token := range all {
		g, err := v.verify(token)
		if !errors.Is(err, tokenOutcomes[name]) {
			t.Errorf("%s: %v, want %v", name, err, tokenOutcomes[name])
		}
		if err != nil && (g.user != "" || !g.ends.IsZero()) {
			t.Errorf("%s: refused, but grants %v", name, g)
		}
		if err == nil && (g.user != "ann" || !g.ends.Equal(clock.Now().Add(time.Minute))) {
			t.Errorf("%s: grants %v", name, g)
		}
	}
}

// A token without exp does not expire: neither the connection nor the subscription has an end.
func TestTokenWithoutExpiry(t *testing.T) {
	n := newTestNode(t, withTokens)
	n.timing.Ping = 1000 * time.Hour
	c := n.dial()
	c.connect(sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "ann"}))
	subscription := sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "ann",
		"channel": "more"})
	c.frame([]byte(`{"id":3,"subscribe":{"channel":"more","token":"` + subscription + `"}}`))
	if got := strings.Join(c.take(), "\n"); strings.Contains(got, "expires") || strings.Contains(got, "error") {
		t.Errorf("received %s", got)
	}
	n.clock.advance(100 * time.Hour)
	c.wantOpen(t, "after a long time")
	c.want(t, "after a long time")
	for _, claims := range []jwt.MapClaims{{"sub": "ann", "exp": nil}, {"sub": "ann", "exp": 0}, {"sub": "ann",
		"exp": ""}} {
		_, err := n.tokens.verify(sign(t, jwt.SigningMethodHS256, []byte(testSecret), claims))
		if refused := err != nil; refused != (claims["exp"] != nil) {
			t.Errorf("%v: %v", claims, err)
		}
	}
}

// verifierOf returns the verifier of a configuration without mistakes.
func verifierOf(c Config, clock Clock) *tokenVerifier {
	v, err := newTokenVerifier(c, clock, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	return v
}

func withTokens(n *node) { n.tokens = verifierOf(Config{TokenSecret: testSecret}, n.clock) }

func (f *fakeTransport) connect(token string) {
	f.frame([]byte("{\"id\":1,\"connect\":{\"token\":\"" + token +
		"\"}}\n{\"id\":2,\"subscribe\":{\"channel\":\"news\"}}"))
}

func TestConnectWithToken(t *testing.T) {
	n := newTestNode(t, withTokens)
	for name, token := range tokens(t, n.clock.Now()) {
		c := n.dial()
		c.connect(token)
		switch tokenOutcomes[name] {
		case nil:
			c.want(t, name, `{"id":1,"connect":{"client":"`+c.s.id.String()+`","version":"test","expires":true,`+
				`"ttl":60,"ping":25,"pong":true}}`+
				"\n"+`{"id":2,"subscribe":{}}`)
			c.wantOpen(t, name)
		case errTokenExpired:
			// A client library disconnects, fetches a new token and reconnects. The server drops
			// the subscribe after the connect.
			c.want(t, name, `{"id":1,"error":{"code":109,"message":"token expired"}}`)
			c.wantOpen(t, name)
			c.connect(token)
			c.wantClosed(t, name+", and the client goes on", endBadRequest)
		default:
			c.want(t, name)
			c.wantClosed(t, name, endInvalidToken)
		}
		c.hangUp()
	}
	c := n.dial()
	c.frame([]byte(`{"id":1,"connect":{}}`))
	c.wantClosed(t, "missing", endBadRequest)
	if n.hub.held() != 0 {
		t.Error("a client without a valid token was accepted")
	}
}

func TestTokenEnds(t *testing.T) {
	n := newTestNode(t, withTokens)
	c := n.dial()
	c.connect(sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "ann",
		"exp": n.clock.Now().Add(20 * time.Second).Unix()}))
	c.take()
	answer := func(d time.Duration) { // advances the clock and answers pings meanwhile
		for ; d > 0; d -= time.Second {
			n.clock.advance(time.Second)
			for range c.take() {
				c.frame([]byte("{}"))
			}
		}
	}
	answer(30 * time.Second)
	c.wantOpen(t, "there is time left to refresh")
	refresh := func(user string, d time.Duration) string {
		token := sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": user,
			"exp": n.clock.Now().Add(d).Unix()})
		return `{"id":7,"refresh":{"token":"` + token + `"}}`
	}
	c.frame([]byte(refresh("ann", 40*time.Second)))
	c.want(t, "refreshed", `{"id":7,"refresh":{"client":"`+c.s.id.String()+`","expires":true,"ttl":40}}`)
	answer(64 * time.Second)
	c.wantOpen(t, "refreshed")
	answer(2 * time.Second)
	c.wantClosed(t, "not refreshed again", endExpired)
}

// A token's exp may be beyond the times that the server can represent. Such a token never expires.
func TestTokenOfManyYears(t *testing.T) {
	const year = 365 * 24 * 3600
	clock := newFakeClock()
	for name, exp := range map[string]int64{
		"ten years": clock.Now().Unix() + 10*year, "2262": 9223372036, "2262, plus": 9223372037, "2286": 9999999999,
		"9999": 253402300799, "a float's last integer": 1 << 53,
	} {
		token := sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "ann", "exp": exp})
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t, withTokens)
			c := n.dial()
			c.connect(token)
			c.want(t, "connect", `{"id":1,"connect":{"client":"`+c.s.id.String()+`","version":"test",`+
				`"expires":true,"ttl":31536000,"ping":25,"pong":true}}`+
				"\n"+`{"id":2,"subscribe":{}}`)
			c.frame([]byte(`{"id":7,"refresh":{"token":"` + token + `"}}`))
			c.want(t, "refresh", `{"id":7,"refresh":{"client":"`+c.s.id.String()+`","expires":true,"ttl":31536000}}`)
			for range 100 {
				n.clock.advance(time.Second)
				for range c.take() {
					c.frame([]byte("{}"))
				}
			}
			c.wantOpen(t, "later")
			ts := newTestServer(t, Config{TokenSecret: testSecret})
			stream := ts.subscribe("channel=news&token=" + token)
			ts.clock.advance(100 * time.Second)
			if stream.isClosed() {
				t.Error("the stream was closed")
			}
		})
	}
}

func TestRefreshRefused(t *testing.T) {
	for _, tt := range []struct {
		name, token string
		want        ending
	}{
		{"expired", "expired", endExpired},
		{"forged", "another secret", endInvalidToken},
		{"another user's", "", endInvalidToken},
		{"missing", "missing", endBadRequest},
	} {
		n := newTestNode(t, withTokens)
		all := tokens(t, n.clock.Now())
		all[""] = sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "eve",
			"exp": n.clock.Now().Add(time.Hour).Unix()})
		c := n.dial()
		c.connect(all["good"])
		c.frame([]byte(`{"id":7,"refresh":{"token":"` + all[tt.token] + `"}}`))
		c.wantClosed(t, tt.name, tt.want)
	}
}

func TestPublishedByUser(t *testing.T) {
	n := newTestNode(t, withTokens)
	c := n.dial()
	c.connect(tokens(t, n.clock.Now())["good"])
	c.take()
	c.frame([]byte(`{"id":3,"publish":{"channel":"news","data":1}}`))
	c.want(t, "own publication",
		`{"push":{"channel":"news","pub":{"data":1,"info":{"user":"ann","client":"`+c.s.id.String()+`"}}}}`,
		`{"id":3,"publish":{}}`)
}
