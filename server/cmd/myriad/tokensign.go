package main

import (
	"cmp"
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
	"math/big"
	"os"

	"github.com/golang-jwt/jwt/v5"
)

// A signer signs tokens: its key is a secret ([]byte) or a private key.
type signer struct {
	key       any
	id        string // the header kid; empty: none
	algorithm string // of the header; empty: the first that the key has
}

// readSigner reads a private key from a file: PEM, or a JSON Web Key (RFC 7517).
func readSigner(file string) (s signer, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return s, fmt.Errorf("--key: %w", err)
	}
	if block, _ := pem.Decode(text); block != nil {
		s.key, err = privateKey(block)
	} else {
		s, err = parsePrivateJWK(text)
	}
	if err != nil {
		return s, fmt.Errorf("--key %s: %w", file, err)
	}
	return s, nil
}

func privateKey(block *pem.Block) (any, error) {
	switch block.Type {
	case "PRIVATE KEY":
		return x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	}
	return nil, fmt.Errorf("a PEM block %q: use a PRIVATE KEY that is not encrypted", block.Type)
}

// A privateJWK is a JSON Web Key with its private part (RFC 7518 §6, RFC 8037).
type privateJWK struct {
	Kind      string `json:"kty"`
	ID        string `json:"kid"`
	Algorithm string `json:"alg"`
	Curve     string `json:"crv"`
	N         string `json:"n"`
	E         string `json:"e"`
	D         string `json:"d"`
	P         string `json:"p"`
	Q         string `json:"q"`
	K         string `json:"k"`
}

func parsePrivateJWK(text []byte) (s signer, err error) {
	var k privateJWK
	if err := json.Unmarshal(text, &k); err != nil {
		return s, errors.New("it is neither PEM nor a JSON Web Key")
	}
	bytes := func(field string) (value []byte) {
		value, wrong := base64.RawURLEncoding.DecodeString(field)
		if wrong != nil || len(value) == 0 {
			err = errors.New("a part of the JSON Web Key is missing, or no base64url: it needs its private part")
		}
		return value
	}
	number := func(field string) *big.Int { return new(big.Int).SetBytes(bytes(field)) }
	s = signer{id: k.ID, algorithm: k.Algorithm}
	switch curve := curves[k.Curve]; {
	case k.Kind == "oct":
		s.key = bytes(k.K)
	case k.Kind == "RSA":
		key := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: number(k.N), E: int(number(k.E).Int64())}, D: number(k.D),
			Primes: []*big.Int{number(k.P), number(k.Q)}}
		if err == nil {
			err = key.Validate()
		}
		s.key = key
	case k.Kind == "EC" && curve != nil:
		secret := bytes(k.D)
		if err == nil {
			s.key, err = ecdsa.ParseRawPrivateKey(curve, secret)
		}
	case k.Kind == "OKP" && k.Curve == "Ed25519":
		secret := bytes(k.D)
		if err == nil && len(secret) != ed25519.SeedSize {
			return s, fmt.Errorf("an Ed25519 key has %d bytes, not %d", ed25519.SeedSize, len(secret))
		}
		if err == nil {
			s.key = ed25519.NewKeyFromSeed(secret)
		}
	default:
		return s, fmt.Errorf("a JSON Web Key with kty %q and crv %q: use oct, RSA, EC or Ed25519", k.Kind, k.Curve)
	}
	return s, err
}

var curves = map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}

// algorithms returns the algorithms that the server accepts for such a key, the usual one first.
func (s *signer) algorithms() ([]string, error) {
	switch key := s.key.(type) {
	case []byte:
		return []string{"HS256", "HS384", "HS512"}, nil
	case *rsa.PrivateKey:
		if key.N.BitLen() < 2048 {
			return nil, fmt.Errorf("an RSA key of %d bits: the server wants 2048", key.N.BitLen())
		}
		return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, nil
	case *ecdsa.PrivateKey:
		for name, algorithm := range map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"} {
			if key.Curve == curves[name] {
				return []string{algorithm}, nil
			}
		}
	case ed25519.PrivateKey:
		return []string{"EdDSA"}, nil
	}
	return nil, errors.New("a key of a kind that signs no tokens: use RSA, ECDSA (P-256, P-384, P-521) or Ed25519")
}

// sign returns a token with the claims.
func (s *signer) sign(claims jwt.MapClaims) (string, error) {
	can, err := s.algorithms()
	if err != nil {
		return "", err
	}
	wanted := cmp.Or(s.algorithm, can[0])
	for _, name := range can {
		if name != wanted {
			continue
		}
		token := jwt.NewWithClaims(jwt.GetSigningMethod(name), claims)
		if s.id != "" {
			token.Header["kid"] = s.id
		}
		if key, ok := s.key.(crypto.Signer); ok {
			return token.SignedString(key)
		}
		return token.SignedString(s.key)
	}
	return "", fmt.Errorf("the algorithm %q is none of the key's: use one of %v", wanted, can)
}
