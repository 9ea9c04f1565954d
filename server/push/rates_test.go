package push_test

import (
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// By HTTP the answer has the time to wait.
func TestRatesOfRequests(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, APIKey: "k",
		Rates: push.Rates{AddressCalls: push.Rate{Count: 1, Per: 90 * time.Second},
			AddressConnections: push.Rate{Count: 1,
				Per: time.Minute}}})
	call := func() (int, string) {
		w := ts.Do("POST", "/api/info", "{}", "X-API-Key", "k")
		return w.Code, w.Header().Get("Retry-After")
	}
	if code, _ := call(); code != 200 {
		t.Errorf("the first call: %d", code)
	}
	if code, wait := call(); code != 429 || wait != "90" {
		t.Errorf("the second call: %d, Retry-After %q", code, wait)
	}
	for i, want := range []int{401, 429} { // an event stream counts before its token is looked at
		if w := ts.Do("GET", "/events?channel=a", ""); w.Code != want {
			t.Errorf("stream %d: %d, want %d", i, w.Code, want)
		}
	}
	if _, err := push.New(push.Config{Rates: push.Rates{AddressCalls: push.Rate{Count: 1}}}); err == nil {
		t.Error("a rate without a time is accepted")
	}
}

// Reload replaces rates and keys of tokens for everything that comes later.
func TestReload(t *testing.T) {
	c := push.Config{TokenSecret: tokentest.Secret, APIKey: "k"}
	ts := servertest.New(t, c)
	claims := jwt.MapClaims{"sub": "ann", "exp": ts.Config().Clock.Now().Add(time.Hour).Unix()}
	good := tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), claims)
	if _, err := ts.Hub.Authenticate(good); err != nil {
		t.Fatal(err)
	}
	c.TokenSecret, c.Rates = "another secret of thirty-two bytes", push.Rates{AddressCalls: push.Rate{Count: 1,
		Per: time.Minute}}
	if err := ts.Reload(c); err != nil {
		t.Fatal(err)
	}
	if _, err := ts.Hub.Authenticate(good); err == nil {
		t.Error("a token of the old secret is still valid")
	}
	if _, err := ts.Hub.Authenticate(tokentest.Sign(t, jwt.SigningMethodHS256, []byte(c.TokenSecret),
		claims)); err != nil {
		t.Errorf("a token of the new secret: %v", err)
	}
	ts.Do("POST", "/api/info", "{}", "X-API-Key", "k")
	if w := ts.Do("POST", "/api/info", "{}", "X-API-Key", "k"); w.Code != 429 {
		t.Errorf("the new rate is not in use: %d", w.Code)
	}
	for _, wrong := range []push.Config{{}, {TokenKeys: []string{"x"}},
		{TokenSecret: "s", Rates: push.Rates{AddressCalls: push.Rate{Per: 1}}}} {
		if err := ts.Reload(wrong); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
	if _, err := ts.Hub.Authenticate(tokentest.Sign(t, jwt.SigningMethodHS256, []byte(c.TokenSecret),
		claims)); err != nil {
		t.Errorf("after mistakes: %v", err)
	}
}
