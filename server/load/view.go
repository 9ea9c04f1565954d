package load

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A View shows how a run goes: in a terminal a few lines that it draws again and again, elsewhere a
// plain line each second.
type View struct {
	w        io.Writer
	terminal bool
	width    int
	drawn    int // lines
	last     time.Time
	rates    []float64 // of the last periods
}

// NewView returns a View that writes to w. width is how many columns the terminal has; 0: w is no
// terminal.
func NewView(w io.Writer, width int) *View {
	return &View{w: w, terminal: width > 0, width: max(width, 40)}
}

const plainEvery = time.Second

// Show shows a Progress. It is for Options.Watch.
func (v *View) Show(p Progress) {
	v.rates = append(v.rates, rateOf(p))
	if keep := v.width - 24; len(v.rates) > keep {
		v.rates = v.rates[len(v.rates)-keep:]
	}
	if v.terminal {
		v.draw(v.lines(p))
		return
	}
	if now := time.Now(); now.Sub(v.last) >= plainEvery {
		v.last = now
		fmt.Fprintf(v.w, "%s %s: %s\n", p.Phase, round(p.Since), v.summary(p))
	}
}

// Clear removes what was drawn, before the report is written.
func (v *View) Clear() { v.draw(nil) }

// draw replaces the lines drawn before.
func (v *View) draw(lines []string) {
	if !v.terminal {
		return
	}
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", v.drawn) // up, and erase what is below
	}
	for _, line := range lines {
		if r := []rune(line); len(r) > v.width-1 {
			line = string(r[:v.width-1])
		}
		b.WriteString(line)
		b.WriteByte('\n')
	}
	v.drawn = len(lines)
	_, _ = io.WriteString(v.w, b.String())
}

func (v *View) lines(p Progress) []string {
	lines := []string{
		fmt.Sprintf("%-20s %s", p.Phase, round(p.Since)),
		fmt.Sprintf("%-20s %d of %d", "connections", p.Open, p.Wanted),
		fmt.Sprintf("%-20s %s", "a second", v.summaryRate(p)),
		fmt.Sprintf("%-20s %s", "", spark(v.rates)),
	}
	for _, h := range histogramsOf(p.Total) {
		lines = append(lines, fmt.Sprintf("%-20s p50 %s   p99 %s   most %s", h.name, round(h.h.Quantile(0.5)),
			round(h.h.Quantile(0.99)), round(h.h.Max())))
	}
	if push := p.Total.Push; push.Deliveries > 0 {
		lines = append(lines, fmt.Sprintf("%-20s %d missing, %d twice, %d out of order", "deliveries", push.Missing,
			push.Duplicates, push.Late))
	}
	if p.Total.failures() > 0 {
		lines = append(lines, fmt.Sprintf("%-20s %s", "errors", p.Total.reasons()))
	}
	return lines
}

type namedHistogram struct {
	name string
	h    *Histogram
}

// histogramsOf are those of a sample that have counted something.
func histogramsOf(s *Sample) (all []namedHistogram) {
	for _, h := range []namedHistogram{{"latency", s.Latency}, {"delivery", s.Push.Delivery}} {
		if h.h.Count() > 0 {
			all = append(all, h)
		}
	}
	return all
}

func (v *View) summary(p Progress) string {
	text := fmt.Sprintf("%d of %d connections, %s", p.Open, p.Wanted, v.summaryRate(p))
	for _, h := range histogramsOf(p.Recent) {
		text += fmt.Sprintf(", %s p50 %s p99 %s", h.name, round(h.h.Quantile(0.5)), round(h.h.Quantile(0.99)))
	}
	if n := p.Total.failures(); n > 0 {
		text += fmt.Sprintf(", %d errors", n)
	}
	return text
}

func (v *View) summaryRate(p Progress) string {
	text := fmt.Sprintf("%.0f requests", perSecond(p.Recent.Requests, p.Period))
	if p.Recent.Push.Deliveries > 0 {
		text += fmt.Sprintf(", %.0f deliveries", perSecond(p.Recent.Push.Deliveries, p.Period))
	}
	return text
}

// rateOf is what the spark line shows of a period.
func rateOf(p Progress) float64 {
	return perSecond(max(p.Recent.Requests, p.Recent.Push.Deliveries), p.Period)
}

// spark draws values as a line of blocks, the largest one full.
func spark(values []float64) string {
	blocks := []rune(" ▁▂▃▄▅▆▇█")
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	line := make([]rune, len(values))
	for i, v := range values {
		line[i] = blocks[0]
		if most > 0 {
			line[i] = blocks[int(v/most*float64(len(blocks)-1)+0.5)]
		}
	}
	return string(line)
}
