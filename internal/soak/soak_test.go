package soak

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Every line names a test that exists, in a package that asks for its size, and no two lines have the same name: On knows
// a test by its name alone.
func TestList(t *testing.T) {
	seen := map[string]bool{}
	all := entries(list)
	if len(all) == 0 {
		t.Error("no tests")
	}
	for _, e := range all {
		if seen[e.name] {
			t.Errorf("%s has two lines", e.name)
		}
		seen[e.name] = true
		files, err := filepath.Glob(filepath.Join("../..", e.dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		exists, asks := false, false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			exists = exists || bytes.Contains(text, []byte("\nfunc "+e.name+"(t *testing.T)"))
			asks = asks || bytes.Contains(text, []byte(`myriad/internal/soak"`))
		}
		if !exists || !asks {
			t.Errorf("%s %s: exists %v, package imports soak %v", e.dir, e.name, exists, asks)
		}
	}
}

// fake is a test of any name, which remembers how it ended.
type fake struct {
	testing.TB
	name            string
	failed, skipped bool
}

func (f *fake) Name() string          { return f.name }
func (f *fake) Helper()               {}
func (f *fake) Fatalf(string, ...any) { f.failed = true }
func (f *fake) Skipf(string, ...any)  { f.skipped = true }

func TestOn(t *testing.T) {
	listed := entries(list)[0].name + "/case"
	for _, value := range []string{"", "0", "1"} {
		t.Setenv(Env, value)
		full := value == "1"
		if f := (&fake{name: listed}); On(f) != full || f.failed {
			t.Errorf("%q: a listed test: failed %v", value, f.failed)
		}
		if got := Size(&fake{name: listed}, 1, 2); (got == 2) != full {
			t.Errorf("%q: size %d", value, got)
		}
		f := &fake{name: listed}
		if Only(f); f.skipped == full {
			t.Errorf("%q: skipped %v", value, f.skipped)
		}
		f = &fake{name: "TestElsewhere"}
		if On(f); !f.failed {
			t.Errorf("%q: a test that is not listed goes on", value)
		}
	}
}
