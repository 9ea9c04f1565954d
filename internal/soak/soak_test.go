package soak

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Every line names another test, which exists in a package that asks for its size.
func TestList(t *testing.T) {
	seen := map[entry]bool{}
	all := listed()
	if len(all) == 0 {
		t.Error("no tests")
	}
	for _, e := range all {
		if seen[e] {
			t.Errorf("%s %s has two lines", e.folder, e.name)
		}
		seen[e] = true
		files, err := filepath.Glob(filepath.Join("../..", e.folder, "*_test.go"))
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
			t.Errorf("%s %s: exists %v, package imports soak %v", e.folder, e.name, exists, asks)
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
	defer func(here string) { folder = here }(folder)
	if folder != "./internal/soak" {
		t.Errorf("the folder of this test is %s", folder)
	}
	first := listed()[0]
	folder = first.folder
	listed := first.name + "/case"
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
	folder = "./elsewhere"
	f := &fake{name: listed}
	if On(f); !f.failed {
		t.Error("a test of the same name in another package goes on")
	}
}

func TestPatience(t *testing.T) {
	for value, want := range map[string]time.Duration{"": time.Minute, "4s": 4 * time.Second, "2m": time.Minute,
		"0s": time.Minute, "-1s": time.Minute, "soon": time.Minute} {
		t.Setenv(PatienceEnv, value)
		if got := Patience(time.Minute); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}
