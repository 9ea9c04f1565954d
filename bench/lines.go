package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// A drawing is a picture of an outcome.
type drawing interface{ svg(p palette) string }

// A lineChart is how a figure of all servers went in the course of a turn, a line for each.
type lineChart struct {
	title string
	hint  string
	lines []lineOf
}

type lineOf struct {
	name   string
	ours   bool
	course course
}

// The measures of a line chart, in units of its own.
const (
	lineLeft   = 62  // for numbers
	lineRight  = 150 // for names
	lineTop    = 34
	lineHeight = 200
	lineFoot   = 34
	lineApart  = 16 // between two names
)

// courseChart is how many connections each server held, or nothing if that was not noted.
func courseChart(o *outcome) *lineChart {
	c := &lineChart{title: "connections held", hint: "over the seconds of a turn"}
	for _, s := range o.Servers {
		if len(s.Course) > 1 {
			c.lines = append(c.lines, lineOf{s.Name, s.Ours, s.Course})
		}
	}
	if len(c.lines) == 0 {
		return nil
	}
	return c
}

// most is the greatest second and the greatest number.
func (c *lineChart) most() (seconds, held float64) {
	for _, l := range c.lines {
		for _, p := range l.course {
			seconds, held = max(seconds, p[0]), max(held, p[1])
		}
	}
	return max(seconds, 1e-3), max(held, 1) * 1.05
}

func (c *lineChart) description() string {
	var parts []string
	for _, l := range c.lines {
		parts = append(parts, l.name+" "+grouped(l.last(), 0)+" in the end")
	}
	return fmt.Sprintf("%s %s: %s", c.title, c.hint, strings.Join(parts, ", "))
}

func (l *lineOf) last() float64 { return l.course[len(l.course)-1][1] }

// svg draws it.
func (c *lineChart) svg(p palette) string {
	var b strings.Builder
	const height, width = lineTop + lineHeight + lineFoot, chartWidth - lineLeft - lineRight
	seconds, held := c.most()
	x := func(v float64) float64 { return lineLeft + width*v/seconds }
	y := func(v float64) float64 { return lineTop + lineHeight*(1-v/held) }
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" `+
		`font-family="system-ui,-apple-system,Segoe UI,sans-serif" font-size="13">`, chartWidth, height)
	fmt.Fprintf(&b, `<title>%s</title>`, html.EscapeString(c.description()))
	fmt.Fprintf(&b, `<text x="0" y="16" font-weight="600" style="fill:%s">%s `+
		`<tspan font-weight="400" style="fill:%s">· %s</tspan></text>`,
		p.ink, html.EscapeString(c.title), p.muted, html.EscapeString(c.hint))
	for step, v := roundStep(held), 0.0; v <= held; v += step {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" style="stroke:%s"/>`, lineLeft, y(v), lineLeft+width, p.grid)
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" font-size="11" text-anchor="end" style="fill:%s">%s</text>`, lineLeft-8,
			y(v)+4, p.muted, grouped(v, 0))
	}
	step := roundStep(seconds)
	digits := max(0, -int(math.Floor(math.Log10(step))))
	for v := 0.0; v <= seconds; v += step {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" font-size="11" text-anchor="middle" style="fill:%s">%s s</text>`, x(v),
			lineTop+lineHeight+18, p.muted, grouped(v, digits))
	}
	names := c.places(y)
	for i, l := range c.lines {
		colour, weight, dash := p.rival, "400", ""
		if l.ours {
			colour, weight = p.ours, "600"
		}
		if turn := c.turnOf(i); turn > 0 { // of one colour they are told apart by dashes
			dash = fmt.Sprintf(";stroke-dasharray:%d %d", 10/turn, 3*turn)
		}
		var path strings.Builder
		for k, q := range l.course {
			fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[k == 0], x(q[0]), y(q[1]))
		}
		fmt.Fprintf(&b, `<path d="%s" style="fill:none;stroke:%s;stroke-width:2%s"/>`, path.String(), colour, dash)
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" font-weight="%s" style="fill:%s">%s <tspan font-weight="400" `+
			`style="fill:%s">%s</tspan></text>`, lineLeft+width+10, names[i]+4.5, weight, p.ink,
			html.EscapeString(l.name), p.muted, grouped(l.last(), 0))
	}
	b.WriteString(`</svg>`)
	return b.String()
}

// turnOf is how many lines of the same colour come before line i.
func (c *lineChart) turnOf(i int) (turn int) {
	for _, l := range c.lines[:i] {
		if l.ours == c.lines[i].ours {
			turn++
		}
	}
	return turn
}

// places are the heights of the lines' names: at their last points, but apart from each other.
func (c *lineChart) places(y func(v float64) float64) []float64 {
	order, at := make([]int, len(c.lines)), make([]float64, len(c.lines))
	for i := range c.lines {
		order[i], at[i] = i, y(c.lines[i].last())
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	for k := 1; k < len(order); k++ {
		at[order[k]] = max(at[order[k]], at[order[k-1]]+lineApart)
	}
	return at
}
