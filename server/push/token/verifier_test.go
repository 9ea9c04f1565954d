package token

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

const testSecret = tokentest.Secret

var (
	sign      = tokentest.Sign
	named     = tokentest.SignNamed
	publicPEM = tokentest.PublicPEM
)

// A testClock moves only in advance.
type testClock struct{ since atomic.Int64 }

func newClock() *testClock { return new(testClock) }

func (c *testClock) Now() time.Time { return time.Unix(1_800_000_000, c.since.Load()) }

func (c *testClock) advance(d time.Duration) { c.since.Add(int64(d)) }

// verifierOf returns the verifier of a configuration without mistakes.
func verifierOf(c Config, clock *testClock) *Verifier {
	c.Now = clock.Now
	v, err := New(c)
	if err != nil {
		panic(err)
	}
	return v
}

func TestConnection(t *testing.T) {
	clock := newClock()
	v := verifierOf(Config{Secret: testSecret}, clock)
	for name, token := range tokentest.Tokens(t, clock.Now()) {
		g, err := v.Connection(token)
		want := ErrInvalid
		switch {
		case tokentest.IsValid(name):
			want = nil
		case tokentest.IsExpired(name):
			want = ErrExpired
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err != nil && (g.User != "" || !g.Ends.IsZero()) {
			t.Errorf("%s: refused, but grants %v", name, g)
		}
		if err == nil && (g.User != "ann" || !g.Ends.Equal(clock.Now().Add(time.Minute))) {
			t.Errorf("%s: grants %v", name, g)
		}
	}
}

// A token for a subscription is for one channel, one user and, if it says so, one connection.
func TestSubscription(t *testing.T) {
	clock := newClock()
	v := verifierOf(Config{Secret: testSecret}, clock)
	ends := clock.Now().Add(time.Minute)
	for _, tt := range []struct {
		name   string
		claims jwt.MapClaims // besides sub, channel and exp
		want   Subscription
		err    error
	}{
		{"plain", nil, Subscription{Ends: ends}, nil},
		{"pub", jwt.MapClaims{"allow": []string{"pub"}}, Subscription{Ends: ends, Publish: true}, nil},
		{"other rights", jwt.MapClaims{"allow": []string{"sub", "hst", "prs"}}, Subscription{Ends: ends}, nil},
		{"another right", jwt.MapClaims{"allow": []string{"adm"}}, Subscription{}, ErrInvalid},
		{"info", jwt.MapClaims{"info": []int{1, 2}}, Subscription{Ends: ends, Info: []byte("[1,2]")}, nil},
		{"info in base64", jwt.MapClaims{"b64info": "WyAxIF0="}, Subscription{Ends: ends, Info: []byte("[1]")}, nil},
		{"no JSON", jwt.MapClaims{"b64info": "eyJ9"}, Subscription{}, ErrInvalid},
		{"its end", jwt.MapClaims{"expire_at": ends.Unix() - 1}, Subscription{Ends: ends.Add(-time.Second)}, nil},
		{"no end", jwt.MapClaims{"expire_at": 0}, Subscription{}, nil},
		{"has ended", jwt.MapClaims{"expire_at": clock.Now().Unix()}, Subscription{}, ErrExpired},
		{"expired", jwt.MapClaims{"exp": clock.Now().Unix() - 1}, Subscription{}, ErrExpired},
		{"its connection", jwt.MapClaims{"client": "c1"}, Subscription{Ends: ends}, nil},
		{"another connection", jwt.MapClaims{"client": "c2"}, Subscription{}, ErrInvalid},
		{"another user", jwt.MapClaims{"sub": "eve"}, Subscription{}, ErrInvalid},
		{"another channel", jwt.MapClaims{"channel": "a:2"}, Subscription{}, ErrInvalid},
		{"for connections", jwt.MapClaims{"channel": ""}, Subscription{}, ErrInvalid},
		{"data", jwt.MapClaims{"data": 1}, Subscription{}, ErrInvalid},
	} {
		claims := jwt.MapClaims{"sub": "ann", "channel": "a:1", "exp": ends.Unix()}
		maps.Copy(claims, tt.claims)
		text := sign(t, jwt.SigningMethodHS256, []byte(testSecret), claims)
		got, err := v.Subscription(text, "ann", "c1", "a:1")
		if !errors.Is(err, tt.err) || !got.Ends.Equal(tt.want.Ends) || string(got.Info) != string(tt.want.Info) ||
			got.Publish != tt.want.Publish {
			t.Errorf("%s: %+v, %v; want %+v, %v", tt.name, got, err, tt.want, tt.err)
		}
	}
}

// All claims of a token for a connection arrive in what it grants.
func TestConnectionClaims(t *testing.T) {
	v := verifierOf(Config{Secret: testSecret}, newClock())
	text := sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "ann", "info": 1,
		"channels": []string{"c", "a", "c"}, "meta": map[string]int{"m": 1}, "roles": "ignored",
		"subs": map[string]any{"b": map[string]any{"info": 2}, "a": map[string]any{}},
		"caps": []any{map[string]any{"channels": []string{"x*"}, "match": "wildcard", "allow": []string{"pub"}}}})
	got, err := v.Connection(text)
	want := Connection{User: "ann", Info: []byte("1"), Channels: []string{"a", "b", "c"},
		Infos: map[string][]byte{"b": []byte("2")}, Meta: []byte(`{"m":1}`),
		Capabilities: []Capability{{Channels: []string{"x*"}, Match: "wildcard", Allow: []string{RightPublish}}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	report, err := v.Report(text)
	if err != nil || report.User != "ann" || !slices.Equal(report.Channels, want.Channels) ||
		!reflect.DeepEqual(report.Capabilities, want.Capabilities) || !json.Valid(report.Claims) {
		t.Errorf("the report: %+v, %v", report, err)
	}
}

// A refused token's report has what the token says, and nothing that it would grant.
func TestReportOfRefused(t *testing.T) {
	clock := newClock()
	v := verifierOf(Config{Secret: testSecret}, clock)
	text := tokentest.Tokens(t, clock.Now())["another secret"]
	for name, v := range map[string]*Verifier{"another key": v, "no key": nil} {
		r, err := v.Report(text)
		if err == nil || r.User != "" || string(r.Header) != `{"alg":"HS256","typ":"JWT"}` ||
			!strings.Contains(string(r.Claims), `"sub":"ann"`) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	for _, text := range []string{"", "a.b", "a.b.c", "e30.?.", "e30.e30.e30.e30"} {
		if r, err := v.Report(text); err == nil || r.Claims != nil {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	}
}

// Reload replaces keys, issuer and audience, and keeps them all if it fails.
func TestReload(t *testing.T) {
	clock := newClock()
	v := verifierOf(Config{Secret: testSecret}, clock)
	by := func(secret string) error {
		_, err := v.Connection(sign(t, jwt.SigningMethodHS256, []byte(secret),
			jwt.MapClaims{"sub": "ann", "iss": "me"}))
		return err
	}
	if err := v.Reload(Config{Secret: "another", Keys: []string{"no PEM"}}); err == nil {
		t.Error("a key that cannot be read is taken")
	}
	if err := by(testSecret); err != nil {
		t.Error("after a Reload that failed:", err)
	}
	if err := v.Reload(Config{Secret: "another", Issuer: "me"}); err != nil {
		t.Fatal(err)
	}
	if err := by(testSecret); !errors.Is(err, ErrInvalid) {
		t.Error("by the earlier secret:", err)
	}
	if issuer, _ := v.Expects(); by("another") != nil || issuer != "me" {
		t.Errorf("by the new secret: %v; the issuer is %q", by("another"), issuer)
	}
	if v, err := New(Config{}); v != nil || err != nil {
		t.Errorf("without a key: %v, %v", v, err)
	}
}
