package load

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"

	"github.com/wcharczuk/go-chart/v2"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// WriteHTML writes the report as one page with charts that opens without a network.
func (r *Report) WriteHTML(w io.Writer) error {
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		return err
	}
	rate, latency, err := r.overTime()
	if err != nil {
		return err
	}
	distribution, err := r.distribution()
	if err != nil {
		return err
	}
	return page.Execute(w, struct {
		Report  *Report
		Text    string
		Charts  []template.HTML
		Metrics []Metric
	}{r, text.String(), []template.HTML{rate, latency, distribution}, r.Metrics()})
}

// overTime charts the rate and the latencies.
func (r *Report) overTime() (rate, latency template.HTML, err error) {
	if len(r.Moments) < 2 {
		return "", "", nil // a line has two points
	}
	var at, rates, p50, p99 []float64
	for _, m := range r.Moments {
		at = append(at, m.At.Seconds())
		rates = append(rates, m.Rate)
		p50 = append(p50, float64(m.P50)/1e6)
		p99 = append(p99, float64(m.P99)/1e6)
	}
	if rate, err = draw("a second", "seconds", chart.ContinuousSeries{Name: "rate", XValues: at,
		YValues: rates}); err != nil {
		return "", "", err
	}
	latency, err = draw("latency, ms", "seconds", chart.ContinuousSeries{Name: "p50", XValues: at, YValues: p50},
		chart.ContinuousSeries{Name: "p99", XValues: at, YValues: p99})
	return rate, latency, err
}

// distribution charts latency by percentile: each step to the right leaves half as many above it.
func (r *Report) distribution() (template.HTML, error) {
	h := r.Total.Latency
	if r.Plan.Kind == Push {
		h = r.Total.Push.Delivery
	}
	if h.Count() < 2 {
		return "", nil
	}
	s := chart.ContinuousSeries{Name: "latency"}
	for step := 0.0; math.Exp2(-step)*float64(h.Count()) >= 1 && step < 24; step += 0.25 {
		s.XValues = append(s.XValues, step)
		s.YValues = append(s.YValues, float64(h.Quantile(1-math.Exp2(-step)))/1e6)
	}
	return draw("latency, ms", "halvings of what is above: 1 is p50, 6.6 is p99, 10 is p99.9", s)
}

// draw renders a chart as SVG.
func draw(y, x string, all ...chart.ContinuousSeries) (template.HTML, error) {
	c := chart.Chart{Width: 900, Height: 260,
		XAxis: chart.XAxis{Name: x, ValueFormatter: short}, YAxis: chart.YAxis{Name: y, ValueFormatter: short}}
	most := 0.0
	for _, s := range all {
		for _, v := range s.YValues {
			most = max(most, v)
		}
		c.Series = append(c.Series, s)
	}
	c.YAxis.Range = &chart.ContinuousRange{Min: 0, Max: max(most*1.05, 1e-3)}
	if len(all) > 1 {
		c.Elements = []chart.Renderable{chart.LegendLeft(&c)}
	}
	var b bytes.Buffer
	if err := c.Render(chart.SVG, &b); err != nil {
		return "", fmt.Errorf("drawing %s: %w", y, err)
	}
	return template.HTML(b.String()), nil //nolint:gosec // the names above are ours, all else are numbers
}

func short(v any) string { return fmt.Sprintf("%.4g", v) }
