package myriad_test

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// replacedWords are words that comments do not use, each with what to say instead. Most of them
// hide the actor. docs/ARCHITECTURE.md has a glossary of the project's own words.
var replacedWords = map[string]string{
	"farewell": "client-gone notice", "orphan": "its connection is gone", "deaf": "does not read",
	"crew": "workers", "habit": "route record", "guest of the loop": "inline task", "parted": "released",
	"owes": "has pending", "is owed": "is pending", "sleepers": "hibernated connections",
	"hears of": "is called with", "becomes of": "happens to", "all the same": "nevertheless",
	"whoever": "the caller, the client", "somebody": "the caller, another process", "nobody": "no caller",
}

// replacedNames are those of the words that are no part of a name either.
var replacedNames = []string{"farewell", "orphan", "deaf", "crew", "habit"}

// replacedWord matches them at the beginning of a sentence too, but not the name NoBody.
var replacedWord = func() *regexp.Regexp {
	var words []string
	for _, w := range slices.Sorted(maps.Keys(replacedWords)) {
		words = append(words, w, strings.ToUpper(w[:1])+w[1:])
	}
	return regexp.MustCompile(`\b(` + strings.Join(words, "|") + `)\b`)
}()

func checkWords(s *source) (found []string) {
	for _, group := range s.file.Comments {
		for _, word := range replacedWord.FindAllString(strings.Join(strings.Fields(group.Text()), " "), -1) {
			found = append(found, fmt.Sprintf("%q: say %q", word, replacedWords[strings.ToLower(word)]))
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if name, is := n.(*ast.Ident); is && slices.Contains(replacedNames, name.Name) {
			found = append(found, fmt.Sprintf("the name %s: say %q", name.Name, replacedWords[name.Name]))
		}
		return true
	})
	return found
}

func TestWordsCanFail(t *testing.T) {
	for text, want := range map[string]string{
		"// f is for whoever\n// calls it.\nfunc f() {}": `say "the caller`,
		"// Nobody calls f.\nfunc f() {}":                "no caller",
		"func deaf() {}":                                 "does not read",
		"// f hears\n// of it.\nfunc f() {}":             "is called with",
		"// f rehears offers of NoBody.\nfunc f() {}":    "",
	} {
		s, err := parseSource("web/a.go", []byte("package a\n\n"+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		got := checkWords(s)
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
			t.Errorf("%q: complaints %q, want one with %q", text, got, want)
		}
	}
}

// Each row of these tables names tests that there are. A text in quotes behind a test is a case of
// its, in Go or in testdata.
func TestRowsHaveTests(t *testing.T) {
	tests, texts := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if !s.test() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				tests[n.Name.Name] = true
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil {
					texts[text] = true
				}
			}
			return true
		})
	}
	var tables []string
	for _, pattern := range []string{"*/testdata/*.txt", "*/*/testdata/*.txt"} {
		some, err := filepath.Glob(pattern)
		if err != nil || len(some) == 0 {
			t.Fatal(pattern, some, err)
		}
		tables = append(tables, some...)
	}
	for _, name := range tables { // of cases that stand beside their test
		table, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range namedCase.FindAllStringSubmatch(string(table), -1) {
			texts[c[1]] = true
		}
	}
	for _, tt := range []struct {
		page, heading string // the last column of a heading
		least         int
	}{{"internal/mux/RULES.md", "at a client", 60}, {"docs/net-http.md", "test", 100}, {"docs/HUNTS.md", "test", 260}} {
		page, err := os.ReadFile(tt.page)
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for line := range strings.Lines(string(page)) {
			row := strings.HasPrefix(line, "| ") && !strings.HasSuffix(line, "| "+tt.heading+" |\n")
			named := namedTest.FindAllStringSubmatch(line, -1)
			if row {
				rows++
			}
			if row && named == nil {
				t.Errorf("%s: no test in the row %s", tt.page, line)
			}
			for _, n := range named {
				if !tests[n[1]] {
					t.Errorf("%s: there is no %s, which is named by: %s", tt.page, n[1], line)
				}
				for _, c := range quotedCase.FindAllStringSubmatch(n[2], -1) {
					if !texts[c[1]] {
						t.Errorf("%s: there is no case %q, which is named by: %s", tt.page, c[1], line)
					}
				}
			}
		}
		if rows < tt.least {
			t.Errorf("%s: %d rows found", tt.page, rows)
		}
	}
}

// namedTest is a test with its cases.
var (
	namedTest  = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`((?: \"[^\"]+\")*)")
	quotedCase = regexp.MustCompile(`"([^"]+)"`)
	namedCase  = regexp.MustCompile(`(?m)^(?:case|==) (.+)$`)
)
