package main

import (
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

// A cluster takes publications with a history. All subscribers of a killed node recover at the
// others, and miss nothing. Of a rival it is enough that it can be measured.
func TestClusters(t *testing.T) {
	soak.Only(t)
	programs, err := build(t.Context(), servers)
	if err != nil {
		t.Fatal(err)
	}
	r := measureOnce(t, programs, selection{scenarios: []string{"cluster-publish", "cluster-failover"}, rounds: 1,
		duration: time.Second, times: 600})
	for _, o := range r.Scenarios {
		for _, x := range o.Servers {
			switch {
			case x.Refused != "" && strings.HasPrefix(x.Name, "centrifugo"):
				t.Logf("%s, %s: %s", o.Name, x.Name, x.Refused)
			case x.Refused != "" || hasNothing(&o, x):
				t.Errorf("%s, %s: %s %v", o.Name, x.Name, x.Refused, x.Summary)
			}
		}
	}
}
