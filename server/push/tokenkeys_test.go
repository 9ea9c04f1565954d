package push

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// signers are private keys, one of each kind.
type signers struct {
	rsa     *rsa.PrivateKey
	p256    *ecdsa.PrivateKey
	p384    *ecdsa.PrivateKey
	ed25519 ed25519.PrivateKey
}

var newSigners = sync.OnceValue(func() (s signers) {
	s.rsa, _ = rsa.GenerateKey(rand.Reader, minRSA)
	s.p256, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.p384, _ = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, s.ed25519, _ = ed25519.GenerateKey(rand.Reader)
	return s
})

func publicPEM(t *testing.T, key crypto.Signer) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// named signs with a kid.
func named(t *testing.T, method jwt.SigningMethod, key any, id any, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, c)
	token.Header["kid"] = id
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Each kind of key checks the algorithms of its kind, and no others.
func TestTokenKeys(t *testing.T) {
	keys, clock := newSigners(), newFakeClock()
	v := verifierOf(Config{TokenSecret: testSecret, TokenKeys: []string{
		publicPEM(t, keys.rsa) + publicPEM(t, keys.p256), publicPEM(t, keys.p384), publicPEM(t, keys.ed25519),
	}}, clock)
	claims := jwt.MapClaims{"sub": "ann", "exp": clock.Now().Add(time.Minute).Unix()}
	for _, tt := range []struct {
		method jwt.SigningMethod
		key    any
	}{
		{jwt.SigningMethodHS256, []byte(testSecret)}, {jwt.SigningMethodHS384, []byte(testSecret)},
		{jwt.SigningMethodRS256, keys.rsa}, {jwt.SigningMethodRS512, keys.rsa}, {jwt.SigningMethodPS256, keys.rsa},
		{jwt.SigningMethodPS384, keys.rsa}, {jwt.SigningMethodES256, keys.p256}, {jwt.SigningMethodES384, keys.p384},
		{jwt.SigningMethodEdDSA, keys.ed25519},
	} {
		if g, err := v.verify(sign(t, tt.method, tt.key, claims)); err != nil || g.user != "ann" {
			t.Errorf("%s: %v", tt.method.Alg(), err)
		}
		if _, err := v.verify(named(t, tt.method, tt.key, "any", claims)); err != nil {
			t.Errorf("%s with a kid: %v", tt.method.Alg(), err)
		}
	}
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if _, err := v.verify(sign(t, jwt.SigningMethodES256, other, claims)); !errors.Is(err, errTokenInvalid) {
		t.Error("another key's:", err)
	}
}

// A public key is no secret: a token that was signed with its bytes as one is refused, in whatever
// form an attacker has them. "none" is refused, and so is the kid of a file or a query.
func TestAttackAlgorithmConfusion(t *testing.T) {
	keys, clock := newSigners(), newFakeClock()
	v := verifierOf(Config{TokenKeys: []string{publicPEM(t, keys.rsa), publicPEM(t, keys.ed25519)}}, clock)
	claims := jwt.MapClaims{"sub": "eve", "exp": clock.Now().Add(time.Minute).Unix()}
	block, _ := pem.Decode([]byte(publicPEM(t, keys.rsa)))
	forged := []string{sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims)}
	for _, secret := range [][]byte{[]byte(publicPEM(t, keys.rsa)), block.Bytes, keys.rsa.N.Bytes(),
		keys.ed25519.Public().(ed25519.PublicKey), nil} {
		forged = append(forged, sign(t, jwt.SigningMethodHS256, secret, claims))
	}
	for _, id := range []any{"/dev/null", "../../etc/passwd", "' OR 1=1", 7, nil, []string{"a"}, map[string]any{}} {
		forged = append(forged, named(t, jwt.SigningMethodHS256, []byte{}, id, claims))
	}
	parts := strings.Split(sign(t, jwt.SigningMethodRS256, keys.rsa, claims), ".")
	for _, header := range []string{`{"alg":"HS256"}`, `{"alg":"none"}`, `{"alg":"RS256","kid":5}x`, `{"alg":"PS256"}`,
		`{}`} {
		forged = append(forged, base64.RawURLEncoding.EncodeToString([]byte(header))+"."+parts[1]+"."+parts[2])
	}
	for _, token := range forged {
		if _, err := v.verify(token); !errors.Is(err, errTokenInvalid) {
			t.Errorf("%s: %v", token, err)
		}
	}
}

