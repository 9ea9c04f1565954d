//go:build linux

package main

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/proc"
)

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   spread
	}{
		{[]float64{5}, spread{5, 5, 5}},
		{[]float64{3, 1, 2}, spread{2, 1, 3}},
		{[]float64{4, 1, 3, 2}, spread{2.5, 1, 4}},
		{[]float64{-1, 0}, spread{-0.5, -1, 0}},
	} {
		before := slices.Clone(tt.values)
		if got := spreadOf(tt.values); got != tt.want || !slices.Equal(before, tt.values) {
			t.Errorf("spread of %v is %v, not %v", before, got, tt.want)
		}
	}
}

// Ratios are of rounds, and not of medians: here each round has the ratio 2, whatever the machine
// did.
func TestRatios(t *testing.T) {
	ours := []sample{{"x": 2}, {"x": 20}, {"x": 6}}
	theirs := []sample{{"x": 1}, {"x": 10}, {"x": 3}}
	if got, ok := ratios(ours, theirs, "x"); !ok || !slices.Equal(got, []float64{2, 2, 2}) {
		t.Errorf("%v, %v", got, ok)
	}
	for name, reference := range map[string][]sample{
		"another number of rounds": theirs[:2], "a zero": {{"x": 1}, {"x": 0}, {"x": 3}},
		"a gap": {{"x": 1}, {}, {"x": 3}}, "nothing": nil,
	} {
		if got, ok := ratios(ours, reference, "x"); ok {
			t.Errorf("with %s in the reference the ratios are %v", name, got)
		}
	}
}

// The histograms of several drivers become one: percentiles cannot be averaged.
func TestTally(t *testing.T) {
	sum := tally{latency: load.NewLatency()}
	for _, base := range []int64{0, 1000} {
		h := load.NewLatency()
		for v := range int64(1000) {
			if err := h.RecordValue((base + v + 1) * 1e6); err != nil {
				t.Fatal(err)
			}
		}
		encoded, err := h.EncodeV2()
		if err != nil {
			t.Fatal(err)
		}
		one := load.Result{
			Replies: 1000, Elapsed: time.Second, Server: proc.Times{Total: 80 * time.Millisecond},
			Driver: 30 * time.Millisecond, Latency: encoded,
		}
		if err := sum.add(one); err != nil {
			t.Fatal(err)
		}
	}
	s := sample{}
	if err := s.rates(load.Closed, sum); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"cpu_us": 40, "driver_us": 30, "rate": 2000, "p50_ms": 1000, "p99_ms": 1980, "p999_ms": 1998,
	} {
		if math.Abs(s[name]-want) > want/500 {
			t.Errorf("%s is %v, not %v", name, s[name], want)
		}
	}
	if err := sum.add(load.Result{Latency: []byte("no histogram")}); err == nil {
		t.Error("a broken histogram was added")
	}
	if err := (sample{}).rates(load.Closed, tally{latency: load.NewLatency()}); err == nil {
		t.Error("there are rates without replies")
	}
}

// example has two servers that were measured, and one that was refused in the middle of it.
func example() (*results, *outcome) {
	o := outcome{
		Name: "x", Rows: "P0", Asks: "What?", Mode: "closed", Connections: 90, Wanted: 100, Drivers: 2, Reference: "a",
		Measures: []string{"cpu_us", "rate"},
		Servers: []serverOutcome{
			{Name: "a", Rounds: []sample{{"cpu_us": 10, "rate": 1000.4, "strangers": 0.01}, {"cpu_us": 12, "rate": 900},
				{"cpu_us": 11, "rate": 950}}},
			{Name: "b", Ours: true, Rounds: []sample{{"cpu_us": 5, "rate": 2000, "strangers": 0.5},
				{"cpu_us": 3, "rate": 2100}, {"cpu_us": 11, "rate": 1900}}},
			{Name: "c", Refused: "it lies"},
		},
	}
	o.summarise()
	return &results{Format: resultsFormat, Rounds: 3, Duration: "1s", Scenarios: []outcome{o}}, &o
}

func TestTable(t *testing.T) {
	r, o := example()
	var text, md, html bytes.Buffer
	if err := tabulate(r, o).print(&text); err != nil {
		t.Fatal(err)
	}
	want := `
x  [P0]  What?
90 connections from 2 driver processes, closed, 3 rounds of 1s: median (min–max)

server  server CPU µs        × a               per second
a       11.00 (10.00–12.00)  1.00 (1.00–1.00)  950
b       5.00 (3.00–11.00)    0.50 (0.25–1.00)  2000
c not measured: it lies
warning: 90 connections instead of 100: the limit of open files (ulimit -Hn) allows no more
warning: other processes used more than 0.10 of a core during 1 of 6 turns (0.50 in round 1 of b): ` +
		`these figures are spoilt
`
	if text.String() != want {
		t.Errorf("the table is\n%s, not\n%s", &text, want)
	}
	if err := r.markdown(&md); err != nil || !strings.Contains(md.String(),
		"| **b** | 5.00 (3.00–11.00) | 0.50 (0.25–1.00) | 2000 |\n") {
		t.Errorf("Markdown: %v\n%s", err, &md)
	}
	if err := writeHTML(&html, []*results{r}); err != nil || !strings.Contains(html.String(),
		`<tr class="ours"><td>b<td>5.00 (3.00–11.00)<td>`) {
		t.Errorf("HTML: %v\n%s", err, &html)
	}
}

// Without its reference a scenario has figures and no ratios.
func TestTableWithoutReference(t *testing.T) {
	r, o := example()
	o.Servers[0] = serverOutcome{Name: "a", Refused: "it died"}
	o.summarise()
	var text bytes.Buffer
	if err := tabulate(r, o).print(&text); err != nil {
		t.Fatal(err)
	}
	if s := text.String(); !strings.Contains(s, "5.00 (3.00–11.00)  –") || !strings.Contains(s, "no ratios") {
		t.Errorf("the table is\n%s", s)
	}
}
