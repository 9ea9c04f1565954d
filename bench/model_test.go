//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"
)

// modelInput are results in which each figure of the model has one value.
func modelInput(value float64) []*results {
	r := &results{}
	for _, l := range modelLines {
		s := summary{}
		for _, m := range metrics {
			s[m.name] = spread{Median: value}
		}
		r.Scenarios = append(r.Scenarios, outcome{Name: l.scenario,
			Servers: []serverOutcome{{Name: l.server, Summary: s}}})
	}
	return []*results{r}
}

// The figures are easily found by head: each operation takes 10 µs, and each connection 10 B.
func TestModel(t *testing.T) {
	m := model{connections: 1_000_000, cores: 5, efficiency: 0.5}
	want := map[string][]string{
		"WebSockets held":                      {"1,000,000", "10 B, and 3800 B of the kernel", "4 GB"},
		"new WebSockets a second":              {"100,000", "100,000", "1 cores; 2 at 50 %"},
		"seconds until all have a message":     {"1", "100,000 a second", "4.0 s on 5 cores"},
		"bytes a second, by messages of 1 KiB": {"1 GB", "102 MB", "10 cores; 20 at 50 %"},
		"packets a second":                     {"1,000,000", "200,000", "5 cores; 10 at 50 %"},
		"latency, µs":                          {"10", "10000, both ends", "1000 times the target"},
		"jitter, µs":                           {"10", "0, both ends", "0 times the target"},
		"cores used well": {"5", "1 of 2: the driver has the other (10 requests)",
			"assumed: 50 % of each"},
	}
	found := 0
	for _, row := range m.rows(modelInput(10)) {
		if w := want[row[0]]; w != nil {
			found++
			if !slices.Equal(row[1:4], w) {
				t.Errorf("%s: %q, not %q", row[0], row[1:4], w)
			}
		}
	}
	if found != len(want) {
		t.Errorf("%d of %d lines were found", found, len(want))
	}
}

func TestModelWithoutResults(t *testing.T) {
	for _, row := range tenMillion.rows(nil) {
		if row[2] != absent || row[3] != absent {
			t.Errorf("without a measurement there is %q", row)
		}
	}
}

// All the model's inputs are among the saved results, and name scenarios and servers that there
// are.
func TestModelInputs(t *testing.T) {
	all, err := readAll(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range modelLines {
		if l.input(all) == nil {
			t.Errorf("%s: no %s of %s in %s was saved", l.what, l.metric, l.server, l.scenario)
		}
	}
}

func TestModelRefuses(t *testing.T) {
	for _, args := range [][]string{{"--connections", "0"}, {"--cores", "-1"}, {"--efficiency", "2"},
		{"--efficiency", "NaN"}} {
		var out strings.Builder
		err := command(&out, &out).Run(t.Context(), append([]string{"bench", "model"}, args...))
		if err == nil || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