func TestTokenKeysAreChecked(t *testing.T) {
	weak, _ := rsa.GenerateKey(rand.Reader, 1024)
	p224, _ := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	for name, c := range map[string]Config{
		"no PEM":       {TokenKeys: []string{"secret"}},
		"a private":    {TokenKeys: []string{"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"}},
		"no key":       {TokenKeys: []string{"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"}},
		"1024 bits":    {TokenKeys: []string{publicPEM(t, weak)}},
		"P-224":        {TokenKeys: []string{publicPEM(t, p224)}},
		"a URL":        {TokenKeysURL: "keys.json"},
		"http":         {TokenKeysURL: "http://example.org/keys"},
		"an issuer":    {TokenIssuer: "a"},
		"an audience":  {TokenAudience: "a"},
		"another kind": {TokenKeysURL: "ftp://localhost/keys"},
	} {
		if _, err := newTokenVerifier(c, newFakeClock(), nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestIssuerAndAudience(t *testing.T) {
	clock := newFakeClock()
	v := verifierOf(Config{TokenSecret: testSecret, TokenIssuer: "me", TokenAudience: "push"}, clock)
	for _, tt := range []struct {
		issuer, audience any
		ok               bool
	}{
		{"me", "push", true}, {"me", []string{"a", "push"}, true}, {"you", "push", false}, {"me", "web", false},
		{nil, "push", false}, {"me", nil, false},
	} {
		c := jwt.MapClaims{"sub": "ann", "exp": clock.Now().Add(time.Minute).Unix(), "iss": tt.issuer,
			"aud": tt.audience}
		if _, err := v.verify(sign(t, jwt.SigningMethodHS256, []byte(testSecret), c)); (err == nil) != tt.ok {
			t.Errorf("%v %v: %v", tt.issuer, tt.audience, err)
		}
	}
}

// A keyServer serves a key set, and counts how often.
type keyServer struct {
	*httptest.Server
	mu     sync.Mutex
	keys   []map[string]any
	status int
	raw    string // answered instead of keys
	asked  atomic.Int32
}

func newKeyServer(t *testing.T) *keyServer {
	k := &keyServer{status: 200}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		k.asked.Add(1)
		k.mu.Lock()
		defer k.mu.Unlock()
		w.WriteHeader(k.status)
		if k.raw != "" {
			io.WriteString(w, k.raw)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"keys": k.keys})
	}))
	t.Cleanup(k.Close)
	return k
}

func (k *keyServer) set(status int, keys ...map[string]any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status, k.keys, k.raw = status, keys, ""
}

func (k *keyServer) say(raw string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status, k.raw = 200, raw
}

func encoded(p []byte) string { return base64.RawURLEncoding.EncodeToString(p) }

func (s signers) sets() (list []map[string]any) {
	point := func(k *ecdsa.PrivateKey) (x, y string) {
		p, _ := k.PublicKey.Bytes()
		size := (len(p) - 1) / 2
		return encoded(p[1 : 1+size]), encoded(p[1+size:])
	}
	x, y := point(s.p256)
	return []map[string]any{
		{"kty": "RSA", "kid": "r", "alg": "RS256", "use": "sig", "n": encoded(s.rsa.N.Bytes()),
			"e": encoded(big.NewInt(int64(s.rsa.E)).Bytes())},
		{"kty": "EC", "kid": "e", "crv": "P-256", "x": x, "y": y},
		{"kty": "OKP", "kid": "o", "crv": "Ed25519", "x": encoded(s.ed25519.Public().(ed25519.PublicKey))},
	}
}

