package push

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// These bound what the keys behind a URL cost.
const (
	keysFresh   = 5 * time.Minute  // after that they are fetched again, while tokens go on
	keysStale   = time.Hour        // after that they are no longer used, if fetching has failed since
	keysPause   = 10 * time.Second // between two fetches, whatever tokens name
	keysTimeout = 5 * time.Second  // of a fetch; tokens whose key is not known wait for it
	maxKeysBody = 1 << 20
	maxKeys     = 100
)

// remoteKeys are the keys of a JSON Web Key Set (RFC 7517 §5) at a URL. Any goroutine may call its
// methods.
type remoteKeys struct {
	url    string
	clock  Clock
	log    *slog.Logger
	client *http.Client

	mu       sync.Mutex
	keys     []tokenKey
	fetched  time.Time     // when keys came; zero: never
	asked    time.Time     // when the fetch began that has brought keys
	tried    time.Time     // when the last fetch began
	fetching chan struct{} // closed when the fetch that runs has ended; nil: none runs
}

func newRemoteKeys(address string, clock Clock, log *slog.Logger) (*remoteKeys, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopbackName(u.Hostname())) {
		return nil, fmt.Errorf("push: the URL of token keys %q: use https, or http on this machine", address)
	}
	return &remoteKeys{url: address, clock: clock, log: log, client: &http.Client{
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
func (r *remoteKeys) keysNamed(id string) (list []tokenKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	age := r.clock.Now().Sub(r.fetched)
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
	now := r.clock.Now()
	if r.fetching != nil || !r.tried.IsZero() && now.Sub(r.tried) < keysPause {
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
		r.keys, r.fetched, r.asked = keys, r.clock.Now(), r.tried
	}
	if err == nil && len(keys) == 0 {
		r.log.Error("push: the key set has no key that checks signatures: tokens are refused until it has one",
			"url", r.url)
	}
	close(r.fetching)
	r.fetching = nil
}

func (r *remoteKeys) download() ([]tokenKey, error) {
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
func parseKeySet(text []byte) (keys []tokenKey, err error) {
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
		if key, ok := k.tokenKey(); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func (k *jwk) tokenKey() (key tokenKey, ok bool) {
	if k.Use != "" && k.Use != "sig" || k.Operations != nil && !slices.Contains(k.Operations, "verify") {
		return key, false
	}
	key, err := newTokenKey(k.ID, k.public())
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
