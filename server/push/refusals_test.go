package push_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// Each way to be refused has its reason in the metrics, and one line with it and the address in the
// log.
func TestRefusalsOfRequests(t *testing.T) {
	ts := servertest.New(t, push.Config{APIKey: "key", TokenSecret: tokentest.Secret,
		AllowedOrigins: []string{"example.com"},
		Namespaces:     []push.Namespace{{SubscribeToken: true}}})
	signed := tokentest.Tokens(t, ts.Clock.Now())
	expired, valid := signed["expired"], signed["good"]
	said := 0
	for _, tt := range []struct {
		reason, method, path string
		header               []string
	}{
		{"api_key", "POST", "/api/publish", []string{"X-API-Key", "wrong"}},
		{"api_key", "GET", "/console/stats", nil},
		{"origin", "GET", "/events?channel=news", []string{"Origin", "https://evil.example"}},
		{"no_token", "GET", "/events?channel=news", nil},
		{"token", "GET", "/events?channel=news&token=x", nil},
		{"token_expired", "GET", "/events?channel=news&token=" + expired, nil},
		{"permission", "GET", "/events?channel=news&token=" + valid, nil},
	} {
		before := refusalCount(ts, tt.reason)
		ts.Clock.Advance(time.Second)
		ts.Do(tt.method, tt.path, "{}", tt.header...)
		if got := refusalCount(ts, tt.reason); got != before+1 {
			t.Errorf("%s %s: %s counted %d times, want 1", tt.method, tt.path, tt.reason, got-before)
		}
		path, _, _ := strings.Cut(tt.path, "?")
		want := fmt.Sprintf(`msg="push: refused" reason=%s remote=192.0.2.1:1234 path=%s`, tt.reason, path)
		line := ts.Log.String()[said:]
		if said += len(line); strings.Count(line, "\n") != 1 || !strings.Contains(line, want) {
			t.Errorf("%s %s: logged %q, want one line with %q", tt.method, tt.path, line, want)
		}
	}
}

// refusalCount reads a counter from /metrics.
func refusalCount(ts *servertest.Server, reason string) (n int) {
	_, rest, _ := strings.Cut(ts.Do("GET", "/metrics", "").Body.String(),
		`myriad_refusals_total{reason="`+reason+`"} `)
	fmt.Sscan(rest, &n)
	return n
}
