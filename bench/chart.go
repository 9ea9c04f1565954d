package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A chart is one figure of all servers as horizontal bars, drawn by hand: there are no libraries in
// it, and nothing is fetched.
type chart struct {
	title string // with the unit
	hint  string // which way is better
	bars  []bar
}

type bar struct {
	name  string
	ours  bool
	limit bool // what the kernel alone costs: no rival
	value spread
	ratio string // behind the value
	text  string // the value
}

// A palette is the colours of a chart: those of a page's variables, or of one theme for a picture.
type palette struct{ ink, muted, grid, ours, rival, limit string }

var (
	pagePalette  = palette{"var(--ink)", "var(--muted)", "var(--grid)", "var(--ours)", "var(--rival)", "var(--limit)"}
	lightPalette = palette{"#1b1b1f", "#5f6672", "#dfe3e8", "#1f6feb", "#a3adb9", "#d3d9e0"}
	darkPalette  = palette{"#e6e6ea", "#9aa2ae", "#2b3038", "#58a6ff", "#66717f", "#3b434d"}
)

// The measures of a chart, in units of its own.
const (
	chartWidth = 640
	nameWidth  = 136
	textWidth  = 132 // for the values behind bars
	barRoom    = chartWidth - nameWidth - textWidth
	rowHeight  = 26
	barHeight  = 16
	headHeight = 46
	footHeight = 8
)

// outstanding is how many times the next longest a bar is before it is cut off, so that the others
// can be told apart.
const outstanding = 6

// chartOf shows one metric of an outcome, or nothing if it has none.
func chartOf(o *outcome, m metric) *chart {
	c := &chart{title: m.title, hint: "less is better"}
	if m.more() {
		c.hint = "more is better"
	}
	for _, s := range o.Servers {
		value, ok := s.Summary[m.name]
		if !ok {
			continue
		}
		b := bar{name: s.Name, ours: s.Ours, limit: s.Name == "c-epoll", value: value,
			text: grouped(value.Median, m.digits)}
		if ratio, ok := s.Ratio[m.name]; ok && s.Name != o.Reference {
			b.ratio = "× " + ratioText(ratio.Median)
		}
		c.bars = append(c.bars, b)
	}
	if len(c.bars) == 0 {
		return nil
	}
	return c
}

// goodputChart shows what was served of the possible at each load, or nothing if that was not
// measured.
func goodputChart(o *outcome) *chart {
	c := &chart{title: "goodput, in parts of what is possible", hint: "more is better; at 1, 2 and 10 times the load"}
	for _, s := range o.Servers {
		for _, at := range overloads {
			value, ok := s.Summary["served_"+at.name]
			if !ok {
				continue
			}
			c.bars = append(c.bars, bar{name: fmt.Sprintf("%s, %g ×", s.Name, at.times), ours: s.Ours, value: value,
				text: grouped(value.Median, 2)})
		}
	}
	if len(c.bars) == 0 {
		return nil
	}
	return c
}

// chartsOf are the one or two figures that an outcome is about. In scenarios of overload the first
// says what is served at each load, or how many connections are held in the course of time.
func chartsOf(o *outcome) (all []drawing) {
	if o.Mode == string(overloading) {
		if c := goodputChart(o); c != nil {
			return []drawing{c}
		}
	}
	if c := courseChart(o); c != nil {
		all = append(all, c)
	}
	for _, name := range pictured(o) {
		if m, ok := findMetric(name); ok {
			if c := chartOf(o, m); c != nil {
				all = append(all, c)
			}
		}
	}
	return all
}

// pictured is the first figure of the table, and the next one that tells something else.
func pictured(o *outcome) []string {
	first := o.Measures[0]
	for _, second := range append(slices.Clone(o.Ratios), "alone_p99_ms", "mallocs", "conn_bytes_gc", "cpu_us",
		"rss_peak_mb") {
		if second != first && slices.Contains(o.Measures, second) {
			return []string{first, second}
		}
	}
	return []string{first}
}

