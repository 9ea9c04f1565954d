package token

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// Each kind of key checks the algorithms of its kind, and no others.
func TestTokenKeys(t *testing.T) {
	keys, clock := tokentest.NewSigners(), newClock()
	v := verifierOf(Config{Secret: testSecret, Keys: []string{
		publicPEM(t, keys.RSA) + publicPEM(t, keys.P256), publicPEM(t, keys.P384), publicPEM(t, keys.Ed25519),
	}}, clock)
	claims := jwt.MapClaims{"sub": "ann", "exp": clock.Now().Add(time.Minute).Unix()}
	for _, tt := range []struct {
		method jwt.SigningMethod
		key    any
	}{
		{jwt.SigningMethodHS256, []byte(testSecret)}, {jwt.SigningMethodHS384, []byte(testSecret)},
		{jwt.SigningMethodRS256, keys.RSA}, {jwt.SigningMethodRS512, keys.RSA}, {jwt.SigningMethodPS256, keys.RSA},
		{jwt.SigningMethodPS384, keys.RSA}, {jwt.SigningMethodES256, keys.P256}, {jwt.SigningMethodES384, keys.P384},
		{jwt.SigningMethodEdDSA, keys.Ed25519},
	} {
		if g, err := v.Connection(sign(t, tt.method, tt.key, claims)); err != nil || g.User != "ann" {
			t.Errorf("%s: %v", tt.method.Alg(), err)
		}
		if _, err := v.Connection(named(t, tt.method, tt.key, "any", claims)); err != nil {
			t.Errorf("%s with a kid: %v", tt.method.Alg(), err)
		}
	}
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if _, err := v.Connection(sign(t, jwt.SigningMethodES256, other, claims)); !errors.Is(err, ErrInvalid) {
		t.Error("another key's:", err)
	}
}

// A public key is no secret: a token that was signed with its bytes as one is refused, in whatever
// form an attacker has them. "none" is refused, and so is the kid of a file or a query.
func TestAttackAlgorithmConfusion(t *testing.T) {
	keys, clock := tokentest.NewSigners(), newClock()
	v := verifierOf(Config{Keys: []string{publicPEM(t, keys.RSA), publicPEM(t, keys.Ed25519)}}, clock)
	claims := jwt.MapClaims{"sub": "eve", "exp": clock.Now().Add(time.Minute).Unix()}
	block, _ := pem.Decode([]byte(publicPEM(t, keys.RSA)))
	forged := []string{sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims)}
	for _, secret := range [][]byte{[]byte(publicPEM(t, keys.RSA)), block.Bytes, keys.RSA.N.Bytes(),
		keys.Ed25519.Public().(ed25519.PublicKey), nil} {
		forged = append(forged, sign(t, jwt.SigningMethodHS256, secret, claims))
	}
	for _, id := range []any{"/dev/null", "../../etc/passwd", "' OR 1=1", 7, nil, []string{"a"}, map[string]any{}} {
		forged = append(forged, named(t, jwt.SigningMethodHS256, []byte{}, id, claims))
	}
	parts := strings.Split(sign(t, jwt.SigningMethodRS256, keys.RSA, claims), ".")
	for _, header := range []string{`{"alg":"HS256"}`, `{"alg":"none"}`, `{"alg":"RS256","kid":5}x`, `{"alg":"PS256"}`,
		`{}`} {
		forged = append(forged, base64.RawURLEncoding.EncodeToString([]byte(header))+"."+parts[1]+"."+parts[2])
	}
	for _, token := range forged {
		if _, err := v.Connection(token); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", token, err)
		}
	}
}

