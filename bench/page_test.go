//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Charts are well-formed, and have every server and every value in them.
func TestChart(t *testing.T) {
	_, o := example()
	o.Servers[1].Name = `b<&">`
	for _, p := range []palette{pagePalette, lightPalette, darkPalette} {
		charts := chartsOf(o)
		if len(charts) != 1 || charts[0].(*chart).title != "server CPU µs" {
			t.Fatalf("%d charts", len(charts))
		}
		svg := charts[0].svg(p)
		d := xml.NewDecoder(strings.NewReader(svg))
		for _, err := d.Token(); !errors.Is(err, io.EOF); _, err = d.Token() {
			if err != nil {
				t.Fatalf("%v in %s", err, svg)
			}
		}
		for _, want := range []string{">a<", "b&lt;&amp;", "11.00", "5.00", "× 0.50", p.ours, p.rival,
			"less is better"} {
			if !strings.Contains(svg, want) {
				t.Errorf("no %q in %s", want, svg)
			}
		}
	}
}

// A course is drawn as a line for each server, in the outcome's own order, and is kept in files.
func TestCourseChart(t *testing.T) {
	_, o := example()
	o.Servers[0].Course = course{{1, 500}, {2.5, 20_000}, {4, 20_000}}
	o.Servers[1].Course = course{{1, 500}, {2, 20_000}}
	o.Servers[1].Name, o.Servers[2].Course = `b<&">`, course{{1, 5}}
	text, err := json.Marshal(o.Servers)
	if err != nil || !strings.Contains(string(text), `"1 500, 2.5 20000, 4 20000"`) {
		t.Fatalf("%v: %s", err, text)
	}
	o.Servers = nil
	if err := json.Unmarshal(text, &o.Servers); err != nil {
		t.Fatal(err)
	}
	charts := chartsOf(o)
	if len(charts) != 2 {
		t.Fatalf("%d charts", len(charts))
	}
	for _, p := range []palette{pagePalette, lightPalette, darkPalette} {
		svg := charts[0].svg(p)
		d := xml.NewDecoder(strings.NewReader(svg))
		for _, err := d.Token(); !errors.Is(err, io.EOF); _, err = d.Token() {
			if err != nil {
				t.Fatalf("%v in %s", err, svg)
			}
		}
		for _, want := range []string{">a <", "b&lt;&amp;", "20,000", ">4 s<", "connections held", p.ours, p.rival} {
			if !strings.Contains(svg, want) {
				t.Errorf("no %q in %s", want, svg)
			}
		}
	}
	lines := charts[0].(*lineChart)
	if at := lines.places(func(v float64) float64 { return v }); len(at) != 2 || at[1]-at[0] != lineApart {
		t.Errorf("the names are at %v", at)
	}
	for _, bad := range []string{"1", "1 x", "-1 5", "1 5,2 6", "NaN 1"} {
		if err := new(course).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is a course", bad)
		}
	}
}