// Keys from a URL check the tokens that name them. A key that is new is fetched, one that is gone
// is refused.
func TestKeySet(t *testing.T) {
	keys, clock, server := newSigners(), newFakeClock(), newKeyServer(t)
	sets := keys.sets()
	server.set(200, sets[:2]...)
	v := verifierOf(Config{TokenKeysURL: server.URL}, clock)
	verify := func(method jwt.SigningMethod, key any, id string) error {
		_, err := v.verify(named(t, method, key, id, jwt.MapClaims{"sub": "ann",
			"exp": clock.Now().Add(time.Minute).Unix()}))
		return err
	}
	for _, tt := range []struct {
		method jwt.SigningMethod
		key    any
		id     string
		ok     bool
	}{
		{jwt.SigningMethodRS256, keys.rsa, "r", true}, {jwt.SigningMethodES256, keys.p256, "e", true},
		{jwt.SigningMethodPS256, keys.rsa, "r", false}, {jwt.SigningMethodRS256, keys.rsa, "e", false},
		{jwt.SigningMethodEdDSA, keys.ed25519, "o", false},
	} {
		if err := verify(tt.method, tt.key, tt.id); (err == nil) != tt.ok {
			t.Errorf("%s by %s: %v", tt.method.Alg(), tt.id, err)
		}
	}
	server.set(200, sets[1:]...)
	clock.advance(keysPause)
	if err := verify(jwt.SigningMethodEdDSA, keys.ed25519, "o"); err != nil {
		t.Error("a new key:", err)
	}
	if err := verify(jwt.SigningMethodRS256, keys.rsa, "r"); err == nil {
		t.Error("a key that is gone is used")
	}
	server.set(500)
	clock.advance(keysFresh)
	if err := verify(jwt.SigningMethodES256, keys.p256, "e"); err != nil {
		t.Error("while the URL fails:", err)
	}
	clock.advance(keysStale)
	if err := verify(jwt.SigningMethodES256, keys.p256, "e"); err == nil {
		t.Error("an hour later:", err)
	}
}

// A stranger's token that names an unknown key uses up the fetch. After the issuer has begun to use
// another key, its tokens are not known yet, and are not invalid for that.
func TestKeyThatIsNotKnownYet(t *testing.T) {
	keys, clock, server := newSigners(), newFakeClock(), newKeyServer(t)
	sets := keys.sets()
	bare := func(i int) map[string]any { // the key without its kid
		set := maps.Clone(sets[i])
		delete(set, "kid")
		return set
	}
	token := func(method jwt.SigningMethod, key any, id any) string {
		return named(t, method, key, id, jwt.MapClaims{"sub": "ann", "exp": clock.Now().Add(time.Hour).Unix(),
			"mercure": map[string]any{"publish": []string{"*"}}})
	}
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	for name, tt := range map[string]struct {
		before, after map[string]any
		id            any // of the new key, an Ed25519
	}{
		"by kid": {sets[1], sets[2], "o"}, "without kids": {bare(1), bare(2), nil},
		"without kids, of one kind": {bare(2), bare(2), nil},
	} {
		t.Run(name, func(t *testing.T) {
			server.set(500)
			v := verifierOf(Config{TokenKeysURL: server.URL}, clock)
			good := token(jwt.SigningMethodEdDSA, keys.ed25519, tt.id)
			if _, err := v.verify(good); !errors.Is(err, errKeyNotYetKnown) || errors.Is(err, errTokenInvalid) {
				t.Errorf("while the URL fails: %v", err)
			}
			clock.advance(keysPause)
			server.set(200, tt.before)
			stranger := token(jwt.SigningMethodES256, other, "invented")
			if _, err := v.verify(stranger); !errors.Is(err, errTokenInvalid) {
				t.Errorf("a stranger's token, after a fetch: %v", err)
			}
			clock.advance(keysPause - 1)
			server.set(200, tt.after)
			_, err := v.verify(good)
			_, mercure := v.verifyMercure(good, 10)
			if name != "without kids, of one kind" && (!errors.Is(err, errKeyNotYetKnown) ||
				!errors.Is(mercure, errKeyNotYetKnown)) {
				t.Errorf("a token by a new key: %v, %v", err, mercure)
			}
			if _, err := v.verify(stranger); !errors.Is(err, errKeyNotYetKnown) {
				t.Errorf("a stranger's token that may be one of a new key: %v", err)
			}
			asked := server.asked.Load()
			for _, forged := range []string{token(jwt.SigningMethodHS256, []byte("k"), "o"), "a.b.c"} {
				if _, err := v.verify(forged); !errors.Is(err, errTokenInvalid) {
					t.Errorf("%.40s: %v", forged, err)
				}
			}
			clock.advance(1)
			if _, err := v.verify(good); err != nil {
				t.Errorf("a token by a new key, %v later: %v", keysPause, err)
			}
			if n := server.asked.Load(); n > asked+1 {
				t.Errorf("%d fetches where one will do", n-asked)
			}
			if _, err := v.verify(stranger); !errors.Is(err, errTokenInvalid) {
				t.Errorf("a stranger's token, after another fetch: %v", err)
			}
		})
	}
}

