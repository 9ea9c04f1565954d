package main

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
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// keyFiles are one private key in both notations, and its public key.
type keyFiles struct {
	pem, jwk, public string
	jwkText          map[string]string
}

func writeKey(t *testing.T, key crypto.Signer, jwk map[string]string) keyFiles {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(jwk) // strings have no error
	return keyFiles{write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
		write("key.jwk", text), write("public.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY",
			Bytes: public})),
		jwk}
}

func segment(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }

func newKeys(t *testing.T) map[string]keyFiles {
	t.Helper()
	all := map[string]keyFiles{}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	all["RSA"] = writeKey(t, key, map[string]string{"kty": "RSA", "n": segment(key.N), "kid": "k",
		"e": segment(big.NewInt(int64(key.E))), "d": segment(key.D), "p": segment(key.Primes[0]),
		"q": segment(key.Primes[1])})
	for name, curve := range map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(),
		"P-521": elliptic.P521()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := key.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		all[name] = writeKey(t, key, map[string]string{"kty": "EC", "crv": name,
			"d": base64.RawURLEncoding.EncodeToString(secret)})
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	all["Ed25519"] = writeKey(t, ed, map[string]string{"kty": "OKP", "crv": "Ed25519",
		"d": base64.RawURLEncoding.EncodeToString(ed.Seed())})
	return all
}

// A token of every algorithm that the server accepts can be made, and is valid.
func TestTokensOfEveryAlgorithm(t *testing.T) {
	keys := newKeys(t)
	for _, tt := range []struct{ key, flag, algorithm string }{
		{"RSA", "", "RS256"}, {"RSA", "RS384", "RS384"}, {"RSA", "RS512", "RS512"}, {"RSA", "PS256", "PS256"},
		{"RSA", "PS384", "PS384"}, {"RSA", "PS512", "PS512"}, {"P-256", "", "ES256"}, {"P-384", "", "ES384"},
		{"P-521", "", "ES512"}, {"Ed25519", "", "EdDSA"},
	} {
		for _, file := range []string{keys[tt.key].pem, keys[tt.key].jwk} {
			args := []string{"make", "--user", "ann", "--key", file}
			if tt.flag != "" {
				args = append(args, "--algorithm", tt.flag)
			}
			token, err := runToken(t, args...)
			if err != nil {
				t.Errorf("%s of %s: %v", tt.algorithm, filepath.Base(file), err)
				continue
			}
			said, err := runToken(t, "check", "--token-secret", "", "--token-key", keys[tt.key].public, token)
			if err != nil || !strings.Contains(said, `"alg":"`+tt.algorithm+`"`) {
				t.Errorf("%s of %s: %s, %v", tt.algorithm, filepath.Base(file), said, err)
			}
			if id := strings.Contains(said, `"kid":"k"`); id != (tt.key == "RSA" && strings.HasSuffix(file, "jwk")) {
				t.Errorf("%s of %s has the header %s", tt.algorithm, filepath.Base(file), said)
			}
		}
	}
	for _, algorithm := range []string{"HS256", "HS384", "HS512"} {
		token, err := runToken(t, "make", "--user", "ann", "--algorithm", algorithm, "--kid", "x")
		if err != nil {
			t.Fatal(err)
		}
		if said, err := runToken(t, "check", token); err != nil || !strings.Contains(said, algorithm) ||
			!strings.Contains(said, `"kid":"x"`) {
			t.Errorf("%s: %s, %v", algorithm, said, err)
		}
	}
}

func TestKeysThatSignNothing(t *testing.T) {
	keys := newKeys(t)
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	public := fmt.Sprintf(`{"kty":"RSA","n":%q,"e":%q}`, keys["RSA"].jwkText["n"], keys["RSA"].jwkText["e"])
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--key", "/none"}, "--key: open"},
		{[]string{"--key", keys["RSA"].public}, "use a PRIVATE KEY"},
		{[]string{"--key", write("a", "x")}, "neither PEM nor a JSON Web Key"},
		{[]string{"--key", write("b", public)}, "needs its private part"},
		{[]string{"--key", write("c", `{"kty":"EC","crv":"secp256k1"}`)}, "use oct, RSA, EC or Ed25519"},
		{[]string{"--key", write("d", `{"kty":"OKP","crv":"Ed25519","d":"AQ"}`)}, "has 32 bytes, not 1"},
		{[]string{"--key", write("e", `{"kty":"EC","crv":"P-256","d":"AQ"}`)}, "--key"},
		{[]string{"--key", keys["P-256"].pem, "--algorithm", "ES512"}, "use one of [ES256]"},
		{[]string{"--algorithm", "none"}, "use one of [HS256 HS384 HS512]"},
	} {
		_, err := runToken(t, append([]string{"make", "--user", "ann"}, tt.args...)...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestTokensAreExplained(t *testing.T) {
	token, err := runToken(t, "make", "--user", "42", "--claims",
		`{"meta":{"a":1},"caps":[{"channels":["t:x"],"allow":["sub","pub"]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	said, err := runToken(t, "explain", "--namespace", "name=t subscribe-token", "--namespace", "user-limited",
		"--channel", "t:x", "--channel", "t:1", "--channel", "dialog#1,42", token)
	for _, want := range []string{`sub: "42": the user`, `meta: {"a":1}: for the backend`, "caps: ",
		`channel "t:x": subscribe: yes: by the claim caps; publish: yes`,
		`channel "t:1": subscribe: no: the rule subscribe-token`,
		`channel "dialog#1,42": subscribe: yes: the name lists`} {
		if err != nil || !strings.Contains(said, want) {
			t.Errorf("explain: %v, without %q:\n%s", err, want, said)
		}
	}
	if said, err := runToken(t, "check", token); err != nil || !strings.Contains(said,
		"it may sub, pub in the channels t:x") {
		t.Errorf("check: %v\n%s", err, said)
	}
	said, err = runToken(t, "explain", "--token-secret", "another", token)
	if err == nil || !strings.Contains(err.Error(), "refuses it") || !strings.Contains(said, `sub: "42"`) {
		t.Errorf("with another secret: %s, %v", said, err)
	}
	if _, err = runToken(t, "explain"); err == nil || !strings.Contains(err.Error(), "name one token") {
		t.Errorf("without a token: %v", err)
	}
}