// What is served under overload is drawn for each load.
func TestGoodputChart(t *testing.T) {
	o := outcome{Mode: string(overloading), Measures: []string{"served_10x"}, Servers: []serverOutcome{
		{Name: "a", Rounds: []sample{{"served_1x": 1, "served_2x": 0.5, "served_10x": 0.25}}},
		{Name: "b", Ours: true, Rounds: []sample{{"served_1x": 1, "served_2x": 0.9, "served_10x": 0.8}}},
	}}
	o.summarise()
	charts := chartsOf(&o)
	if len(charts) != 1 {
		t.Fatalf("%d charts", len(charts))
	}
	var got []string
	for _, b := range charts[0].(*chart).bars {
		got = append(got, b.name+" "+b.text)
	}
	want := []string{"a, 1 × 1.00", "a, 2 × 0.50", "a, 10 × 0.25", "b, 1 × 1.00", "b, 2 × 0.90", "b, 10 × 0.80"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A crowd has as many processes as descriptors want, and is planned whatever their limit is.
func TestCrowdIsPlanned(t *testing.T) {
	for _, tt := range []struct{ conns, most, want int }{{72_000, 18_750, 4}, {72_001, 18_750, 5}, {100, 18_750, 1},
		{72_000, 1000, 72}, {5, 0, 5}} {
		if got := crowdProcesses(tt.conns, tt.most); got != tt.want {
			t.Errorf("%d clients with %d descriptors: %d processes, want %d", tt.conns, tt.most, got, tt.want)
		}
	}
	s := selection{scenarios: expand([]string{"crowd"}), rounds: 1, duration: 1}
	plans, err := s.plan()
	if err != nil || len(plans) != len(together["crowd"]) {
		t.Fatal(len(plans), err)
	}
	for _, p := range plans {
		if p.skip != "" || p.drivers < 2 || p.reference != "centrifugo" {
			t.Errorf("%+v", p)
		}
	}
}

// A bar that would dwarf the others is shortened, and is labelled with its full value.
func TestChartScale(t *testing.T) {
	bars := func(values ...float64) *chart {
		c := &chart{}
		for _, v := range values {
			c.bars = append(c.bars, bar{value: spread{v, v, v}, text: grouped(v, 0)})
		}
		return c
	}
	for _, tt := range []struct {
		values []float64
		cut    bool
	}{{[]float64{1, 2, 3}, false}, {[]float64{1, 2, 2000}, true}, {[]float64{5}, false}, {[]float64{0, 0}, false},
		{[]float64{0, 9}, false}} {
		c := bars(tt.values...)
		scale, cut := c.scale()
		if cut != tt.cut || scale <= 0 || !cut && slices.Max(tt.values) > scale {
			t.Errorf("%v: scale %v, cut %v", tt.values, scale, cut)
		}
		if svg := c.svg(lightPalette); cut && !strings.Contains(svg, "2000") {
			t.Errorf("%v: %s", tt.values, svg)
		}
	}
	for v, want := range map[float64]string{0: "0", 1234: "1234", 12345: "12,345", 1234567: "1,234,567"} {
		if got := grouped(v, 0); got != want {
			t.Errorf("%v is %q, not %q", v, got, want)
		}
	}
}

// The page loads nothing: it opens offline.
func TestPageIsAlone(t *testing.T) {
	r, _ := example()
	var html bytes.Buffer
	if err := writeHTML(&html, []*results{r}); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(html.String(), `xmlns="http://www.w3.org/2000/svg"`, "")
	if found := regexp.MustCompile(`(?i)src=|<script|<link|@import|url\(|https?://`).FindString(text); found != "" {
		t.Errorf("the page has %q", found)
	}
	for _, want := range []string{"prefers-color-scheme: dark", "<svg", `<section id="x">`, "origin-a", "origin-b",
		"origin-c"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
}

// What articles claim can be measured here, and is found by the names that the claims have.
func TestArticles(t *testing.T) {
	for _, a := range articles {
		for _, c := range a.claims {
			i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == c.scenario })
			_, known := findMetric(c.metric)
			if i < 0 || !known || !slices.Contains(scenarios[i].servers, c.reference) ||
				!slices.Contains(scenarios[i].servers, c.ours) {
				t.Errorf("%s, %s: there is no such scenario, metric or server", a.name, c.what)
			}
		}
		s := selection{scenarios: expand([]string{a.name}), rounds: 1, duration: 1}
		if plans, err := s.plan(); err != nil || len(plans) != len(a.scenarios()) {
			t.Errorf("%s: %d plans, %v", a.name, len(plans), err)
		}
	}
	o := outcome{Name: "gin-20k", Reference: "gin", Measures: []string{"rate"}, Servers: []serverOutcome{
		{Name: "gin", Rounds: []sample{{"rate": 100, "goroutines": 20000}}},
		{Name: "gin-web", Ours: true, Rounds: []sample{{"rate": 150, "goroutines": 100}}},
	}}
	o.summarise()
	var md strings.Builder
	if err := markdownArticles(&md, []*results{{Scenarios: []outcome{o}}}); err != nil ||
		!strings.Contains(md.String(),
			"| goroutines | 20,000+ | 119 | 0.006 | 20,000 (gin) | 100 (gin-web) | 0.005 | gin-20k |") {
		t.Errorf("%v\n%s", err, &md)
	}
	if v, ok := verdictOf(&o); !ok || v.word != "ahead" || v.ratio != 1.5 {
		t.Errorf("%+v", v)
	}
}

// The pictures that documents show are those of the saved results.
func TestPictures(t *testing.T) {
	all, err := readAll(nil)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := writePictures(folder, all); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		want, err1 := os.ReadFile(name)
		got, err2 := os.ReadFile(filepath.Join("../docs/charts", filepath.Base(name)))
		if err1 != nil || err2 != nil || !bytes.Equal(want, got) {
			t.Errorf("docs/charts/%s is not of bench/results (%v): go run ./bench report --update",
				filepath.Base(name), errors.Join(err1, err2))
		}
	}
}

// What documents name like a scenario, in code, is one, or a server or an app of one.
func TestCitations(t *testing.T) {
	known, families := map[string]bool{}, map[string]bool{}
	for _, sc := range scenarios {
		family, _, _ := strings.Cut(sc.name, "-")
		known[sc.name], families[family] = true, true
		for _, name := range sc.servers {
			known[name], known[sc.speaking(server{name: name}).app] = true, true
		}
	}
	name := regexp.MustCompile("`([a-z]+)-[a-z0-9-]+`")
	found := 0
	files, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../README.md", "../README.zh-CN.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, cited := range name.FindAllStringSubmatch(string(text), -1) {
			if !families[cited[1]] {
				continue
			}
			found++
			if !known[strings.Trim(cited[0], "`")] {
				t.Errorf("%s names %s, and there is no such scenario", file, cited[0])
			}
		}
	}
	if found == 0 {
		t.Error("no document names a scenario")
	}
}
