package main

import (
	"errors"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

// myriad load and its rivals load the same servers, and both find what these cost.
func TestLoadCost(t *testing.T) {
	soak.Only(t) // the rivals do not run for less than a second
	for _, r := range []*rival{&wrk, &h2load} {
		t.Run(r.name, func(t *testing.T) {
			ours, theirs, err := loadCost(t.Context(), r, r.server, 10, 1, time.Second)
			if errors.Is(err, errNoWitness) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("ours %+v, %s %+v", ours, r.name, theirs)
			for _, found := range []testimony{ours, theirs} {
				if found.requests == 0 || found.driver <= 0 || found.server <= 0 {
					t.Errorf("found %+v", found)
				}
			}
		})
	}
}
