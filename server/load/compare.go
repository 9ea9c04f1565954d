package load

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteComparison writes the figures of two reports side by side, with their ratios.
func WriteComparison(w io.Writer, before, now *Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\tbefore\tnow\tnow/before\t\n")
	for _, m := range now.Metrics() {
		old, err := before.metric(m.Name)
		if err != nil {
			continue // it was another kind of run
		}
		ratio := "–"
		if old.Value != 0 && !m.Unknown { // what is unknown is 0
			ratio = fmt.Sprintf("%.2f", m.Value/old.Value)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t  %s\n", m.Name, old, m, ratio, m.Unit)
	}
	return t.Flush()
}

// A Limit is a condition under which a run counts as failed, such as "p99>50ms" or "errors>0".
type Limit struct {
	text   string
	name   string
	above  bool
	amount float64
}

var limitForm = regexp.MustCompile(`^\s*([a-z0-9.-]+)\s*([<>])\s*(\S+)\s*$`)

// ParseLimit parses a Limit: the name of a figure, < or >, and a number or a duration.
func ParseLimit(text string) (Limit, error) {
	found := limitForm.FindStringSubmatch(text)
	if found == nil {
		return Limit{}, fmt.Errorf("the condition %q: write it like 'p99>50ms' or 'errors>0'", text)
	}
	l := Limit{text: text, name: found[1], above: found[2] == ">"}
	if d, err := time.ParseDuration(found[3]); err == nil {
		l.amount = float64(d) / 1e6 // durations are in ms
		return l, nil
	}
	amount, err := strconv.ParseFloat(found[3], 64)
	if err != nil {
		return Limit{}, fmt.Errorf("the condition %q: %q is neither a number nor a duration", text, found[3])
	}
	l.amount = amount
	return l, nil
}

// Applies returns an error if a load of p has no such figure.
func (l Limit) Applies(p Plan) error {
	r := newReport(p)
	r.First, r.Last = NewHistogram(), NewHistogram()
	_, err := r.metric(l.name)
	return err
}

// Check returns an error if the condition holds for a report, or if the report has no such figure.
// A figure that the run could not measure is an error, too: the limit was not tested.
func (l Limit) Check(r *Report) error {
	m, err := r.metric(l.name)
	if err != nil {
		return err
	}
	if m.Unknown {
		return fmt.Errorf("%s: the run has nothing from which %s could be measured", l.text, m.Name)
	}
	if l.above && m.Value > l.amount || !l.above && m.Value < l.amount {
		return fmt.Errorf("%s: it was %s", l.text, strings.TrimSpace(m.String()+" "+m.Unit))
	}
	return nil
}
