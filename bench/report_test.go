//go:build linux

package main

import (
	"slices"
	"testing"
)

// The documents show the saved results, unedited.
func TestDocuments(t *testing.T) {
	all, err := readAll(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		if old, fresh, err := d.updated("..", all); err != nil || old != fresh {
			t.Errorf("%s differs from bench/results (%v): go run ./bench report --update", d.name, err)
		}
	}
}

// Every line of the first page's table names a scenario, a metric and servers that exist.
func TestFigures(t *testing.T) {
	for _, f := range figures {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == f.scenario })
		if i < 0 || !slices.Contains(scenarios[i].servers, f.rival) || !slices.Contains(scenarios[i].servers, f.ours) ||
			!slices.Contains(scenarios[i].measures, f.metric) {
			t.Errorf("%s: there is no such scenario, server or metric", f.what)
		}
	}
}

func TestSplice(t *testing.T) {
	before := "text\n" + tablesBegin + "old\n" + tablesEnd + "more\n"
	got, err := splice(before, "new\n", tablesBegin, tablesEnd)
	if want := "text\n" + tablesBegin + "new\n" + tablesEnd + "more\n"; got != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, document := range []string{"", tablesBegin, tablesEnd + tablesBegin} {
		if _, err := splice(document, "", tablesBegin, tablesEnd); err == nil {
			t.Errorf("%q has a place for tables", document)
		}
	}
}
