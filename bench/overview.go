package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A verdict compares our best server with the best of the others, in the main figure of a scenario.
type verdict struct {
	scenario, figure string
	rival, ours      string // names with figures
	ratio            float64
	word             string // ahead, level, behind, or of the limit
}

// level is how far two figures may be apart and still count as the same: less than comes and goes
// between runs.
const level = 0.05

// verdictOf is nothing for what has no two sides. The server in C is the limit and no rival: where
// it is the reference, the verdict is how far from the limit ours is.
func verdictOf(o *outcome) (verdict, bool) {
	m, ok := findMetric(o.Measures[0])
	if !ok {
		return verdict{}, false
	}
	var sides [2]*serverOutcome
	median := func(s *serverOutcome) float64 { return s.Summary[m.name].Median }
	for i := range o.Servers {
		s := &o.Servers[i]
		if _, ok := s.Summary[m.name]; !ok || s.Name == "c-epoll" && o.Reference != "c-epoll" {
			continue
		}
		side := &sides[0]
		if s.Ours {
			side = &sides[1]
		}
		if *side == nil || (median(s) < median(*side)) != m.more() {
			*side = s
		}
	}
	if sides[0] == nil || sides[1] == nil || median(sides[0]) <= 0 {
		return verdict{}, false
	}
	v := verdict{scenario: o.Name, figure: m.title, ratio: median(sides[1]) / median(sides[0])}
	switch {
	case sides[0].Name == "c-epoll":
		v.word = "of the limit"
	case v.ratio > 1-level && v.ratio < 1+level:
		v.word = "level"
	case (v.ratio < 1) != m.more():
		v.word = "ahead"
	default:
		v.word = "behind"
	}
	show := func(s *serverOutcome) string { return s.Name + " " + grouped(median(s), m.digits) }
	v.rival, v.ours = show(sides[0]), show(sides[1])
	return v, true
}

func verdicts(all []*results) (list []verdict) {
	for _, r := range all {
		for i := range r.Scenarios {
			if v, ok := verdictOf(&r.Scenarios[i]); ok {
				list = append(list, v)
			}
		}
	}
	return list
}

func (v verdict) cells() []string {
	return []string{v.scenario, v.figure, v.rival, v.ours, strconv.FormatFloat(v.ratio, 'f', 2, 64), v.word}
}

var verdictHead = []string{"scenario", "figure", "best of the others", "best of ours", "ratio", ""}

func markdownOverview(w io.Writer, all []*results) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n### Overview\nThe best of ours by the best of the others, medians.\n\n%s%s",
		markdownRow(verdictHead), markdownRow([]string{"---", "---", "---", "---", "--:", "---"}))
	for _, v := range verdicts(all) {
		b.WriteString(markdownRow(v.cells()))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
