package hub

import (
	"fmt"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/answer"
)

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
		n := newTestNode(t, withTokens)
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
	n := newTestNode(t, func(c *Config) { c.Rules.DenyClientPublish = true })
	f := n.connected()
	f.frame([]byte(`{"id":2,"publish":{"channel":"news","data":1}}`))
	if got := n.refusals.counts[RefusedPermission].Load(); got != 1 {
		t.Errorf("counted %d times", got)
	}
	if log := n.log.String(); !strings.Contains(log, `error="publish \"news\": `+
		answer.ErrPermissionDenied.Error()+": --deny-client-publish\"") {
		t.Errorf("logged %q", log)
	}
	f.WantOpen(t, "refused")
}

// An attacker who is refused ten thousand times in a second gets ten lines. The next line has the
// number of the others.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	n := newTestNode(t)
	for range 10_000 {
		n.CountRefusal(RefusedKey, "192.0.2.1:1234")
	}
	if lines := strings.Count(n.log.String(), "\n"); lines != maxRefusalLines {
		t.Errorf("%d lines, want %d", lines, maxRefusalLines)
	}
	n.clock.Advance(refusalPeriod)
	n.CountRefusal(RefusedOrigin, "192.0.2.1:1234")
	if want := fmt.Sprintf("reason=origin remote=192.0.2.1:1234 omitted=%d\n", 10_000-maxRefusalLines); !strings.
		HasSuffix(n.log.String(), want) {
		t.Errorf("the last line is not %q: %s", want, n.log)
	}
	if got := n.refusals.counts[RefusedKey].Load(); got != 10_000 {
		t.Errorf("counted %d", got)
	}
}
