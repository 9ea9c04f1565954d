package main

import (
	"errors"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

// myriad load and its rivals load the same servers, and both find what these cost and how long they
// take.
func TestLoadCost(t *testing.T) {
	soak.Only(t) // the rivals do not run for less than a second
	for _, r := range []*rival{&wrk, &h2load, &inC, &subscribersInC} {
		t.Run(r.name+", a "+r.unit, func(t *testing.T) {
			ours, theirs, err := loadCost(t.Context(), r, r.server, r.conns/10, 1, time.Second)
			if errors.Is(err, errNoWitness) || errors.Is(err, errNoCompiler) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("ours %+v, %s %+v", ours, r.name, theirs)
			for _, found := range []testimony{ours, theirs} {
				if found.requests == 0 || found.driver <= 0 || found.server <= 0 || found.rate <= 0 {
					t.Errorf("found %+v", found)
				}
				if r != &h2load && (found.p50 <= 0 || found.p99 < found.p50) {
					t.Errorf("found %+v", found)
				}
			}
		})
	}
}
