package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
)

// page is self-contained: no script, nothing from elsewhere.
//
//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

type pageRow struct {
	Ours  bool
	Cells []string
}

// A pageGrid is a table with its charts.
type pageGrid struct {
	Name, Asks, Rows, Terms string
	Charts                  []template.HTML // of our own making: chart escapes the names in it
	Head, Remarks           []string
	Body                    []pageRow
}

type pageRun struct {
	Machine machine
	Began   string
	Grids   []pageGrid
}

type pageData struct {
	Runs        []pageRun
	VerdictHead []string
	Verdicts    [][]string
	Articles    []pageGrid
}

// writeHTML makes one page of any number of files of results.
func writeHTML(w io.Writer, all []*results) error {
	data := pageData{VerdictHead: verdictHead}
	for _, v := range verdicts(all) {
		data.Verdicts = append(data.Verdicts, v.cells())
	}
	for _, a := range articles {
		head, rows := withoutEmpty(articleHead, a.rows(finder(all)))
		one := pageGrid{Name: a.name, Asks: a.about, Head: head}
		for _, row := range rows {
			one.Body = append(one.Body, pageRow{false, row})
		}
		data.Articles = append(data.Articles, one)
	}
	for _, r := range all {
		run := pageRun{Machine: r.Machine, Began: r.Began.Format("2 January 2006 15:04 UTC")}
		for i := range r.Scenarios {
			run.Grids = append(run.Grids, newPageGrid(r, &r.Scenarios[i]))
		}
		data.Runs = append(data.Runs, run)
	}
	return page.Execute(w, data)
}

func newPageGrid(r *results, o *outcome) pageGrid {
	g := tabulate(r, o)
	one := pageGrid{Name: o.Name, Asks: o.Asks, Rows: o.Rows, Terms: g.terms, Head: g.head, Remarks: g.remark}
	for j, row := range g.rows {
		one.Body = append(one.Body, pageRow{g.ours[j], row})
	}
	for _, c := range chartsOf(o) {
		one.Charts = append(one.Charts, template.HTML(c.svg(pagePalette)))
	}
	return one
}

// pictures are the scenarios whose first chart documents show.
var pictures = []string{"idle-http", "gin-20k", "ws-broadcast", "push-idle", "overload-http", "overload-push", "storm",
	"crowd-72k"}

// writePictures makes NAME-light.svg and NAME-dark.svg of each that was measured.
func writePictures(folder string, all []*results) error {
	for _, name := range pictures {
		o := finder(all)(name)
		if o == nil {
			continue
		}
		charts := chartsOf(o)
		if len(charts) == 0 {
			continue
		}
		for theme, p := range map[string]palette{"light": lightPalette, "dark": darkPalette} {
			file := filepath.Join(folder, fmt.Sprintf("%s-%s.svg", name, theme))
			err := toFile(file, func(w io.Writer) error {
				_, err := io.WriteString(w, charts[0].svg(p)+"\n")
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
