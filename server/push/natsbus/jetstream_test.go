package natsbus

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// A leader may have been replaced without knowing it. Then it is not believed that a client's
// position is beyond the end of the log.
func TestLeaderThatHearsNone(t *testing.T) {
	const a, b = time.Second, 4 * time.Second // the log's replicas were heard so long ago
	for _, tt := range []struct {
		name    string
		leader  string
		active  []time.Duration
		offline bool
		sure    bool
		stores  bool
	}{
		{"all were heard", "n1", []time.Duration{a, a}, false, true, true},
		{"most were", "n1", []time.Duration{a, b}, false, true, true},
		{"none was lately", "n1", []time.Duration{b, b}, false, false, true},
		{"none was for long", "n1", []time.Duration{time.Minute, time.Minute}, false, false, false},
		{"they have gone", "n1", []time.Duration{a, a}, true, false, false},
		{"there is no leader", "", []time.Duration{a, a}, false, false, false},
	} {
		var i streamInfo
		text := fmt.Sprintf(`{"cluster":{"leader":%q,"replicas":
			[{"active":%d,"offline":%v},{"active":%d,"offline":%v}]}}`,
			tt.leader, tt.active[0], tt.offline, tt.active[1], tt.offline)
		if err := json.Unmarshal([]byte(text), &i); err != nil {
			t.Fatal(err)
		}
		if i.heardMost(leadsAlone) != tt.sure || i.hasQuorum() != tt.stores {
			t.Errorf("%s: sure %v, has a quorum %v", tt.name, i.heardMost(leadsAlone), i.hasQuorum())
		}
	}
	if one := (&streamInfo{}); !one.heardMost(leadsAlone) {
		t.Error("the only node does not believe itself")
	}
}
