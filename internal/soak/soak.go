// Package soak decides how large a test is. Most runs use a test's usual size, which shows each kind of case once. MYRIAD_SOAK=1
// asks for its full size: all inputs, crowds, many seeds. "make soak" runs the tests of tests.txt at their full size; CI runs
// a part of them each day.
package soak

import (
	_ "embed"
	"os"
	"slices"
	"strings"
	"testing"
)

// Env names the environment variable that asks for full sizes: 1 does.
const Env = "MYRIAD_SOAK"

//go:embed tests.txt
var list string

// An entry is one test of tests.txt.
type entry struct {
	dir  string // of its package, from the root: "./web"
	name string
}

// entries parses lines of a folder and a test's name. Lines that begin with # are comments.
func entries(text string) (all []entry) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] != "#" {
			all = append(all, entry{fields[0], fields[1]})
		}
	}
	return all
}

// On reports whether t runs at its full size. A test that asks and is not in tests.txt fails, because "make soak" and CI would
// never run it at that size.
func On(t testing.TB) bool {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if !slices.ContainsFunc(entries(list), func(e entry) bool { return e.name == name }) {
		t.Fatalf("add a line for %s to internal/soak/tests.txt, so that make soak runs it", name)
	}
	return os.Getenv(Env) == "1"
}

// Size is full if t runs at its full size, and usual otherwise.
func Size[T any](t testing.TB, usual, full T) T {
	t.Helper()
	if On(t) {
		return full
	}
	return usual
}

// Only skips t unless it runs at its full size, for tests that have no smaller one.
func Only(t testing.TB) {
	t.Helper()
	if !On(t) {
		t.Skipf("%s=1 or make soak runs it", Env)
	}
}
