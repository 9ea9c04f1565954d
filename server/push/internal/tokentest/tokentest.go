// Package tokentest makes tokens, keys and key sets for tests.
package tokentest

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
	"io"
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

// Secret is what the tokens of Tokens are signed with.
const Secret = "a secret that is long enough for HS256"

// Sign returns a token with these claims.
func Sign(t *testing.T, method jwt.SigningMethod, key any, c jwt.MapClaims) string {
	t.Helper()
	return signed(t, jwt.NewWithClaims(method, c), key)
}

// SignNamed returns a token that names its key by the kid id.
func SignNamed(t *testing.T, method jwt.SigningMethod, key any, id any, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, c)
	token.Header["kid"] = id
	return signed(t, token, key)
}

func signed(t *testing.T, token *jwt.Token, key any) string {
	t.Helper()
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Tokens returns named tokens of the user ann, whose times are relative to now. IsValid and
// IsExpired say which of them a verifier with Secret accepts, and which it refuses as expired.
func Tokens(t *testing.T, now time.Time) map[string]string {
	t.Helper()
	in := func(d time.Duration) int64 { return now.Add(d).Unix() }
	hs := func(c jwt.MapClaims) string { return Sign(t, jwt.SigningMethodHS256, []byte(Secret), c) }
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
		"another secret": Sign(t, jwt.SigningMethodHS256, []byte("another"), all),
		"expired, forged": Sign(t, jwt.SigningMethodHS256, []byte("another"),
			jwt.MapClaims{"sub": "ann", "exp": in(-time.Hour)}),
		"good, HS512":       Sign(t, jwt.SigningMethodHS512, []byte(Secret), all),
		"RS256":             Sign(t, jwt.SigningMethodRS256, rsaKey, all),
		"none":              Sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, all),
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

// IsValid reports whether the token of Tokens with that name opens a connection.
func IsValid(name string) bool { return strings.HasPrefix(name, "good") }

// IsExpired reports whether the token of Tokens with that name has a valid signature, and has
// expired or is not valid yet.
func IsExpired(name string) bool { return name == "expired" || name == "not yet" }

// Signers are private keys, one of each kind.
type Signers struct {
	RSA     *rsa.PrivateKey
	P256    *ecdsa.PrivateKey
	P384    *ecdsa.PrivateKey
	Ed25519 ed25519.PrivateKey
}

// NewSigners returns the same keys for all tests of a process.
var NewSigners = sync.OnceValue(func() (s Signers) {
	s.RSA, _ = rsa.GenerateKey(rand.Reader, 2048)
	s.P256, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.P384, _ = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, s.Ed25519, _ = ed25519.GenerateKey(rand.Reader)
	return s
})

// PublicPEM returns the public key of key in PEM.
func PublicPEM(t *testing.T, key crypto.Signer) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// JWKs returns the public keys as JSON Web Keys with the kids r (RSA, for RS256 alone), e (P-256)
// and o (Ed25519).
func (s Signers) JWKs() []map[string]any {
	encoded := base64.RawURLEncoding.EncodeToString
	p, _ := s.P256.PublicKey.Bytes()
	size := (len(p) - 1) / 2
	return []map[string]any{
		{"kty": "RSA", "kid": "r", "alg": "RS256", "use": "sig", "n": encoded(s.RSA.N.Bytes()),
			"e": encoded(big.NewInt(int64(s.RSA.E)).Bytes())},
		{"kty": "EC", "kid": "e", "crv": "P-256", "x": encoded(p[1 : 1+size]), "y": encoded(p[1+size:])},
		{"kty": "OKP", "kid": "o", "crv": "Ed25519", "x": encoded(s.Ed25519.Public().(ed25519.PublicKey))},
	}
}

// A KeyServer serves a key set, and counts how often.
type KeyServer struct {
	*httptest.Server
	Asked atomic.Int32

	mu     sync.Mutex
	keys   []map[string]any
	status int
	raw    string // answered instead of keys
}

// NewKeyServer returns a server that ends with the test, and has an empty key set until Set.
func NewKeyServer(t *testing.T) *KeyServer {
	k := &KeyServer{status: 200}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		k.Asked.Add(1)
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

// Set makes the server answer with that status and these keys.
func (k *KeyServer) Set(status int, keys ...map[string]any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status, k.keys, k.raw = status, keys, ""
}

// SetRaw makes the server answer 200 with that body.
func (k *KeyServer) SetRaw(body string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status, k.raw = 200, body
}

// Caps returns a value of the claim caps.
func Caps(list ...any) []any { return list }

// Cap returns one capability. match is "" for exact names, "wildcard" or "regex".
func Cap(match string, allow []string, channels ...string) any {
	return map[string]any{"channels": channels, "match": match, "allow": allow}
}
