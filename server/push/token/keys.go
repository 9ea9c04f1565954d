package token

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A verifyKey checks signatures. The kind of the key decides which algorithms it serves, not the
// token (RFC 8725 §3.1). So a public key never serves as the secret of HS256.
type verifyKey struct {
	id         string // the token's kid must be equal; "": any
	algorithms []string
	key        any // []byte, *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
}

// minRSA is how many bits an RSA key must have (RFC 7518 §3.3).
const minRSA = 2048

// newKey returns the key for a secret ([]byte) or a public key.
func newKey(id string, key any) (verifyKey, error) {
	switch k := key.(type) {
	case []byte:
		return verifyKey{id, []string{"HS256", "HS384", "HS512"}, k}, nil
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSA {
			return verifyKey{}, fmt.Errorf("an RSA key of %d bits: use at least %d", bits, minRSA)
		}
		return verifyKey{id, []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, k}, nil
	case *ecdsa.PublicKey:
		algorithm := map[elliptic.Curve]string{elliptic.P256(): "ES256", elliptic.P384(): "ES384",
			elliptic.P521(): "ES512"}[k.Curve]
		if algorithm == "" {
			return verifyKey{}, fmt.Errorf("an ECDSA key on %s: use P-256, P-384 or P-521", k.Curve.Params().Name)
		}
		return verifyKey{id, []string{algorithm}, k}, nil
	case ed25519.PublicKey:
		return verifyKey{id, []string{"EdDSA"}, k}, nil
	}
	return verifyKey{}, fmt.Errorf("a key of the type %T: use RSA, ECDSA or Ed25519", key)
}

// serves reports whether the key may check a token with that algorithm and kid.
func (k verifyKey) serves(algorithm, id string) bool {
	return slices.Contains(k.algorithms, algorithm) && (k.id == "" || k.id == id)
}

// readKeys reads public keys in PEM: PUBLIC KEY, RSA PUBLIC KEY or CERTIFICATE.
func readKeys(text string) (keys []verifyKey, err error) {
	for rest := []byte(text); ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		public, err := readPublicKey(block)
		if err != nil {
			return nil, fmt.Errorf("push: a token key: %w", err)
		}
		key, err := newKey("", public)
		if err != nil {
			return nil, fmt.Errorf("push: a token key: %w", err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("push: a token key: there is no PEM block of a public key")
	}
	return keys, nil
}

func readPublicKey(block *pem.Block) (crypto.PublicKey, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return certificate.PublicKey, nil
	}
	return nil, fmt.Errorf("a PEM block %q: use a PUBLIC KEY", block.Type)
}

// RetryAfter is the least time between two fetches of keys, whatever tokens name. A client that was
// refused with ErrKeyNotYetKnown can try again after it.
const RetryAfter = 10 * time.Second

// These bound what the keys behind a URL cost.
const (
	keysFresh   = 5 * time.Minute // after that they are fetched again, while tokens go on
	keysStale   = time.Hour       // after that they are no longer used, if fetching has failed since
	keysTimeout = 5 * time.Second // of a fetch; tokens whose key is not known wait for it
	maxKeysBody = 1 << 20
	maxKeys     = 100
)

// remoteKeys are the keys of a JSON Web Key Set (RFC 7517 §5) at a URL. Any goroutine may call its
// methods.
type remoteKeys struct {
	url    string
	now    func() time.Time
	log    *slog.Logger
	client *http.Client

	mu       sync.Mutex
	keys     []verifyKey
	fetched  time.Time     // when keys came; zero: never
	asked    time.Time     // when the fetch began that has brought keys
	tried    time.Time     // when the last fetch began
	fetching chan struct{} // closed when the fetch that runs has ended; nil: none runs
}

