package main

import (
	"slices"
)

// A spread is what several rounds have shown of one figure.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf is the spread of at least one value. The median of an even number is the mean of the two
// in the middle.
func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// column is one figure in all rounds, if every round has it.
func column(rounds []sample, name string) ([]float64, bool) {
	var values []float64
	for _, s := range rounds {
		v, ok := s[name]
		if !ok {
			return nil, false
		}
		values = append(values, v)
	}
	return values, len(values) > 0
}

// ratios compares two servers round by round. Disturbances of the machine last longer than a turn,
// so the ratios of a pair vary less than the figures.
func ratios(rounds, reference []sample, name string) ([]float64, bool) {
	ours, ok1 := column(rounds, name)
	theirs, ok2 := column(reference, name)
	if !ok1 || !ok2 || len(ours) != len(theirs) {
		return nil, false
	}
	var all []float64
	for i := range ours {
		if theirs[i] <= 0 {
			return nil, false
		}
		all = append(all, ours[i]/theirs[i])
	}
	return all, true
}

// summarise computes medians, ratios and warnings from the rounds.
func (o *outcome) summarise() {
	if o.Skipped != "" {
		return
	}
	defer o.warn()
	reference := o.find(o.Reference)
	for i := range o.Servers {
		s := &o.Servers[i]
		s.Summary, s.Ratio = map[string]spread{}, map[string]spread{}
		for _, m := range metrics {
			if values, ok := column(s.Rounds, m.name); ok {
				s.Summary[m.name] = spreadOf(values)
			}
			if reference == nil || !o.showsRatio(m) {
				continue
			}
			if values, ok := ratios(s.Rounds, reference.Rounds, m.name); ok {
				s.Ratio[m.name] = spreadOf(values)
			}
		}
	}
}

func (o *outcome) find(name string) *serverOutcome {
	for i := range o.Servers {
		if o.Servers[i].Name == name {
			return &o.Servers[i]
		}
	}
	return nil
}

// showsRatio reports whether the table has ratios of this figure.
func (o *outcome) showsRatio(m metric) bool {
	return m.ratio || m.name == o.Measures[0] || slices.Contains(o.Ratios, m.name)
}
