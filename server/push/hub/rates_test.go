package hub

import (
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/golang-jwt/jwt/v5"
)

const tooMany = `"error":{"code":111,"message":"too many requests","temporary":true}}`

func withRates(r policy.Rates) func(*Config) { return func(c *Config) { c.Rates = r } }

// Clients of a user share the user's bucket; users of an address share the address's.
func TestRatesOfClients(t *testing.T) {
	n := newTestNode(t, withTokens, withRates(policy.Rates{
		UserPublications: policy.Rate{Count: 2, Per: time.Minute}, AddressPublications: policy.Rate{Count: 3,
			Per: time.Minute},
		UserSubscriptions: policy.Rate{Count: 1, Per: time.Minute}, UserConnections: policy.Rate{Count: 2,
			Per: time.Minute},
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
	n.rates.Set(policy.Rates{})
	a.frame([]byte(publish))
	if got := a.Take(); len(got) != 2 || got[1] != published {
		t.Errorf("without limits: %q", got)
	}
}