// An answer that is no key set takes away no keys.
func TestAnswerWithoutKeys(t *testing.T) {
	keys, clock, server := newSigners(), newFakeClock(), newKeyServer(t)
	server.set(200, keys.sets()...)
	v := verifierOf(Config{TokenKeysURL: server.URL}, clock)
	log := new(syncBuffer)
	v.trust.Load().remote.log = slog.New(slog.NewTextHandler(log, nil))
	token := named(t, jwt.SigningMethodES256, keys.p256, "e", jwt.MapClaims{"sub": "ann"})
	if _, err := v.verify(token); err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{`{}`, `null`, `{"keys":null}`, `{"Error":"busy"}`, `<html>`, `[]`} {
		server.say(raw)
		clock.advance(keysPause)
		stranger := named(t, jwt.SigningMethodES256, keys.p256, "x", jwt.MapClaims{"sub": "ann"})
		if _, err := v.verify(stranger); !errors.Is(err, errKeyNotYetKnown) {
			t.Errorf("%s: an unknown key: %v", raw, err)
		}
		if _, err := v.verify(token); err != nil {
			t.Errorf("after %s: %v", raw, err)
		}
	}
	server.say(`{"keys":[]}`) // the issuer has none any more
	clock.advance(keysPause)
	_, _ = v.verify(named(t, jwt.SigningMethodES256, keys.p256, "x", jwt.MapClaims{"sub": "ann"}))
	if _, err := v.verify(token); !errors.Is(err, errKeyNotYetKnown) { // clients may come back when there are keys
		t.Errorf("by a key that was taken back: %v", err)
	}
	if !strings.Contains(log.String(), "the key set has no key") {
		t.Errorf("the log: %s", log)
	}
	server.set(200, keys.sets()[2])
	clock.advance(keysPause)
	if _, err := v.verify(token); !errors.Is(err, errTokenInvalid) {
		t.Errorf("by a key that another one has replaced: %v", err)
	}
}

