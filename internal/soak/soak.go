// Package soak decides how large a test is, and how long it waits. Most runs use a test's usual
// size, which shows each kind of case once. MYRIAD_SOAK=1 asks for its full size: all inputs,
// crowds, many seeds. "make soak" runs the tests of tests.txt at their full size; CI runs a part of
// them each day.
package soak

import (
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Env names the environment variable that asks for full sizes: 1 does.
const Env = "MYRIAD_SOAK"

//go:embed tests.txt
var text string

// An entry is one test of tests.txt.
type entry struct {
	folder string // of its package: "./web"
	name   string
}

var listed = sync.OnceValue(func() (all []entry) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] != "#" {
			all = append(all, entry{fields[0], fields[1]})
		}
	}
	return all
})

// folder is where the test's package is, as tests.txt writes it. A test runs in the folder of its
// package.
var folder = findFolder()

func findFolder() string {
	here, err := os.Getwd()
	if err != nil {
		return err.Error()
	}
	for root := here; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "internal", "soak", "tests.txt")); err == nil {
			within, _ := filepath.Rel(root, here)
			if within == "." {
				return within
			}
			return "./" + filepath.ToSlash(within)
		}
		if root == filepath.Dir(root) {
			return here
		}
	}
}

// On reports whether t runs at its full size. A test that asks and is not in tests.txt fails,
// because "make soak" and CI would never run it at that size.
func On(t testing.TB) bool {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if !slices.Contains(listed(), entry{folder, name}) {
		t.Fatalf("add the line \"%s %s\" to internal/soak/tests.txt, so that make soak runs it", folder, name)
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

// PatienceEnv names the environment variable that shortens what Patience returns, as in "4s". "make
// mutate" sets it, because in a program with a mistake what a test waits for may never happen.
const PatienceEnv = "MYRIAD_PATIENCE"

// Patience returns how long a test waits, before it fails, for something that must happen. That is
// usual, which should be enough on a busy machine, unless PatienceEnv sets a shorter time.
func Patience(usual time.Duration) time.Duration {
	d, err := time.ParseDuration(os.Getenv(PatienceEnv))
	if err != nil || d <= 0 {
		return usual
	}
	return min(d, usual)
}
