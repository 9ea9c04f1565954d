package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// An article is one of those that the project answers, with what its tables say. "run origin-a"
// measures its scenarios.
type article struct {
	name, about string
	claims      []claim
}

// A claim is a line of an article's table: what the usual way and the article's own needed, and
// where the same is measured here.
type claim struct {
	what          string
	usual, better string  // as the article has them
	ratio         float64 // of better to usual; 0: the article gives none
	scenario      string
	metric        string
	reference     string // the server that is the usual way
	ours          string
}

var articles = []article{
	{"origin-a", "A non-blocking HTTP server for Go (2021): gin with 20,000 connections, on the standard library " +
		"and on an engine", []claim{
		{"goroutines", "20,000+", "119", 119.0 / 20_000, "gin-20k", "goroutines", "gin", "gin-web"},
		{"memory, MB", "600+", "60+", 0.1, "gin-20k", "rss_peak_mb", "gin", "gin-web"},
		{"p99, ms", "543", "191", 191.0 / 543, "gin-20k", "p99_ms", "gin", "gin-web"},
		{"requests per second", "112,700", "138,000", 138.0 / 112.7, "gin-20k", "rate", "gin", "gin-web"},
	}},
	{"origin-b", "High concurrency in Go: pools, queues, push at three million connections", []claim{
		{"100,000 tasks, MB", "32", "1", 1.0 / 32, "pool-100k", "rss_peak_mb", "go", "workers"},
		{"1 M tasks, MB", "490", "11", 11.0 / 490, "pool-1m", "rss_peak_mb", "go", "workers"},
		{"10 M tasks, MB", "crash", "15", 0, "pool-10m", "rss_peak_mb", "go", "workers"},
		{"WebSocket upgrade, ns", "5,156", "973", 973.0 / 5156, "ws-upgrade", "each_ns", "gorilla", "websocket"},
		{"WebSocket upgrade, bytes", "8,600", "0", 0, "ws-upgrade", "alloc_bytes", "gorilla", "websocket"},
		{"WebSocket upgrade, allocations", "9", "0", 0, "ws-upgrade", "mallocs", "gorilla", "websocket"},
		{"WebSocket connection, bytes", "65,000", "10,000", 10.0 / 65, "idle-ws", "conn_bytes", "gorilla", "websocket"},
		{"subscriber of a push server, bytes", "25,000", "19,500", 19.5 / 25, "push-idle", "conn_bytes", "net/http",
			"push"},
	}},
	{"origin-c", "net/http against fasthttp (2021): an advantage of 30 to 70 %, with 200 to 16,000 connections",
		[]claim{
			against("requests per second, 100 connections", "http-100"),
			against("requests per second, 1,000", "http-1000"),
			against("requests per second, 8,000", "http-8000"),
			against("requests per second, 16,000", "http-16000"),
		}},
	{"origin-d", "An event-loop HTTP client (Ruby): 1,000 requests to a server that answers after a second", []claim{
		{"seconds, a thread or goroutine each", "2.33", "1.32", 1.32 / 2.33, "client-1k", "seconds", "net/http-client",
			"client"},
		{"seconds, in series; here with 10 ms", "1,017", "1.32", 1.32 / 1017, "origin-d", "seconds", "series",
			"client"},
	}},
	{"origin-e", "Frameworks of storage servers (C++): SET by 100 clients, on I/O threads and workers", []claim{
		{"CPU of a SET, µs", absent, absent, 0, "resp-set", "cpu_us", "redcon", "resp"},
		{"p99 of the others beside 1 % that sleep 5 ms, by undisturbed", absent, "“kept”", 0, "resp-slow-1pct",
			"times_alone", "redcon", "resp"},
	}},
}

func against(what, scenario string) claim {
	return claim{what, "1", "1.3–1.7", 0, scenario, "rate", "net/http", "web"}
}

// scenarios are those of the article's claims, each once.
func (a article) scenarios() (names []string) {
	seen := map[string]bool{}
	for _, c := range a.claims {
		if !seen[c.scenario] {
			names = append(names, c.scenario)
		}
		seen[c.scenario] = true
	}
	return names
}

// expand replaces the names of articles by those of their scenarios.
func expand(names []string) (all []string) {
	for _, name := range names {
		replaced := []string{name}
		if several, ok := together[name]; ok {
			replaced = several
		}
		for _, a := range articles {
			if a.name == name {
				replaced = a.scenarios()
			}
		}
		all = append(all, replaced...)
	}
	return all
}

var articleHead = []string{"", "article: before", "after", "ratio", "here: the usual way", "fasthttp", "ours", "ratio",
	"scenario"}

// rows are the article's claims with what was measured here. Without a measurement there is none.
func (a article) rows(find func(scenario string) *outcome) (rows [][]string) {
	for _, c := range a.claims {
		row := []string{c.what, c.usual, c.better, ratioText(c.ratio), absent, absent, absent, absent, c.scenario}
		if o := find(c.scenario); o != nil {
			c.measured(o, row)
		}
		rows = append(rows, row)
	}
	return rows
}

func (c claim) measured(o *outcome, row []string) {
	m, _ := findMetric(c.metric)
	median := func(name string) (float64, bool) {
		s := o.find(name)
		if s == nil {
			return 0, false
		}
		v, ok := s.Summary[c.metric]
		return v.Median, ok
	}
	usual, ok1 := median(c.reference)
	ours, ok2 := median(c.ours)
	if ok1 {
		row[4] = grouped(usual, m.digits) + " (" + c.reference + ")"
	}
	if between, ok := median("fasthttp"); ok {
		row[5] = grouped(between, m.digits)
		if ok1 && usual > 0 {
			row[5] += " (× " + ratioText(between/usual) + ")"
		}
	}
	if ok2 {
		row[6] = grouped(ours, m.digits) + " (" + c.ours + ")"
	}
	if ok1 && ok2 && usual > 0 {
		row[7] = ratioText(ours / usual)
	}
}

func ratioText(v float64) string {
	switch {
	case v == 0:
		return absent
	case v < 0.1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func finder(all []*results) func(string) *outcome {
	return func(name string) *outcome {
		for _, r := range all {
			for i := range r.Scenarios {
				if r.Scenarios[i].Name == name {
					return &r.Scenarios[i]
				}
			}
		}
		return nil
	}
}

// markdownArticles is the tables of the articles, side by side with what was measured.
func markdownArticles(w io.Writer, all []*results) error {
	var b strings.Builder
	for _, a := range articles {
		head, rows := withoutEmpty(articleHead, a.rows(finder(all)))
		rule := make([]string, len(head))
		for i := range rule {
			rule[i] = "--:"
		}
		rule[0] = "---"
		fmt.Fprintf(&b, "\n### %s\n%s.\n\n%s%s", a.name, a.about, markdownRow(head), markdownRow(rule))
		for _, row := range rows {
			b.WriteString(markdownRow(row))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// withoutEmpty leaves columns out in which nothing stands.
func withoutEmpty(head []string, rows [][]string) ([]string, [][]string) {
	pick := func(row []string, keep []bool) (kept []string) {
		for i, cell := range row {
			if keep[i] {
				kept = append(kept, cell)
			}
		}
		return kept
	}
	keep := make([]bool, len(head))
	for i := range head {
		for _, row := range rows {
			keep[i] = keep[i] || row[i] != absent
		}
	}
	var kept [][]string
	for _, row := range rows {
		kept = append(kept, pick(row, keep))
	}
	return pick(head, keep), kept
}