func TestTokenKeysAreChecked(t *testing.T) {
	weak, _ := rsa.GenerateKey(rand.Reader, 1024)
	p224, _ := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	for name, c := range map[string]Config{
		"no PEM":       {Keys: []string{"secret"}},
		"a private":    {Keys: []string{"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"}},
		"no key":       {Keys: []string{"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"}},
		"1024 bits":    {Keys: []string{publicPEM(t, weak)}},
		"P-224":        {Keys: []string{publicPEM(t, p224)}},
		"a URL":        {KeysURL: "keys.json"},
		"http":         {KeysURL: "http://example.org/keys"},
		"an issuer":    {Issuer: "a"},
		"an audience":  {Audience: "a"},
		"another kind": {KeysURL: "ftp://localhost/keys"},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestIssuerAndAudience(t *testing.T) {
	clock := newClock()
	v := verifierOf(Config{Secret: testSecret, Issuer: "me", Audience: "push"}, clock)
	for _, tt := range []struct {
		issuer, audience any
		ok               bool
	}{
		{"me", "push", true}, {"me", []string{"a", "push"}, true}, {"you", "push", false}, {"me", "web", false},
		{nil, "push", false}, {"me", nil, false},
	} {
		c := jwt.MapClaims{"sub": "ann", "exp": clock.Now().Add(time.Minute).Unix(), "iss": tt.issuer,
			"aud": tt.audience}
		if _, err := v.Connection(sign(t, jwt.SigningMethodHS256, []byte(testSecret), c)); (err == nil) != tt.ok {
			t.Errorf("%v %v: %v", tt.issuer, tt.audience, err)
		}
	}
}

// Keys from a URL check the tokens that name them. A key that is new is fetched, one that is gone
// is refused.
func TestKeySet(t *testing.T) {
	keys, clock, server := tokentest.NewSigners(), newClock(), tokentest.NewKeyServer(t)
	sets := keys.JWKs()
	server.Set(200, sets[:2]...)
	v := verifierOf(Config{KeysURL: server.URL}, clock)
	verify := func(method jwt.SigningMethod, key any, id string) error {
		_, err := v.Connection(named(t, method, key, id, jwt.MapClaims{"sub": "ann",
			"exp": clock.Now().Add(time.Minute).Unix()}))
		return err
	}
	for _, tt := range []struct {
		method jwt.SigningMethod
		key    any
		id     string
		ok     bool
	}{
		{jwt.SigningMethodRS256, keys.RSA, "r", true}, {jwt.SigningMethodES256, keys.P256, "e", true},
		{jwt.SigningMethodPS256, keys.RSA, "r", false}, {jwt.SigningMethodRS256, keys.RSA, "e", false},
		{jwt.SigningMethodEdDSA, keys.Ed25519, "o", false},
	} {
		if err := verify(tt.method, tt.key, tt.id); (err == nil) != tt.ok {
			t.Errorf("%s by %s: %v", tt.method.Alg(), tt.id, err)
		}
	}
	server.Set(200, sets[1:]...)
	clock.advance(RetryAfter)
	if err := verify(jwt.SigningMethodEdDSA, keys.Ed25519, "o"); err != nil {
		t.Error("a new key:", err)
	}
	if err := verify(jwt.SigningMethodRS256, keys.RSA, "r"); err == nil {
		t.Error("a key that is gone is used")
	}
	server.Set(500)
	clock.advance(keysFresh)
	if err := verify(jwt.SigningMethodES256, keys.P256, "e"); err != nil {
		t.Error("while the URL fails:", err)
	}
	clock.advance(keysStale)
	if err := verify(jwt.SigningMethodES256, keys.P256, "e"); err == nil {
		t.Error("an hour later:", err)
	}
}

// A stranger's token that names an unknown key uses up the fetch. After the issuer has begun to use
// another key, its tokens are not known yet, and are not invalid for that.
func TestKeyThatIsNotKnownYet(t *testing.T) {
	keys, clock, server := tokentest.NewSigners(), newClock(), tokentest.NewKeyServer(t)
	sets := keys.JWKs()
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
			server.Set(500)
			v := verifierOf(Config{KeysURL: server.URL}, clock)
			good := token(jwt.SigningMethodEdDSA, keys.Ed25519, tt.id)
			if _, err := v.Connection(good); !errors.Is(err, ErrKeyNotYetKnown) || errors.Is(err, ErrInvalid) {
				t.Errorf("while the URL fails: %v", err)
			}
			clock.advance(RetryAfter)
			server.Set(200, tt.before)
			stranger := token(jwt.SigningMethodES256, other, "invented")
			if _, err := v.Connection(stranger); !errors.Is(err, ErrInvalid) {
				t.Errorf("a stranger's token, after a fetch: %v", err)
			}
			clock.advance(RetryAfter - 1)
			server.Set(200, tt.after)
			_, err := v.Connection(good)
			other := v.Read(good, new(jwt.RegisteredClaims)) // as a protocol with claims of its own does
			if name != "without kids, of one kind" && (!errors.Is(err, ErrKeyNotYetKnown) ||
				!errors.Is(other, ErrKeyNotYetKnown)) {
				t.Errorf("a token by a new key: %v, %v", err, other)
			}
			if _, err := v.Connection(stranger); !errors.Is(err, ErrKeyNotYetKnown) {
				t.Errorf("a stranger's token that may be one of a new key: %v", err)
			}
			asked := server.Asked.Load()
			for _, forged := range []string{token(jwt.SigningMethodHS256, []byte("k"), "o"), "a.b.c"} {
				if _, err := v.Connection(forged); !errors.Is(err, ErrInvalid) {
					t.Errorf("%.40s: %v", forged, err)
				}
			}
			clock.advance(1)
			if _, err := v.Connection(good); err != nil {
				t.Errorf("a token by a new key, %v later: %v", RetryAfter, err)
			}
			if n := server.Asked.Load(); n > asked+1 {
				t.Errorf("%d fetches where one will do", n-asked)
			}
			if _, err := v.Connection(stranger); !errors.Is(err, ErrInvalid) {
				t.Errorf("a stranger's token, after another fetch: %v", err)
			}
		})
	}
}

