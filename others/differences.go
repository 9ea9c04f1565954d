package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// differencesText lists the tests that may end differently, each with the reason.
//
//go:embed differences.txt
var differencesText string

// How an expected difference shows.
const (
	always    = "fails"     // each time: a line whose tests all pass is stale
	sometimes = "sometimes" // it depends on chance
	never     = "not-run"   // the test would wait for ever, or end the process
)

// An expected difference is one line of differences.txt.
type expected struct {
	line    int
	program string
	tests   *regexp.Regexp // of the whole name
	how     string
	reason  string
	met     bool // a test that matches has ended differently
	unmet   bool // and another one, or the same, has not
}

// parseDifferences reads lines of the form "program | pattern | how | reason". Empty lines are
// ignored, and those that begin with "#".
func parseDifferences(text string) (all []*expected, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, " | ", 4)
		if len(fields) != 4 {
			return nil, fmt.Errorf("differences.txt:%d has %d fields and not 4", n, len(fields))
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		pattern, err := regexp.Compile("^(?:" + fields[1] + ")$")
		if err != nil {
			return nil, fmt.Errorf("differences.txt:%d: %w", n, err)
		}
		switch fields[2] {
		case always, sometimes, never:
		default:
			return nil, fmt.Errorf("differences.txt:%d says %q: use %s, %s or %s",
				n, fields[2], always, sometimes, never)
		}
		all = append(all, &expected{line: n, program: fields[0], tests: pattern, how: fields[2], reason: fields[3]})
	}
	return all, nil
}

// find gives the line that a test of a program matches, or nil.
func find(all []*expected, p *program, test string) *expected {
	for _, e := range all {
		if e.program == p.name && e.tests.MatchString(test) {
			return e
		}
	}
	return nil
}

// skip is the line's pattern in the form of go test -skip, which has one pattern for each level of
// subtests.
func (e *expected) skip() string {
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(e.tests.String(), "^(?:"), ")$"), "/")
	for i, part := range parts {
		parts[i] = "^(?:" + part + ")$"
	}
	return strings.Join(parts, "/")
}
