package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The files, pictures and headings to which documents link exist.
func TestLinksOfTheDocuments(t *testing.T) {
	found := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*/*.md"} {
		names, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, names, err)
		}
		for _, name := range names {
			found += checkLinks(t, name)
		}
	}
	if found < 100 {
		t.Errorf("only %d links were found", found)
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"`)

// checkLinks reports broken links of the document, and returns the number of its links within the
// repository.
func checkLinks(t *testing.T, name string) (found int) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range link.FindAllStringSubmatch(string(text), -1) {
		target := m[1] + m[2]
		if strings.Contains(target, "://") {
			continue
		}
		found++
		path, heading, hasHeading := strings.Cut(target, "#")
		file := name
		if path != "" {
			file = filepath.Join(filepath.Dir(name), path)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s links to %s, which does not exist", name, target)
		} else if hasHeading && !slices.Contains(anchors(t, file), heading) {
			t.Errorf("%s links to the heading %s, which does not exist", name, target)
		}
	}
	return found
}

// anchors returns the link names of the document's headings.
func anchors(t *testing.T, name string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		plain := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(plain, " ", "-"))
	}
	return list
}
