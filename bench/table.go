package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A grid is the table of an outcome, before it is text, Markdown or HTML.
type grid struct {
	title  string
	terms  string // how it was measured
	head   []string
	rows   [][]string
	ours   []bool // by row
	remark []string
}

// tabulate makes the table. The first figure and all ratios are followed by their spread; the other
// figures are medians.
func tabulate(r *results, o *outcome) grid {
	g := grid{title: fmt.Sprintf("%s  [%s]  %s", o.Name, o.Rows, o.Asks)}
	if o.Skipped != "" {
		g.remark = []string{"not run: " + o.Skipped}
		return g
	}
	g.terms = terms(r, o)
	g.head = []string{"server"}
	shown := shownMetrics(o)
	for _, m := range shown {
		g.head = append(g.head, m.title)
		if o.showsRatio(m) {
			g.head = append(g.head, "× "+o.Reference)
		}
	}
	for _, s := range o.Servers {
		if s.Refused != "" {
			g.remark = append(g.remark, s.Name+" not measured: "+s.Refused)
			continue
		}
		g.rows = append(g.rows, cells(o, &s, shown))
		g.ours = append(g.ours, s.Ours)
	}
	for _, w := range o.Warnings {
		g.remark = append(g.remark, "warning: "+w)
	}
	return g
}

func terms(r *results, o *outcome) string {
	rounds := fmt.Sprintf("%d rounds of %s: median (min–max)", r.Rounds, r.Duration)
	if o.Work != "" {
		return fmt.Sprintf("%s, %d rounds: median (min–max)", o.Work, r.Rounds)
	}
	mode := o.Mode
	if o.Rate > 0 {
		mode = fmt.Sprintf("%s at %.0f per second", mode, o.Rate)
	}
	if o.Slow > 0 {
		mode += fmt.Sprintf(", of which %d %% are slow", o.Slow)
	}
	if o.Attack != "" {
		mode += fmt.Sprintf(", under attack (%s)", o.Attack)
	}
	if o.Publishers > 0 {
		mode += fmt.Sprintf(", publishers: %d", o.Publishers)
	}
	plural := "es"
	if o.Drivers == 1 {
		plural = ""
	}
	return fmt.Sprintf("%d connections from %d driver process%s, %s, %s", o.Connections, o.Drivers, plural, mode,
		rounds)
}

func shownMetrics(o *outcome) []metric {
	var shown []metric
	for _, name := range append(append([]string{}, o.Measures...), "driver_us", "strangers") {
		if m, ok := findMetric(name); ok && anyHas(o, name) {
			shown = append(shown, m)
		}
	}
	return shown
}

func anyHas(o *outcome, name string) bool {
	for _, s := range o.Servers {
		if _, ok := s.Summary[name]; ok {
			return true
		}
	}
	return false
}

func cells(o *outcome, s *serverOutcome, shown []metric) []string {
	row := []string{s.Name}
	for i, m := range shown {
		value, ok := s.Summary[m.name]
		if i == 0 {
			row = append(row, withSpread(value, ok, m.digits))
		} else {
			row = append(row, alone(value, ok, m.digits))
		}
		if o.showsRatio(m) {
			ratio, ok := s.Ratio[m.name]
			row = append(row, withSpread(ratio, ok, 2))
		}
	}
	return row
}

const absent = "–"

func alone(s spread, ok bool, digits int) string {
	if !ok {
		return absent
	}
	return strconv.FormatFloat(s.Median, 'f', digits, 64)
}

func withSpread(s spread, ok bool, digits int) string {
	if !ok {
		return absent
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', digits, 64) }
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Min), number(s.Max))
}

// print is the table for a terminal.
func (g grid) print(w io.Writer) error {
	fmt.Fprintf(w, "\n%s\n", g.title)
	if g.terms != "" {
		fmt.Fprintf(w, "%s\n", g.terms)
	}
	if len(g.rows) > 0 {
		fmt.Fprintln(w)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{g.head}, g.rows...) {
			fmt.Fprintln(t, strings.Join(row, "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, remark := range g.remark {
		fmt.Fprintln(w, remark)
	}
	return nil
}