func newRemoteKeys(address string, now func() time.Time, log *slog.Logger) (*remoteKeys, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopbackName(u.Hostname())) {
		return nil, fmt.Errorf("push: the URL of token keys %q: use https, or http on this machine", address)
	}
	return &remoteKeys{url: address, now: now, log: log, client: &http.Client{
		Timeout: keysTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // only this URL is trusted
		},
	}}, nil
}

func isLoopbackName(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// keysNamed returns the keys with that id, and those without one; for the id "" all. It has the
// keys fetched, and does not wait for that, if they are no longer fresh.
func (r *remoteKeys) keysNamed(id string) (list []verifyKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	age := r.now().Sub(r.fetched)
	if len(r.keys) > 0 && age > keysFresh {
		r.fetchSoon()
	}
	if age > keysStale {
		return nil
	}
	for _, k := range r.keys {
		if id == "" || k.id == "" || k.id == id {
			list = append(list, k)
		}
	}
	return list
}

// renewed waits for a fetch, if one runs or may begin. It reports whether the keys are those of a
// fetch that has begun at since or later: then a key that is not among them was none at since.
// Otherwise the key may be one that is not known yet, because the URL does not answer, or was asked
// a moment before, or has no key at all now.
func (r *remoteKeys) renewed(since time.Time) bool {
	r.mu.Lock()
	if r.asked.Before(since) {
		r.fetchSoon()
	}
	running := r.fetching
	r.mu.Unlock()
	if running != nil {
		<-running
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.asked.Before(since) && len(r.keys) > 0
}

// fetchSoon begins a fetch, unless one runs or the last one was a moment ago. The caller holds
// r.mu.
func (r *remoteKeys) fetchSoon() {
	now := r.now()
	if r.fetching != nil || !r.tried.IsZero() && now.Sub(r.tried) < RetryAfter {
		return
	}
	r.tried, r.fetching = now, make(chan struct{})
	go r.fetch()
}

func (r *remoteKeys) fetch() {
	keys, err := r.download()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.log.Error("push: the keys of tokens were not fetched", "url", r.url, "error", err)
	} else {
		r.keys, r.fetched, r.asked = keys, r.now(), r.tried
	}
	if err == nil && len(keys) == 0 {
		r.log.Error("push: the key set has no key that checks signatures: tokens are refused until it has one",
			"url", r.url)
	}
	close(r.fetching)
	r.fetching = nil
}

func (r *remoteKeys) download() ([]verifyKey, error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, r.url, nil)
	if err != nil {
		return nil, err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxKeysBody+1))
	if err == nil && len(text) > maxKeysBody {
		err = fmt.Errorf("more than %d bytes", maxKeysBody)
	}
	if err != nil {
		return nil, err
	}
	return parseKeySet(text)
}

// A jwk is one JSON Web Key (RFC 7517, RFC 7518 §6, RFC 8037).
type jwk struct {
	Kind       string   `json:"kty"`
	ID         string   `json:"kid"`
	Use        string   `json:"use"`
	Operations []string `json:"key_ops"`
	Algorithm  string   `json:"alg"`
	Curve      string   `json:"crv"`
	N, E, X, Y segment
}

// A segment is bytes in base64url.
type segment []byte

func (s *segment) UnmarshalJSON(text []byte) (err error) {
	var encoded string
	if err = json.Unmarshal(text, &encoded); err == nil {
		*s, err = base64.RawURLEncoding.DecodeString(encoded)
	}
	return err
}

