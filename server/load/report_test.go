package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

// testReport is of a run of ten seconds with a thousand replies, of 1 to 1000 ms.
func testReport() *Report {
	r := newReport(Plan{Kind: HTTP, URL: "http://127.0.0.1/<script>"}.withDefaults())
	r.Open, r.Opening, r.Elapsed, r.CPU, r.Workers = 100, 20*time.Millisecond, 10*time.Second, time.Second, 1
	r.Total.Requests = 1000
	for i := range int64(1000) {
		r.Total.Latency.Record(time.Duration(i+1)*time.Millisecond, 1)
	}
	r.Total.fail("status 503", 7)
	for i := range 30 {
		r.Moments = append(r.Moments, Moment{At: time.Duration(i) * time.Second, Rate: float64(i),
			P50: time.Millisecond})
	}
	return r
}

func TestReportSaysWhatWasMeasured(t *testing.T) {
	var text bytes.Buffer
	if err := testReport().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"100 connections", "990", "100 a second", "7 errors: status 503 (7)"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in:\n%s", want, text.String())
		}
	}
}

func TestReportOfPushSaysWhatSubscribersNoticed(t *testing.T) {
	r := newReport(Plan{Kind: Push, URL: "http://127.0.0.1/"}.withDefaults())
	r.Total.Lost, r.Total.Push.Silence = 3, 120*time.Millisecond
	r.Total.Push.Delivery.Record(250*time.Millisecond, 1)
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	want := "3 connections were lost; the longest pause of a delivery was 250.1ms, the longest silence 120ms"
	if !strings.Contains(text.String(), want) {
		t.Errorf("%q is not in:\n%s", want, text.String())
	}
	if m, err := r.metric("silence"); err != nil || m.Value != 120 || m.Unknown {
		t.Errorf("silence: %+v, %v", m, err)
	}
}

func TestReportsSurviveJSON(t *testing.T) {
	before := testReport()
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	var after Report
	if err := json.Unmarshal(text, &after); err != nil {
		t.Fatal(err)
	}
	a, b := before.Metrics(), after.Metrics()
	for i := range a {
		if a[i] != b[i] {
			t.Errorf("%v became %v", a[i], b[i])
		}
	}
	var out bytes.Buffer
	if err := WriteComparison(&out, before, &after); err != nil || !strings.Contains(out.String(), "1.00") {
		t.Errorf("error %v in:\n%s", err, out.String())
	}
}

func TestPageStandsAlone(t *testing.T) {
	var page bytes.Buffer
	if err := testReport().WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if strings.Count(text, "<svg") != 3 {
		t.Errorf("%d charts, want 3", strings.Count(text, "<svg"))
	}
	for _, bad := range []string{"<script", "src=", "@import", "<link"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q is in the page", bad)
		}
	}
}

func TestLimitsOfAReport(t *testing.T) {
	for _, test := range []struct {
		text   string
		parses bool
		holds  bool
	}{
		{"p99>50ms", true, true}, {"p99>2s", true, false}, {"errors>0", true, true}, {"errors > 7", true, false},
		{"rate<1000", true, true}, {"rate<10", true, false}, {"p99", false, false}, {"p99>soon", false, false},
		{"p98>1ms", true, true}, // there is no such figure
	} {
		l, err := ParseLimit(test.text)
		if (err == nil) != test.parses {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		if err := l.Check(testReport()); test.parses && (err != nil) != test.holds {
			t.Errorf("%q: %v", test.text, err)
		}
	}
}

// A storm that is not over when the run ends took at least as long as it has lasted by then.
func TestLimitOfReturns(t *testing.T) {
	r := newReport(Plan{Kind: Push, Storm: time.Second}.withDefaults())
	r.Total.Push.Returns, r.Total.Push.Away = []time.Duration{time.Second}, time.Minute
	l, _ := ParseLimit("return>2s")
	if err := l.Check(r); err == nil || !strings.Contains(err.Error(), "60000 ms") {
		t.Errorf("the limit on a storm that lasts a minute: %v", err)
	}
}

// A limit fails if the run has nothing to test it with. What is counted is known without that.
func TestLimitsOfARunWithoutReplies(t *testing.T) {
	r := newReport(Plan{Kind: Push, Storm: time.Second}.withDefaults())
	r.CPU = time.Second
	r.finish(newSpreads(r.Plan))
	for text, unknown := range map[string]bool{
		"p99>1s": true, "max<1h": true, "cpu>1000": true, "return>1s": true,
		"delivery-p50>1s": true, "last-p99.9>1s": true,
		"errors>0": false, "missing>0": false, "rate>1": false, "deliveries>1": false,
	} {
		l, err := ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Check(r); (err != nil) != unknown || unknown && !strings.Contains(err.Error(), "be measured") {
			t.Errorf("%s: %v", text, err)
		}
	}
	var out, back, page bytes.Buffer
	if err := errors.Join(WriteComparison(&out, testReport(), r), WriteComparison(&back, r, testReport()),
		r.WriteHTML(&page)); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`p99 +990\S* +– +– +ms`).Match(out.Bytes()) {
		t.Errorf("the comparison of p99 with one that is unknown is not in:\n%s", out.String())
	}
	if !regexp.MustCompile(`cpu +– +1000 +– `).Match(back.Bytes()) {
		t.Errorf("the comparison of an unknown cpu with a known one is not in:\n%s", back.String())
	}
	if !strings.Contains(page.String(), "<td>p99<td>–<td>ms") {
		t.Error("the page does not show that p99 is unknown")
	}
}

