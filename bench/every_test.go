//go:build linux

package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/bench/attack"
	"github.com/myriad-go/myriad/internal/soak"
)

// Every server is started with every app that a scenario asks it for, answers rightly and is
// measured. Servers have no other tests: they are as small as they can be, and what they must do is
// what the checks ask for. Rivals change seldom: usually a third of them is run. Usually it is also
// one part of an attack that is made on a server, and not the whole.
func TestEveryServer(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the programs of all rivals")
	}
	programs, err := build(t.Context(), servers)
	if err != nil {
		t.Fatal(err)
	}
	every := soak.Size(t, 3, 1)
	rivals, done := 0, map[string]bool{}
	for _, sc := range scenarios {
		s := selection{scenarios: []string{sc.name}, rounds: 1, duration: 50 * time.Millisecond, times: 2000}
		if sc.name == "cluster-publish" || sc.name == "cluster-failover" { // they take long: TestClusters
			continue
		}
		if every > 1 && slices.Contains([]attack.Kind{attack.Slow, attack.Flood, attack.Streams}, sc.attack) {
			continue // later scenarios have their parts, and ask for the same app
		}
		if sc.mode != working {
			s.conns = 8
		}
		for _, name := range sc.servers {
			key := name + " " + sc.speaking(server{name: name}).app
			if done[key] {
				continue
			}
			done[key] = true
			if !isOurs(name) {
				if rivals++; rivals%every != 0 {
					continue
				}
			}
			s.only = append(s.only, name)
		}
		if s.only == nil {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			measureEach(t, programs, s)
		})
	}
}

func isOurs(name string) bool {
	i := slices.IndexFunc(servers, func(s server) bool { return s.name == name })
	return servers[i].ours
}

// measureEach measures the servers once, and those longer for which the time was too short.
func measureEach(t *testing.T, programs *bakery, s selection) {
	for ; s.only != nil; s.duration *= 4 {
		r := measureOnce(t, programs, s)
		s.only = nil
		for _, o := range r.Scenarios {
			for _, x := range o.Servers {
				switch {
				case s.duration < 5*time.Second && tooShort(&o, x):
					s.only = append(s.only, x.Name)
				case strings.Contains(x.Refused, "no C compiler"), strings.Contains(x.Refused, "no centrifugo"):
					t.Log(x.Refused)
				case x.Refused != "":
					t.Errorf("%s: %s", x.Name, x.Refused)
				case hasNothing(&o, x):
					t.Errorf("%s has no %s: %v", x.Name, o.Measures[0], x.Summary)
				}
			}
		}
	}
}

func measureOnce(t *testing.T, programs *bakery, s selection) *results {
	t.Helper()
	plans, err := s.plan()
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.measureBuilt(t.Context(), programs, s.newResults(), plans, newProgress(io.Discard, 1),
		func(*results, *outcome) {})
	if r == nil {
		t.Fatal(err)
	}
	return r
}

// tooShort reports whether a server has done nothing in its time, which a machine that was held up
// meanwhile may have taken from it.
func tooShort(o *outcome, x serverOutcome) bool {
	return strings.Contains(x.Refused, "give it longer") || x.Refused == "" && hasNothing(o, x)
}

// hasNothing reports whether the first figure of a server is nothing. Memory for a connection may
// be: some is given back meanwhile.
func hasNothing(o *outcome, x serverOutcome) bool {
	return x.Summary[o.Measures[0]].Median <= 0 && o.Measures[0] != "conn_bytes"
}
