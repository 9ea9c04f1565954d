package hub

import (
	"context"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/golang-jwt/jwt/v5"
)

// Each command that makes the server look something up, or call a program, takes from one bucket of
// the user and one of the address. Pings and unsubscribing take nothing.
func TestRatesOfCommands(t *testing.T) {
	received := 0
	for _, command := range []string{`"history":{"channel":"news"}`, `"presence":{"channel":"news"}`,
		`"presence_stats":{"channel":"news"}`, `"rpc":{"method":"a"}`, `"refresh":{"token":"x"}`,
		`"sub_refresh":{"channel":"news","token":"x"}`} {
		n := newTestNode(t, withTokens, withRules(t, policy.Namespace{HistorySize: 1, Presence: true}),
			withRates(policy.Rates{UserCommands: policy.Rate{Count: 2, Per: time.Minute},
				AddressCommands: policy.Rate{Count: 3,
					Per: time.Minute}}),
			func(c *Config) { c.Message = func(context.Context, Caller, []byte) { received++ } })
		ann, bob := n.as(jwt.MapClaims{"sub": "ann"}), n.as(jwt.MapClaims{"sub": "bob"})
		for range 5 {
			ann.frame([]byte(`{"id":2,"ping":{}}` + "\n" + `{"id":3,"unsubscribe":{"channel":"news"}}`))
		}
		for range 2 {
			ann.frame([]byte(`{"send":{"data":1}}`))
		}
		ann.Take()
		ann.asks(t, "the third of the user", `{"id":4,`+command+`}`, `{"id":4,`+tooMany)
		ann.frame([]byte(`{"send":{"data":1}}`))
		ann.Want(t, "a message has no reply")
		bob.frame([]byte(`{"send":{"data":1}}`))
		bob.asks(t, "the fourth of the address", `{"id":4,`+command+`}`, `{"id":4,`+tooMany)
		if received != 3 {
			t.Errorf("%s: %d messages were received, want 3", command, received)
		}
		received = 0
		if got := n.refusals.counts[RefusedRate].Load(); got != 3 {
			t.Errorf("%s: %d refusals", command, got)
		}
	}
}
