package push

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func TestLimiter(t *testing.T) {
	l := limiter{rate: Rate{3, 3 * time.Second}}
	now := time.Unix(1_800_000_000, 0)
	for i, tt := range []struct {
		after time.Duration
		key   string
		wait  time.Duration
	}{
		{0, "a", 0}, {0, "a", 0}, {0, "a", 0}, {0, "a", time.Second}, {0, "b", 0}, {0, "", 0},
		{400 * time.Millisecond, "a", 600 * time.Millisecond}, {600 * time.Millisecond, "a", 0}, {0, "a", time.Second},
		{time.Hour, "a", 0}, {0, "a", 0}, {0, "a", 0}, {0, "a", time.Second},
	} {
		now = now.Add(tt.after)
		if got := l.take(tt.key, now); got != tt.wait {
			t.Errorf("step %d, %q: wait %v, want %v", i, tt.key, got, tt.wait)
		}
	}
	free := limiter{}
	for range 100 {
		if free.take("a", now) != 0 || free.full != nil {
			t.Fatal("no limit limits")
		}
	}
}

func TestLimiterIsBounded(t *testing.T) {
	l := limiter{rate: Rate{1, time.Hour}}
	now := time.Unix(1_800_000_000, 0)
	for i := range maxBuckets + 1000 {
		if wait := l.take(fmt.Sprint(i), now); wait != 0 {
			t.Fatalf("%d waits %v", i, wait)
		}
	}
	if len(l.full) > maxBuckets {
		t.Errorf("%d buckets, want at most %d", len(l.full), maxBuckets)
	}
	now = now.Add(2 * time.Hour) // all are full
	for i := range 1000 {
		if wait := l.take(fmt.Sprint("x", i), now); wait != 0 {
			t.Fatalf("x%d waits %v", i, wait)
		}
	}
	if len(l.full) > maxBuckets {
		t.Errorf("%d buckets, want at most %d", len(l.full), maxBuckets)
	}
}

func TestAddressKeys(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1", "[2001:db8:1:2:3::9]:5": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:5": "fe80::/64", "": "", "@": "", "/run/x.sock": "",
	} {
		if got := addressKey(remote); got != want {
			t.Errorf("%q: %q, want %q", remote, got, want)
		}
	}
}

const tooMany = `"error":{"code":111,"message":"too many requests","temporary":true}}`

func withRates(r Rates) func(*node) { return func(n *node) { n.rates.Store(newRates(r)) } }

// Clients of a user share the user's bucket; users of an address share the address's.
func TestRatesOfClients(t *testing.T) {
	n := newTestNode(t, withTokens, withRates(Rates{
		UserPublications: Rate{2, time.Minute}, AddressPublications: Rate{3, time.Minute},
		UserSubscriptions: Rate{1, time.Minute}, UserConnections: Rate{2, time.Minute},
	}))
	ann := jwt.MapClaims{"sub": "ann", "channels": []string{"own"}}
	a, b, bob := n.as(ann), n.as(ann), n.as(jwt.MapClaims{"sub": "bob"})
	publish := strings.Replace(publishIt, "C", "news", 1)
	a.asks(t, "the first", publish, published)
	b.asks(t, "the second", publish, published)
	a.asks(t, "the third", publish, `{"id":4,`+tooMany)
	bob.asks(t, "another user", publish, published)
	bob.asks(t, "the address's fourth", publish, `{"id":4,`+tooMany)
	a.asks(t, "subscribes", `{"id":2,"subscribe":{"channel":"news"}}`, `{"id":2,"subscribe":{}}`)
	b.asks(t, "subscribes, too", `{"id":2,"subscribe":{"channel":"news"}}`, `{"id":2,`+tooMany)
	c := n.dial()
	c.asks(t, "connects", `{"id":1,"connect":{"token":"`+n.signed(ann)+`"}}`, `{"id":1,`+tooMany)
	if !strings.Contains(n.log.String(), "reason=rate") || n.refusals.counts[RefusedRate].Load() != 4 {
		t.Errorf("%d refusals; the log:\n%s", n.refusals.counts[RefusedRate].Load(), n.log)
	}
	n.rates.Store(newRates(Rates{}))
	a.frame([]byte(publish))
	if got := a.take(); len(got) != 2 || got[1] != published {
		t.Errorf("without limits: %q", got)
	}
}

// By HTTP the answer has the time to wait.
func TestRatesOfRequests(t *testing.T) {
	ts := newTestServer(t, Config{TokenSecret: testSecret, APIKey: "k",
		Rates: Rates{AddressCalls: Rate{1, 90 * time.Second}, AddressConnections: Rate{1, time.Minute}}})
	call := func() (int, string) {
		w := ts.do("POST", "/api/info", "{}", "X-API-Key", "k")
		return w.Code, w.Header().Get("Retry-After")
	}
	if code, _ := call(); code != 200 {
		t.Errorf("the first call: %d", code)
	}
	if code, wait := call(); code != 429 || wait != "90" {
		t.Errorf("the second call: %d, Retry-After %q", code, wait)
	}
	for i, want := range []int{401, 429} { // an event stream counts before its token is looked at
		if w := ts.do("GET", "/events?channel=a", ""); w.Code != want {
			t.Errorf("stream %d: %d, want %d", i, w.Code, want)
		}
	}
	if _, err := New(Config{Rates: Rates{AddressCalls: Rate{Count: 1}}}); err == nil {
		t.Error("a rate without a time is accepted")
	}
}

// Reload replaces rates and keys of tokens for everything that comes later.
func TestReload(t *testing.T) {
	c := Config{TokenSecret: testSecret, APIKey: "k"}
	ts := newTestServer(t, c)
	claims := jwt.MapClaims{"sub": "ann", "exp": ts.node.clock.Now().Add(time.Hour).Unix()}
	good := sign(t, jwt.SigningMethodHS256, []byte(testSecret), claims)
	if _, err := ts.node.authenticate(good); err != nil {
		t.Fatal(err)
	}
	c.TokenSecret, c.Rates = "another secret of thirty-two bytes", Rates{AddressCalls: Rate{1, time.Minute}}
	if err := ts.Reload(c); err != nil {
		t.Fatal(err)
	}
	if _, err := ts.node.authenticate(good); err == nil {
		t.Error("a token of the old secret is still valid")
	}
	if _, err := ts.node.authenticate(sign(t, jwt.SigningMethodHS256, []byte(c.TokenSecret), claims)); err != nil {
		t.Errorf("a token of the new secret: %v", err)
	}
	ts.do("POST", "/api/info", "{}", "X-API-Key", "k")
	if w := ts.do("POST", "/api/info", "{}", "X-API-Key", "k"); w.Code != 429 {
		t.Errorf("the new rate is not in use: %d", w.Code)
	}
	for _, wrong := range []Config{{}, {TokenKeys: []string{"x"}},
		{TokenSecret: "s", Rates: Rates{AddressCalls: Rate{Per: 1}}}} {
		if err := ts.Reload(wrong); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
	if _, err := ts.node.authenticate(sign(t, jwt.SigningMethodHS256, []byte(c.TokenSecret), claims)); err != nil {
		t.Errorf("after mistakes: %v", err)
	}
}
