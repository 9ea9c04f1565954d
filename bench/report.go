package main

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

// markdown writes the tables of a file of results.
func (r *results) markdown(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "\n%s, %d cores, Linux %s, %s; %s.\n", r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.Go,
		r.Began.Format("2 January 2006")); err != nil {
		return err
	}
	for i := range r.Scenarios {
		if err := tabulate(r, &r.Scenarios[i]).markdown(w, &r.Scenarios[i]); err != nil {
			return err
		}
	}
	return nil
}

func (g grid) markdown(w io.Writer, o *outcome) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s\n%s (rows %s)\n", o.Name, o.Asks, o.Rows)
	if g.terms != "" {
		fmt.Fprintf(&b, "%s.\n", g.terms)
	}
	if len(g.rows) > 0 {
		rule := slices.Repeat([]string{"--:"}, len(g.head))
		rule[0] = "---"
		b.WriteString("\n" + markdownRow(g.head) + markdownRow(rule))
		for i, row := range g.rows {
			if g.ours[i] {
				row = append([]string{"**" + row[0] + "**"}, row[1:]...)
			}
			b.WriteString(markdownRow(row))
		}
	}
	for _, remark := range g.remark {
		fmt.Fprintf(&b, "\n%s.\n", strings.TrimSuffix(remark, "."))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func markdownRow(cells []string) string {
	escaped := make([]string, len(cells))
	for i, c := range cells {
		escaped[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	return "| " + strings.Join(escaped, " | ") + " |\n"
}

// What is between these lines of a document is made from results.
const (
	tablesBegin = "<!-- tables: begin, made by: go run ./bench report --into docs/BENCHMARKS.md -->\n"
	tablesEnd   = "<!-- tables: end -->\n"
)

// splice puts tables between those lines.
func splice(document, tables string) (string, error) {
	before, rest, ok1 := strings.Cut(document, tablesBegin)
	_, after, ok2 := strings.Cut(rest, tablesEnd)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("the document has no line %q, or none %q after it", tablesBegin, tablesEnd)
	}
	return before + tablesBegin + tables + tablesEnd + after, nil
}

// page is self-contained: no script, nothing from elsewhere.
var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Myriad: benchmarks</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; color: #1b1b1f; background: #fff }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0 }
.wide { overflow-x: auto }
th, td { padding: .2rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
.ours td { background: #eaf3ff }
.ours td:first-child { font-weight: 600 }
.note { color: #666 }
h2 { margin: 2.2rem 0 0 }
@media (prefers-color-scheme: dark) {
 body { color: #e4e4e8; background: #16161a } th, td { border-color: #333 } .ours td { background: #14283f } .note { color: #999 }
}
</style>
<h1>Myriad: benchmarks</h1>
{{range .}}<p class="note">{{.Machine.CPU}}, {{.Machine.Cores}} cores, Linux {{.Machine.Kernel}}, {{.Machine.Go}}; {{.Began}}.
Figures are medians; behind the first one and behind ratios, the least and the most of all rounds. Ratios compare pairs of turns.</p>
{{range .Grids}}<h2>{{.Name}}</h2>
<p>{{.Asks}} <span class="note">({{.Rows}}) {{.Terms}}</span></p>
{{if .Body}}<div class="wide"><table><tr>{{range .Head}}<th>{{.}}{{end}}
{{range .Body}}<tr{{if .Ours}} class="ours"{{end}}>{{range .Cells}}<td>{{.}}{{end}}
{{end}}</table></div>{{end}}
{{range .Remarks}}<p class="note">{{.}}</p>
{{end}}{{end}}{{end}}</html>
`))

type pageRow struct {
	Ours  bool
	Cells []string
}

type pageGrid struct {
	Name, Asks, Rows, Terms string
	Head, Remarks           []string
	Body                    []pageRow
}

type pageRun struct {
	Machine machine
	Began   string
	Grids   []pageGrid
}

// writeHTML makes one page of any number of files of results.
func writeHTML(w io.Writer, all []*results) error {
	var runs []pageRun
	for _, r := range all {
		run := pageRun{Machine: r.Machine, Began: r.Began.Format("2 January 2006 15:04 UTC")}
		for i := range r.Scenarios {
			o := &r.Scenarios[i]
			g := tabulate(r, o)
			one := pageGrid{Name: o.Name, Asks: o.Asks, Rows: o.Rows, Terms: g.terms, Head: g.head, Remarks: g.remark}
			for j, row := range g.rows {
				one.Body = append(one.Body, pageRow{g.ours[j], row})
			}
			run.Grids = append(run.Grids, one)
		}
		runs = append(runs, run)
	}
	return page.Execute(w, runs)
}
