//go:build linux

package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

// Every server is started with every app that a scenario asks it for, answers rightly and is measured. Servers have no other tests: they
// are as small as they can be, and what they must do is what the checks ask for.
func TestEveryServer(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the programs of all rivals")
	}
	done := map[string]bool{}
	for _, sc := range scenarios {
		s := selection{scenarios: []string{sc.name}, rounds: 1, duration: 100 * time.Millisecond, times: 2000}
		if sc.mode != working {
			s.conns = 8
		}
		for _, name := range sc.servers {
			key := name + " " + sc.speaking(server{name: name}).app
			if !done[key] {
				s.only = append(s.only, name)
			}
			done[key] = true
		}
		if s.only == nil {
			continue
		}
		t.Run(sc.name, func(t *testing.T) { measureEach(t, s) })
	}
}

func measureEach(t *testing.T, s selection) {
	plans, err := s.plan()
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.measureAll(t.Context(), s.newResults(), plans, newProgress(io.Discard, 1), func(*results, *outcome) {})
	if r == nil {
		t.Fatal(err)
	}
	for _, o := range r.Scenarios {
		for _, x := range o.Servers {
			switch {
			case strings.Contains(x.Refused, "no C compiler"):
				t.Log(x.Refused)
			case x.Refused != "":
				t.Errorf("%s: %s", x.Name, x.Refused)
			case x.Summary[o.Measures[0]].Median <= 0 && o.Measures[0] != "conn_bytes":
				t.Errorf("%s has no %s: %v", x.Name, o.Measures[0], x.Summary)
			}
		}
	}
}