// Every door says that a token whose key is not known yet may be tried again.
func TestDoorsForKeysThatAreNotKnownYet(t *testing.T) {
	keys, server := newSigners(), newKeyServer(t)
	server.set(500)
	ts := newTestServer(t, Config{TokenKeysURL: server.URL})
	token := named(t, jwt.SigningMethodES256, keys.p256, "e", jwt.MapClaims{"sub": "ann"})
	for _, path := range []string{"/events?channel=a&token=", mercurePath + "?topic=a&authorization="} {
		if w := ts.do("GET", path+token, ""); w.Code != 503 || w.Header().Get("Retry-After") == "" {
			t.Errorf("%.20s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := ts.do("POST", mercurePath, "topic=a", "Authorization", "Bearer "+token); w.Code != 503 {
		t.Errorf("publishing to Mercure: %d %s", w.Code, w.Body)
	}
	ts.do("POST", "/connection/uni_http_stream", `{"token":"`+token+`"}`)
	if got := ts.streams[len(ts.streams)-1].take(); !strings.Contains(got, `"disconnect":{"code":3004,`) {
		t.Errorf("a client that only receives: %s", got)
	}
	const again = `"error":{"code":100,"message":"internal server error","temporary":true}`
	ts.do("POST", "/connection/http_stream", `{"id":1,"connect":{"token":"`+token+`"}}`)
	if got := ts.streams[len(ts.streams)-1].take(); !strings.Contains(got, again) {
		t.Errorf("connect: %s", got)
	}
	if n := ts.node.refusals.counts[refusedUnknownKey].Load(); n != 5 {
		t.Errorf("%d refusals are counted, want 5", n)
	}
	n := newTestNode(t, withTokens, withRules(t, Namespace{SubscribeToken: true}))
	c := n.as(jwt.MapClaims{"sub": "ann"})
	n.tokens.trust.Store(ts.node.tokens.trust.Load())
	sub := named(t, jwt.SigningMethodES256, keys.p256, "e", jwt.MapClaims{"sub": "ann", "channel": "a"})
	c.asks(t, "subscribe", `{"id":2,"subscribe":{"channel":"a","token":"`+sub+`"}}`, `{"id":2,`+again+`}`)
	c.asks(t, "refresh", `{"id":2,"refresh":{"token":"`+token+`"}}`, `{"id":2,`+again+`}`)
	c.wantOpen(t, "after them")
}

// Tokens with invented keys make one fetch in keysPause, however many there are.
func TestAttackKeySetFlood(t *testing.T) {
	keys, clock, server := newSigners(), newFakeClock(), newKeyServer(t)
	server.set(200, keys.sets()...)
	v := verifierOf(Config{TokenKeysURL: server.URL}, clock)
	var all sync.WaitGroup
	for i := range 8 {
		token := named(t, jwt.SigningMethodES384, keys.p384, fmt.Sprint("invented ", i), jwt.MapClaims{"sub": "eve",
			"exp": clock.Now().Add(time.Minute).Unix()})
		all.Go(func() {
			for range 50 {
				if _, err := v.verify(token); !errors.Is(err, errTokenInvalid) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := server.asked.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
}

// A set that is malformed, or has keys of other uses, gives no keys.
func TestParseKeySet(t *testing.T) {
	sets := newSigners().sets()
	with := func(key map[string]any, name string, value any) map[string]any {
		changed := map[string]any{name: value}
		for k, v := range key {
			if k != name {
				changed[k] = v
			}
		}
		return changed
	}
	for i, key := range []map[string]any{
		{}, {"kty": "oct", "k": "c2VjcmV0"}, with(sets[0], "use", "enc"), with(sets[0], "alg", "HS256"),
		with(sets[0], "e", "AQ"), with(sets[0], "e", "AAAAAAAAAAE"), with(sets[0], "n", "AQAB"),
		with(sets[0], "n", "?"),
		with(sets[0], "key_ops", []string{"sign"}), with(sets[1], "crv", "P-384"), with(sets[1], "x", sets[1]["y"]),
		with(sets[2], "crv", "X25519"), with(sets[2], "x", "AQAB"), with(sets[0], "kid", 5),
	} {
		text, _ := json.Marshal(map[string]any{"keys": []any{key, sets[2]}})
		if keys, err := parseKeySet(text); err != nil || len(keys) != 1 || keys[0].id != "o" {
			t.Errorf("key %d: %v %v", i, keys, err)
		}
	}
	many, _ := json.Marshal(map[string]any{"keys": make([]any, maxKeys+1)})
	for _, text := range []string{"", "[]", `{"keys":5}`, "{}", "null", `{"keys":null}`, `{"jwks":[]}`, string(many)} {
		if _, err := parseKeySet([]byte(text)); err == nil {
			t.Errorf("%.20q is taken", text)
		}
	}
}

// subs subscribe like channels, each with an info of its own. expire_at takes the place of exp.
func TestClaimsOfSubscriptions(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, Namespace{Presence: true}))
	c := n.dial()
	c.frame([]byte(`{"id":1,"connect":{"token":"` + n.signed(jwt.MapClaims{"sub": "ann", "info": 1, "expire_at": 0,
		"channels": []string{"b"}, "subs": map[string]any{"a": map[string]any{"info": map[string]int{"x": 1}},
			"c": map[string]any{"b64info": "WzFd"}}}) + `"}}`))
	if got := c.take(); len(got) != 1 ||
		!strings.Contains(got[0], `"version":"test","subs":{"a":{},"b":{},"c":{}},"ping"`) {
		t.Errorf("received %q", got)
	}
	for channel, want := range map[string]string{"a": `,"chan_info":{"x":1}`, "b": "", "c": `,"chan_info":[1]`} {
		c.frame([]byte(`{"id":2,"presence":{"channel":"` + channel + `"}}`))
		if got := c.take(); len(got) != 1 || !strings.HasSuffix(got[0], `"conn_info":1`+want+`}}}}`) {
			t.Errorf("%s: %q", channel, got)
		}
	}
	late := n.clock.Now().Add(-time.Minute).Unix()
	expired := n.dial()
	expired.frame([]byte(`{"id":1,"connect":{"token":"` + n.signed(jwt.MapClaims{"sub": "ann", "expire_at": late}) +
		`"}}`))
	expired.want(t, "expired", `{"id":1,"error":{"code":109,"message":"token expired"}}`)
}
