package push

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A tokenKey checks signatures. The kind of the key decides which algorithms it serves, not the
// token (RFC 8725 §3.1). So a public key never serves as the secret of HS256.
type tokenKey struct {
	id         string // the token's kid must be equal; "": any
	algorithms []string
	key        any // []byte, *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
}

// minRSA is how many bits an RSA key must have (RFC 7518 §3.3).
const minRSA = 2048

// newTokenKey returns the key for a secret ([]byte) or a public key.
func newTokenKey(id string, key any) (tokenKey, error) {
	switch k := key.(type) {
	case []byte:
		return tokenKey{id, []string{"HS256", "HS384", "HS512"}, k}, nil
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSA {
			return tokenKey{}, fmt.Errorf("an RSA key of %d bits: use at least %d", bits, minRSA)
		}
		return tokenKey{id, []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, k}, nil
	case *ecdsa.PublicKey:
		algorithm := map[elliptic.Curve]string{elliptic.P256(): "ES256", elliptic.P384(): "ES384",
			elliptic.P521(): "ES512"}[k.Curve]
		if algorithm == "" {
			return tokenKey{}, fmt.Errorf("an ECDSA key on %s: use P-256, P-384 or P-521", k.Curve.Params().Name)
		}
		return tokenKey{id, []string{algorithm}, k}, nil
	case ed25519.PublicKey:
		return tokenKey{id, []string{"EdDSA"}, k}, nil
	}
	return tokenKey{}, fmt.Errorf("a key of the type %T: use RSA, ECDSA or Ed25519", key)
}

// serves reports whether the key may check a token with that algorithm and kid.
func (k tokenKey) serves(algorithm, id string) bool {
	return slices.Contains(k.algorithms, algorithm) && (k.id == "" || k.id == id)
}

// readTokenKeys reads public keys in PEM: PUBLIC KEY, RSA PUBLIC KEY or CERTIFICATE.
func readTokenKeys(text string) (keys []tokenKey, err error) {
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
		key, err := newTokenKey("", public)
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

// keysFor returns the keys that may check the token. known reports whether the right one must be
// among them. It is false if another key may have come to the URL since its keys were fetched.
func (t *trust) keysFor(token *jwt.Token) (set jwt.VerificationKeySet, known bool, err error) {
	algorithm := token.Method.Alg()
	id, _ := token.Header["kid"].(string) // another type names no key
	known = t.remote == nil || strings.HasPrefix(algorithm, "HS")
	add := func(keys []tokenKey, named bool) {
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

// read checks a token and reads its claims into c. The error is one of package jwt. If the token's
// key is not known, read fetches the keys behind the URL; errKeyNotYetKnown is among the errors if
// that cannot be done now.
func (t *trust) read(parser *jwt.Parser, now func() time.Time, token string, c jwt.Claims) error {
	since := now()
	var known bool
	parse := func() error {
		known = true // unless the keys are looked for
		_, err := parser.ParseWithClaims(token, c, func(token *jwt.Token) (any, error) {
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
	renewed := t.remote.renewed(since)
	if err = parse(); isOpen(err) && !renewed {
		return errors.Join(errKeyNotYetKnown, err)
	}
	return err
}
