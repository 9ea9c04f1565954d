package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A figure is a line of the table on the project's first page: the same quantity of a rival and of
// ours, by scenario.
type figure struct {
	what, chinese string
	scenario      string
	metric        string
	rival, ours   string
}

var figures = []figure{
	{"memory for a kept HTTP connection", "一条保持的 HTTP 连接的内存", "idle-http", "conn_bytes", "net/http", "web"},
	{"for a WebSocket", "一条 WebSocket 的内存", "idle-ws", "conn_bytes", "gorilla", "websocket"},
	{"for a subscriber of the push server", "推送服务器一个订阅者的内存", "push-idle", "conn_bytes", "gws", "push"},
	{"for a kept TLS connection", "一条保持的 TLS 连接的内存", "tls-idle", "conn_bytes", "net/http", "web"},
	{"peak memory of gin with 20,000 connections", "gin 承载 20,000 条连接时的内存峰值", "gin-20k", "rss_peak_mb", "gin",
		"gin-web"},
	{"CPU for each of its requests", "其中每个请求的 CPU", "gin-20k", "cpu_us", "gin", "gin-web"},
}

// What is between these lines of a first page is made from results.
const (
	figuresBegin = "<!-- figures: begin, made by: go run ./bench report --update -->\n"
	figuresEnd   = "<!-- figures: end -->\n"
)

// figuresTable is that table, without what was not measured.
func figuresTable(all []*results, chinese bool) string {
	head := []string{"", "with Myriad", "without", "scenario"}
	if chinese {
		head = []string{"", "使用 Myriad", "不使用", "场景"}
	}
	var b strings.Builder
	b.WriteString("\n" + markdownRow(head) + markdownRow([]string{"---", "--:", "--:", "---"}))
	for _, f := range figures {
		o := finder(all)(f.scenario)
		if o == nil {
			continue
		}
		rival, ok1 := f.show(o, f.rival)
		ours, ok2 := f.show(o, f.ours)
		if !ok1 || !ok2 {
			continue
		}
		what := f.what
		if chinese {
			what = f.chinese
		}
		b.WriteString(markdownRow([]string{what, ours, rival + " (" + f.rival + ")", "`" + f.scenario + "`"}))
	}
	return b.String() + "\n"
}

func (f figure) show(o *outcome, name string) (string, bool) {
	s := o.find(name)
	if s == nil {
		return "", false
	}
	v, ok := s.Summary[f.metric]
	switch {
	case f.metric == "conn_bytes" && v.Median >= 1000:
		return fmt.Sprintf("%.1f kB", v.Median/1000), ok
	case f.metric == "conn_bytes":
		return fmt.Sprintf("%.0f B", v.Median), ok
	case f.metric == "rss_peak_mb":
		return fmt.Sprintf("%.0f MB", v.Median), ok
	}
	return fmt.Sprintf("%.1f µs", v.Median), ok
}

// A document has parts that are made from results.
type document struct {
	name       string
	begin, end string
	text       func(all []*results) (string, error)
}

// What is between these lines of a document is made by the model.
const (
	modelBegin = "<!-- model: begin, made by: go run ./bench report --update -->\n"
	modelEnd   = "<!-- model: end -->\n"
)

// documents are all there are, below the root of the repository.
var documents = []document{
	{"docs/BENCHMARKS.md", tablesBegin, tablesEnd, func(all []*results) (string, error) {
		var b strings.Builder
		err := writeMarkdown(&b, all)
		return b.String(), err
	}},
	{"README.md", figuresBegin, figuresEnd, func(all []*results) (string,
		error) {
		return figuresTable(all, false), nil
	}},
	{"README.zh-CN.md", figuresBegin, figuresEnd, func(all []*results) (string,
		error) {
		return figuresTable(all, true), nil
	}},
	{"docs/C10M.md", modelBegin, modelEnd, func(all []*results) (string, error) {
		return tenMillion.markdown(all), nil
	}},
}

// updated is the document with its part made anew.
func (d document) updated(root string, all []*results) (old, fresh string, err error) {
	text, err := os.ReadFile(filepath.Join(root, d.name))
	if err != nil {
		return "", "", err
	}
	part, err := d.text(all)
	if err != nil {
		return "", "", err
	}
	fresh, err = splice(string(text), part, d.begin, d.end)
	if err != nil {
		err = fmt.Errorf("%s: %w", d.name, err)
	}
	return string(text), fresh, err
}

// update makes everything anew that documents show of results. It is for the root of the
// repository, or for this module's folder.
func update(all []*results) error {
	root := "."
	if _, err := os.Stat(documents[0].name); err != nil {
		root = ".."
	}
	for _, d := range documents {
		_, fresh, err := d.updated(root, all)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, d.name), []byte(fresh), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return writePictures(filepath.Join(root, "docs/charts"), all)
}
