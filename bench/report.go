package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// markdown writes the tables of a file of results.
func (r *results) markdown(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "\n%s, %d cores, Linux %s, %s; %s.\n", r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel,
		r.Machine.Go,
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
	tablesBegin = "<!-- tables: begin, made by: go run ./bench report --update -->\n"
	tablesEnd   = "<!-- tables: end -->\n"
)

// splice puts a part between two lines.
func splice(document, part, begin, end string) (string, error) {
	before, rest, ok1 := strings.Cut(document, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("the document has no line %q, or none %q after it", begin, end)
	}
	return before + begin + part + end + after, nil
}