// An answer that is no key set takes away no keys.
func TestAnswerWithoutKeys(t *testing.T) {
	keys, clock, server := tokentest.NewSigners(), newClock(), tokentest.NewKeyServer(t)
	server.Set(200, keys.JWKs()...)
	log := new(pushtest.Log)
	v := verifierOf(Config{KeysURL: server.URL, Log: slog.New(slog.NewTextHandler(log, nil))}, clock)
	token := named(t, jwt.SigningMethodES256, keys.P256, "e", jwt.MapClaims{"sub": "ann"})
	if _, err := v.Connection(token); err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{`{}`, `null`, `{"keys":null}`, `{"Error":"busy"}`, `<html>`, `[]`} {
		server.SetRaw(raw)
		clock.advance(RetryAfter)
		stranger := named(t, jwt.SigningMethodES256, keys.P256, "x", jwt.MapClaims{"sub": "ann"})
		if _, err := v.Connection(stranger); !errors.Is(err, ErrKeyNotYetKnown) {
			t.Errorf("%s: an unknown key: %v", raw, err)
		}
		if _, err := v.Connection(token); err != nil {
			t.Errorf("after %s: %v", raw, err)
		}
	}
	server.SetRaw(`{"keys":[]}`) // the issuer has none any more
	clock.advance(RetryAfter)
	_, _ = v.Connection(named(t, jwt.SigningMethodES256, keys.P256, "x", jwt.MapClaims{"sub": "ann"}))
	if _, err := v.Connection(token); !errors.Is(err, ErrKeyNotYetKnown) { // clients may come back when there are keys
		t.Errorf("by a key that was taken back: %v", err)
	}
	if !strings.Contains(log.String(), "the key set has no key") {
		t.Errorf("the log: %s", log)
	}
	server.Set(200, keys.JWKs()[2])
	clock.advance(RetryAfter)
	if _, err := v.Connection(token); !errors.Is(err, ErrInvalid) {
		t.Errorf("by a key that another one has replaced: %v", err)
	}
}

// Tokens with invented keys make one fetch in RetryAfter, however many there are.
func TestAttackKeySetFlood(t *testing.T) {
	keys, clock, server := tokentest.NewSigners(), newClock(), tokentest.NewKeyServer(t)
	server.Set(200, keys.JWKs()...)
	v := verifierOf(Config{KeysURL: server.URL}, clock)
	var all sync.WaitGroup
	for i := range 8 {
		token := named(t, jwt.SigningMethodES384, keys.P384, fmt.Sprint("invented ", i), jwt.MapClaims{"sub": "eve",
			"exp": clock.Now().Add(time.Minute).Unix()})
		all.Go(func() {
			for range 50 {
				if _, err := v.Connection(token); !errors.Is(err, ErrInvalid) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := server.Asked.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
}

// A set that is malformed, or has keys of other uses, gives no keys.
func TestParseKeySet(t *testing.T) {
	sets := tokentest.NewSigners().JWKs()
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

// A token cannot bring its key, nor say where the key is. No request leaves the server for one.
func TestTokensChooseNoKey(t *testing.T) {
	var asked atomic.Int32
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		io.WriteString(w, `{"keys":[]}`)
	}))
	defer evil.Close()
	keys, server := tokentest.NewSigners(), tokentest.NewKeyServer(t)
	server.Set(200, keys.JWKs()[0])
	v := verifierOf(Config{KeysURL: server.URL, Secret: testSecret}, newClock())
	own := keys.JWKs()[2] // the key that signs, which the server does not know
	for name, value := range map[string]any{"jwk": own, "jku": evil.URL, "x5u": evil.URL, "x5c": []string{"MII="},
		"kid": evil.URL, "crit": []string{"exp"}, "zip": "DEF"} {
		token := jwt.NewWithClaims(jwt.SigningMethodEdDSA,
			jwt.MapClaims{"sub": "eve", "iss": evil.URL, "aud": evil.URL})
		token.Header[name] = value
		signed, err := token.SignedString(keys.Ed25519)
		if err != nil {
			t.Fatal(err)
		}
		if g, err := v.Connection(signed); err == nil {
			t.Errorf("a token with %s is that of %q", name, g.User)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests to a server that tokens name", n)
	}
}
