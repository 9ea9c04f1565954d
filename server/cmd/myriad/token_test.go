package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// runToken runs myriad token with those arguments, and returns what it prints.
func runToken(t *testing.T, args ...string) (string, error) {
	t.Helper()
	t.Setenv("MYRIAD_TOKEN_SECRET", "a secret that is long enough for HS256")
	var out bytes.Buffer
	err := run(t.Context(), append([]string{"myriad", "token"}, args...), &out, io.Discard)
	return out.String(), err
}

func TestTokens(t *testing.T) {
	for _, tt := range []struct {
		make []string
		want string
	}{
		{[]string{"--user", "ann"}, "valid: a connection of ann, which ends at 20"},
		{[]string{"--user", "ann", "--claims", `{"channels":["b","a"],"expire_at":0}`},
			"a connection of ann, which never ends\nthe server subscribes it to a, b\n"},
		{[]string{"--user", "ann", "--channel", "news", "--claims", `{"allow":["pub"]}`},
			"ann may subscribe to \"news\"; the subscription ends at 20"},
	} {
		made, err := runToken(t, append([]string{"make"}, tt.make...)...)
		if err != nil || strings.Count(made, ".") != 2 {
			t.Fatalf("%v: %q, %v", tt.make, made, err)
		}
		said, err := runToken(t, "check", made)
		if err != nil || !strings.Contains(said, tt.want) || !strings.Contains(said, `header: {"alg":"HS256"`) {
			t.Errorf("%v: %s, %v; want %q", tt.make, said, err, tt.want)
		}
		if said, err := runToken(t, "check", "--token-secret", "another", made); err == nil ||
			!strings.Contains(err.Error(), "the server refuses it") || !strings.Contains(said, `"sub":"ann"`) {
			t.Errorf("with another secret: %s, %v", said, err)
		}
	}
}

func TestTokensAreRefused(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"make"}, "set --user"},
		{[]string{"make", "--user", "a", "--expires", "soon"}, "--expires"},
		{[]string{"make", "--user", "a", "--claims", "[]"}, "JSON object"},
		{[]string{"make", "--user", "a", "--token-secret", ""}, "no secret"},
		{[]string{"make", "a"}, "takes no arguments"},
		{[]string{"check"}, "name one token"},
		{[]string{"check", "x"}, "no JSON Web Token"},
		{[]string{"check", "x.y.z"}, "no JSON in base64url"},
		{[]string{"check", "--token-secret", "", "e30.e30."}, "no secret and no key"},
		{[]string{"check", "--token-key", "/none", "e30.e30."}, "--token-key"},
		{[]string{"check", "e30.e30."}, "refuses it"},
	} {
		if said, err := runToken(t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %q, %v; want %q", tt.args, said, err, tt.want)
		}
	}
}