// parseKeySet returns the keys that check signatures. It leaves out the others, and those of kinds
// that the server does not know, as RFC 7517 §5 wants it. A symmetric key is left out, too: at a
// URL it would be no secret.
func parseKeySet(text []byte) (keys []verifyKey, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("it is no key set: %w", err)
	}
	// RFC 7517 §5: it must be there. An issuer that takes back all keys sends an empty list, which
	// is obeyed. It may also be a mistake of the issuer's, so that tokens are refused for now, not
	// for good.
	if set.Keys == nil {
		return nil, errors.New("it is no key set: it has no list keys")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys; at most %d are allowed", len(set.Keys), maxKeys)
	}
	for _, one := range set.Keys {
		var k jwk
		if json.Unmarshal(one, &k) != nil {
			continue
		}
		if key, ok := k.verifyKey(); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func (k *jwk) verifyKey() (key verifyKey, ok bool) {
	if k.Use != "" && k.Use != "sig" || k.Operations != nil && !slices.Contains(k.Operations, "verify") {
		return key, false
	}
	key, err := newKey(k.ID, k.public())
	if err != nil {
		return key, false
	}
	if k.Algorithm != "" {
		key.algorithms = slices.DeleteFunc(key.algorithms, func(name string) bool { return name != k.Algorithm })
	}
	return key, len(key.algorithms) > 0
}

// public returns the public key, or nil.
func (k *jwk) public() any {
	switch {
	case k.Kind == "RSA" && len(k.N) <= 2048 && len(k.E) > 0 && len(k.E) <= 4:
		e := new(big.Int).SetBytes(k.E).Int64()
		if e < 3 || e%2 == 0 || e > 1<<31-1 {
			return nil
		}
		return &rsa.PublicKey{N: new(big.Int).SetBytes(k.N), E: int(e)}
	case k.Kind == "EC":
		curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(),
			"P-521": elliptic.P521()}[k.Curve]
		if curve == nil || len(k.X) > 66 || len(k.Y) > 66 {
			return nil
		}
		size := (curve.Params().BitSize + 7) / 8
		if len(k.X) != size || len(k.Y) != size {
			return nil
		}
		point := slices.Concat([]byte{4}, k.X, k.Y) // SEC 1 §2.3.3
		public, err := ecdsa.ParseUncompressedPublicKey(curve, point)
		if err != nil {
			return nil // it is not on the curve
		}
		return public
	case k.Kind == "OKP" && k.Curve == "Ed25519" && len(k.X) == ed25519.PublicKeySize:
		return ed25519.PublicKey(k.X)
	}
	return nil
}

// keysFor returns the keys that may check the token. known reports whether the right one must be
// among them. It is false if another key may have come to the URL since its keys were fetched.
func (t *trust) keysFor(token *jwt.Token) (set jwt.VerificationKeySet, known bool, err error) {
	algorithm := token.Method.Alg()
	id, _ := token.Header["kid"].(string) // another type names no key
	known = t.remote == nil || strings.HasPrefix(algorithm, "HS")
	add := func(keys []verifyKey, named bool) {
		for _, k := range keys {
			known = known || named && k.id != ""
			if k.serves(algorithm, id) {
				set.Keys = append(set.Keys, k.key)
			}
		}
	}
	add(t.keys, false)
	if t.remote != nil {
		add(t.remote.keysNamed(id), id != "")
	}
	if len(set.Keys) == 0 {
		err = fmt.Errorf("no key for the algorithm %s and the kid %q", algorithm, id)
	}
	return set, known, err
}

// read checks a token at the time now, and reads its claims into c. The error is one of package
// jwt. If the token's key is not known, read fetches the keys behind the URL. ErrKeyNotYetKnown is
// among the errors if that cannot be done now.
func (t *trust) read(token string, c jwt.Claims, now time.Time) error {
	var known bool
	parse := func() error {
		known = true // unless the keys are looked for
		_, err := t.parser.ParseWithClaims(token, c, func(token *jwt.Token) (any, error) {
			set, isKnown, err := t.keysFor(token)
			known = isKnown
			return set, err
		})
		return err
	}
	isOpen := func(err error) bool {
		return !known && (errors.Is(err, jwt.ErrTokenUnverifiable) || errors.Is(err, jwt.ErrTokenSignatureInvalid))
	}
	err := parse()
	if !isOpen(err) {
		return err
	}
	renewed := t.remote.renewed(now)
	if err = parse(); isOpen(err) && !renewed {
		return errors.Join(ErrKeyNotYetKnown, err)
	}
	return err
}
