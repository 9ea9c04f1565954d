package push

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/token"
)

// Each way to be refused has its reason in the metrics, and one line with it and the address in the
// log.
func TestRefusalsOfRequests(t *testing.T) {
	ts := newTestServer(t, Config{APIKey: "key", TokenSecret: testSecret, AllowedOrigins: []string{"example.com"},
		Namespaces: []Namespace{{SubscribeToken: true}}})
	signed := tokens(t, ts.clock.Now())
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
		ts.clock.advance(time.Second)
		ts.do(tt.method, tt.path, "{}", tt.header...)
		if got := refusalCount(ts, tt.reason); got != before+1 {
			t.Errorf("%s %s: %s counted %d times, want 1", tt.method, tt.path, tt.reason, got-before)
		}
		path, _, _ := strings.Cut(tt.path, "?")
		want := fmt.Sprintf(`msg="push: refused" reason=%s remote=192.0.2.1:1234 path=%s`, tt.reason, path)
		line := ts.log.String()[said:]
		if said += len(line); strings.Count(line, "\n") != 1 || !strings.Contains(line, want) {
			t.Errorf("%s %s: logged %q, want one line with %q", tt.method, tt.path, line, want)
		}
	}
}

// refusalCount reads a counter from /metrics.
func refusalCount(ts *testServer, reason string) (n int) {
	_, rest, _ := strings.Cut(ts.do("GET", "/metrics", "").Body.String(),
		`myriad_refusals_total{reason="`+reason+`"} `)
	fmt.Sscan(rest, &n)
	return n
}

func TestRefusalsOfCommands(t *testing.T) {
	for _, tt := range []struct {
		reason Refusal
		frame  string
	}{
		{RefusedNoToken, `{"id":1,"connect":{}}`},
		{RefusedToken, `{"id":1,"connect":{"token":"x"}}`},
		{RefusedFrame, `{"id":1`},
		{RefusedFrame, `{"id":1,"subscribe":{"channel":"news"}}`},
	} {
		n := newTestNode(t, func(n *Hub) { n.tokens = verifierOf(token.Config{Secret: testSecret}, n.clock) })
		f := n.dial()
		f.frame([]byte(tt.frame))
		if got := n.refusals.counts[tt.reason].Load(); got != 1 {
			t.Errorf("%s: %s counted %d times", tt.frame, tt.reason, got)
		}
		want := "reason=" + tt.reason.String() + " remote=192.0.2.1:1234 client=" + f.s.ID()
		if log := n.log.String(); strings.Contains(log, `\n`) || !strings.Contains(log, want) {
			t.Errorf("%s: logged %q, want one line with %q", tt.frame, log, want)
		}
	}
}

// A command that is not permitted is counted, and the client stays.
func TestRefusalOfAPublish(t *testing.T) {
	n := newTestNode(t, func(n *Hub) { n.rules.DenyClientPublish = true })
	f := n.connected()
	f.frame([]byte(`{"id":2,"publish":{"channel":"news","data":1}}`))
	if got := n.refusals.counts[RefusedPermission].Load(); got != 1 {
		t.Errorf("counted %d times", got)
	}
	if log := n.log.String(); !strings.Contains(log, `error="publish \"news\": `+
		ErrPermissionDenied.Error()+": --deny-client-publish\"") {
		t.Errorf("logged %q", log)
	}
	f.wantOpen(t, "refused")
}

// An attacker who is refused ten thousand times in a second gets ten lines. The next line has the
// number of the others.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	n := newTestNode(t)
	for range 10_000 {
		n.refused(RefusedKey, "192.0.2.1:1234")
	}
	if lines := strings.Count(n.log.String(), "\n"); lines != maxRefusalLines {
		t.Errorf("%d lines, want %d", lines, maxRefusalLines)
	}
	n.clock.advance(refusalPeriod)
	n.refused(RefusedOrigin, "192.0.2.1:1234")
	if want := fmt.Sprintf("reason=origin remote=192.0.2.1:1234 omitted=%d\n", 10_000-maxRefusalLines); !strings.
		HasSuffix(n.log.String(), want) {
		t.Errorf("the last line is not %q: %s", want, n.log)
	}
	if got := n.refusals.counts[RefusedKey].Load(); got != 10_000 {
		t.Errorf("counted %d", got)
	}
}