// svg draws it. The picture has a title for screen readers, alone and in a page.
func (c *chart) svg(p palette) string {
	var b strings.Builder
	height := headHeight + rowHeight*len(c.bars) + footHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" `+
		`font-family="system-ui,-apple-system,Segoe UI,sans-serif" font-size="13">`,
		chartWidth, height)
	fmt.Fprintf(&b, `<title>%s</title>`, html.EscapeString(c.description()))
	fmt.Fprintf(&b, `<text x="0" y="16" font-weight="600" style="fill:%s">%s `+
		`<tspan font-weight="400" style="fill:%s">· %s</tspan></text>`,
		p.ink, html.EscapeString(c.title), p.muted, c.hint)
	scale, cut := c.scale()
	c.drawGrid(&b, p, scale, height)
	for i, one := range c.bars {
		one.draw(&b, p, headHeight+i*rowHeight, scale, cut)
	}
	b.WriteString(`</svg>`)
	return b.String()
}

func (c *chart) description() string {
	var parts []string
	for _, b := range c.bars {
		parts = append(parts, b.name+" "+b.text)
	}
	return fmt.Sprintf("%s, %s: %s", c.title, c.hint, strings.Join(parts, ", "))
}

// scale is the value at the right end, and whether some bar is longer than that.
func (c *chart) scale() (most float64, cut bool) {
	var next float64
	for _, b := range c.bars {
		switch v := b.value.Median; {
		case v > most:
			most, next = v, most
		case v > next:
			next = v
		}
	}
	if next > 0 && most > outstanding*next {
		return next * 1.6, true
	}
	if most <= 0 {
		return 1, false
	}
	return most * 1.05, false
}

// drawGrid has lines at round numbers, three to five of them.
func (c *chart) drawGrid(b *strings.Builder, p palette, scale float64, height int) {
	step := roundStep(scale)
	digits := max(0, -int(math.Floor(math.Log10(step))))
	for v := 0.0; v <= scale; v += step {
		x := nameWidth + barRoom*v/scale
		fmt.Fprintf(b, `<path d="M%.1f %dV%d" style="stroke:%s"/>`, x, headHeight-4, height-footHeight, p.grid)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" font-size="11" text-anchor="middle" style="fill:%s">%s</text>`, x,
			headHeight-10, p.muted, grouped(v, digits))
	}
}

// roundStep is 1, 2 or 5 times a power of ten.
func roundStep(scale float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(scale/3)))
	for _, factor := range []float64{1, 2, 5} {
		if scale/(factor*power) <= 5 {
			return factor * power
		}
	}
	return 10 * power
}

func (one bar) draw(b *strings.Builder, p palette, y int, scale float64, cut bool) {
	colour, weight := p.rival, "400"
	switch {
	case one.ours:
		colour, weight = p.ours, "600"
	case one.limit:
		colour = p.limit
	}
	at := func(v float64) float64 { return nameWidth + barRoom*min(v/scale, 1) }
	middle := float64(y) + rowHeight/2
	fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end" font-weight="%s" style="fill:%s">%s</text>`,
		nameWidth-10, middle+4.5, weight, p.ink, html.EscapeString(one.name))
	end := at(one.value.Median)
	fmt.Fprintf(b, `<rect x="%d" y="%.1f" width="%.1f" height="%d" rx="2" style="fill:%s"/>`,
		nameWidth, middle-barHeight/2, max(end-nameWidth, 1), barHeight, colour)
	if cut && one.value.Median > scale { // it goes on
		fmt.Fprintf(b, `<path d="M%.1f %.1fl6 8l-6 8" style="fill:none;stroke:%s;stroke-width:2"/>`, end+3,
			middle-barHeight/2, colour)
		end += 8
	} else if from, to := at(one.value.Min), at(one.value.Max); to-from > 1 {
		fmt.Fprintf(b, `<path d="M%.1f %.1fH%.1fM%.1f %.1fv6M%.1f %.1fv6" style="stroke:%s;fill:none" opacity="0.75"/>`,
			from, middle, to, from, middle-3, to, middle-3, p.ink)
		end = max(end, to)
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" style="fill:%s">%s <tspan style="fill:%s">%s</tspan></text>`,
		end+7, middle+4.5, p.ink, one.text, p.muted, one.ratio)
}

// grouped is a number whose thousands are set apart.
func grouped(v float64, digits int) string {
	text := strconv.FormatFloat(v, 'f', digits, 64)
	whole, fraction, _ := strings.Cut(text, ".")
	if len(whole) < 5 {
		return text
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		return whole + "." + fraction
	}
	return whole
}