// The names of a push report are known before it is made.
func TestLimitsOfAPlan(t *testing.T) {
	for text, applies := range map[string]bool{
		"errors>0": true, "last-p99>1s": true, "missing>0": true, "return>1s": false, "slowness>1": false,
	} {
		l, err := ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Applies(Plan{Kind: Push}); (err == nil) != applies {
			t.Errorf("%s: %v", text, err)
		}
	}
	l, _ := ParseLimit("return>1s")
	if err := l.Applies(Plan{Kind: Push, Storm: 1}); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"p99>1s", "cpu>1"} {
		l, _ = ParseLimit(text)
		if err := l.Applies(Plan{Kind: Idle}); err == nil {
			t.Errorf("%s applies to connections that send nothing", text)
		}
	}
}

func TestVerdictNamesThisSide(t *testing.T) {
	r := testReport()
	if why := r.judge(); len(why) != 0 {
		t.Errorf("a run with one of ten processors busy was judged %q", why)
	}
	r.CPU = 1000 * time.Second
	r.Total.Late.Record(2*time.Second, 1000)
	if why := r.judge(); len(why) != 2 {
		t.Errorf("a run whose workers were busy and late was judged %q", why)
	}
}

func TestMomentsAreBounded(t *testing.T) {
	r := newReport(Plan{Kind: HTTP})
	s := newSample()
	s.Requests = 10
	for i := range 10 * mostMoments {
		r.moment(Running, r.Started.Add(time.Duration(i)*time.Second), s, time.Second)
	}
	if len(r.Moments) >= mostMoments || r.Moments[0].Rate != 10 {
		t.Errorf("%d moments, the first with a rate of %g", len(r.Moments), r.Moments[0].Rate)
	}
}

func TestReasonsAreBounded(t *testing.T) {
	s := newSample()
	for i := range 1000 {
		s.fail(strings.Repeat("x", i), 1)
	}
	if len(s.Failed) > mostReasons+1 || s.failures() != 1000 {
		t.Errorf("%d reasons for %d failures", len(s.Failed), s.failures())
	}
}

func TestViewsOfARun(t *testing.T) {
	p := Progress{Phase: Running, Since: time.Second, Open: 5, Wanted: 7, Total: testReport().Total,
		Recent: testReport().Total,
		Period: time.Second}
	var plain, terminal bytes.Buffer
	v := NewView(&plain, 0)
	v.Show(p)
	v.Show(p) // within the same second
	if got := plain.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got,
		"5 of 7 connections, 1000 requests") {
		t.Errorf("without a terminal: %q", got)
	}
	v = NewView(&terminal, 60)
	v.Show(p)
	v.Show(p)
	v.Clear()
	for line := range strings.SplitSeq(terminal.String(), "\n") {
		if n := len([]rune(line)); n > 70 { // with what moves the cursor
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
	if got := terminal.String(); strings.Count(got, "\x1b[J") != 2 || !strings.Contains(got, "█") {
		t.Errorf("in a terminal: %q", got)
	}
}

func TestPlansThatCannotBe(t *testing.T) {
	good := Plan{Kind: HTTP, URL: "http://127.0.0.1:1/", Duration: time.Second}.withDefaults()
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Plan){
		"kind of load":  func(p *Plan) { p.Kind = "udp" },
		"write http://": func(p *Plan) { p.URL = "ftp://x" },
		"duration":      func(p *Plan) { p.Duration = 0 },
		"connections":   func(p *Plan) { p.Connections = -1 },
		"header":        func(p *Plan) { p.Header = []string{"a\r\nb: c"} },
		"source":        func(p *Plan) { p.Sources = []string{"localhost"} },
		"publications":  func(p *Plan) { p.Kind, p.Size = Push, 10 },
		"made again":    func(p *Plan) { p.Kind, p.Protocol, p.Retry = Push, Mercure, true },
	} {
		p := good
		change(&p)
		if err := p.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error was %v, want one with %q", err, want)
		}
	}
}

func TestOnlyThisMachineIsLoaded(t *testing.T) {
	for at, allowed := range map[string]bool{"http://127.0.0.1:1/": true, "http://[::1]:1/": true,
		"http://192.0.2.1/": false, "http://[2001:db8::1]/": false} {
		if err := Guard(t.Context(), Plan{Kind: HTTP, URL: at}); (err == nil) != allowed {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func TestPartsAddUp(t *testing.T) {
	p := Plan{Kind: HTTP, Connections: 10, Rate: 90, Sources: []string{"127.0.0.2", "127.0.0.3", "127.0.0.4",
		"127.0.0.5"}}
	connections, rate, sources := 0, 0.0, map[string]bool{}
	for i := range 3 {
		s := p.share(i, 3)
		connections += s.Connections
		rate += s.Rate
		for _, source := range s.Sources {
			sources[source] = true
		}
	}
	if connections != 10 || rate != 90 || len(sources) != 4 {
		t.Errorf("%d connections, a rate of %g, %d sources", connections, rate, len(sources))
	}
}
