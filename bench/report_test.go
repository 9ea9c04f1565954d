//go:build linux

package main

import (
	"os"
	"strings"
	"testing"
)

// The tables in the document are those of the saved results, and nobody has touched them.
func TestDocument(t *testing.T) {
	document, err := os.ReadFile("../docs/BENCHMARKS.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := readAll(nil)
	if err != nil {
		t.Fatal(err)
	}
	var tables strings.Builder
	if err := writeMarkdown(&tables, all); err != nil {
		t.Fatal(err)
	}
	want, err := splice(string(document), tables.String())
	if err != nil {
		t.Fatal(err)
	}
	if want != string(document) {
		t.Error("docs/BENCHMARKS.md has other tables than bench/results: go run ./bench report --into docs/BENCHMARKS.md")
	}
}

func TestSplice(t *testing.T) {
	before := "text\n" + tablesBegin + "old\n" + tablesEnd + "more\n"
	got, err := splice(before, "new\n")
	if want := "text\n" + tablesBegin + "new\n" + tablesEnd + "more\n"; got != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, document := range []string{"", tablesBegin, tablesEnd + tablesBegin} {
		if _, err := splice(document, ""); err == nil {
			t.Errorf("%q has a place for tables", document)
		}
	}
}
