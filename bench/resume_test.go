//go:build linux

package main

import (
	"path/filepath"
	"testing"
	"time"
)

// What has been saved is not measured again, and what a run on other terms has saved is not taken
// for the same.
func TestResume(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results.json")
	s := selection{scenarios: []string{"http-100", "ws-echo"}, rounds: 2, duration: time.Second}
	plans, err := s.plan()
	if err != nil {
		t.Fatal(err)
	}
	if r, left, err := s.resume(true, name, plans); err != nil || len(left) != 2 || len(r.Scenarios) != 0 {
		t.Errorf("without a file: %d plans, %v", len(left), err)
	}
	saved := s.newResults()
	saved.Scenarios = []outcome{{Name: "ws-echo", Skipped: "for this test"}}
	if err := saved.save(name); err != nil {
		t.Fatal(err)
	}
	r, left, err := s.resume(true, name, plans)
	if err != nil || len(left) != 1 || left[0].name != "http-100" || len(r.Scenarios) != 1 {
		t.Errorf("with a file: %v, %v", left, err)
	}
	if r, left, err := s.resume(false, name, plans); err != nil || len(left) != 2 || len(r.Scenarios) != 0 {
		t.Errorf("not wanted: %d plans, %v", len(left), err)
	}
	other := s
	other.rounds++
	for name, x := range map[string]selection{name: other, "": s, t.TempDir(): s} {
		if _, _, err := x.resume(true, name, plans); err == nil {
			t.Errorf("%d rounds were resumed from %q", x.rounds, name)
		}
	}
}
