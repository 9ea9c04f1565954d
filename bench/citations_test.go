//go:build linux

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What documents tell to run names scenarios that there are, and servers that run in them.
func TestCitedCommands(t *testing.T) {
	command, found := regexp.MustCompile("bench (run|all)((?: [^ \n`]+)+)"), 0
	for _, pattern := range []string{"../*.md", "../docs/*.md", "../docs/*/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range command.FindAllStringSubmatch(string(text), -1) {
				found++
				checkCommand(t, file, strings.Fields(m[2]))
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d commands were found", found)
	}
}

func checkCommand(t *testing.T, file string, words []string) {
	t.Helper()
	s := selection{rounds: 1, duration: 1}
	names := words
	if flags := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "--") }); flags >= 0 {
		names = words[:flags]
	}
	s.scenarios = expand(names)
	if i := slices.Index(words, "--only"); i >= 0 && i+1 < len(words) {
		s.only = strings.Split(words[i+1], ",")
	}
	plans, err := s.plan()
	if err != nil {
		t.Errorf("%s: %q: %v", file, words, err)
	}
	for _, p := range plans {
		if len(s.only) > 0 && len(s.scenarios) > 0 && len(p.turns) != len(s.only) {
			t.Errorf("%s: %q: %s has not all of these servers", file, words, p.name)
		}
	}
}
