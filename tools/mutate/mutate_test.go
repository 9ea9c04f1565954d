package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/internal/soak"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// sample has one mistake of each kind on lines that say which. The tests below notice some.
const sample = `package sample

import "sync"

// Sum adds up what is positive.
func Sum(all []int) (n int) {
	for _, v := range all {
		if v > 0 { // >= for >: no test can notice
			n += v
		}
	}
	return n
}

// Even is tested from outside.
func Even(n int) bool { return n%2 == 0 }

const limit = 3 + 4

// A Box counts.
type Box struct {
	mu   sync.Mutex
	n    int
	seen bool
}

// Add reports whether there is room for n.
func (b *Box) Add(n int, name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen && b.n+n > limit || name+"" == "no" {
		return false
	}
	b.n += n
	b.seen = true
	b.note()
	return true
}

func (b *Box) note() {}

// Odd is not tested.
func Odd(n int) bool { return n%2 == 1 }

// Until counts to n.
func Until(n int) (i int) {
	for i != n {
		i++
	}
	return i
}
`

const sampleTests = `package sample

import (
	"os"
	"testing"
	"time"
)

func TestSum(t *testing.T) {
	if n := Sum([]int{1, -2, 3}); n != 4 {
		t.Error(n)
	}
}

func TestBox(t *testing.T) {
	b := new(Box)
	if !b.Add(9, "") || b.Add(1, "") || new(Box).Add(1, "no") {
		t.Error("no")
	}
	c := new(Box)
	if !c.Add(6, "") || !c.Add(1, "") || c.Add(1, "") {
		t.Error("no")
	}
}

func TestPatience(t *testing.T) {
	Sum(nil)
	if d, err := time.ParseDuration(os.Getenv("` + soak.PatienceEnv + `")); err != nil || d > 10*time.Second {
		t.Error(d, err)
	}
}

func TestFails(t *testing.T) { t.Error(Until(0)) }
`

const outsideTests = `package outside

import (
	"testing"

	"example.com/sample"
)

func TestEven(t *testing.T) {
	if !sample.Even(4) || sample.Even(3) {
		t.Error("no")
	}
}

// TestFails has the name of another package's test.
func TestFails(t *testing.T) { sample.Even(0) }
`

// The command finds out what the tests of a package notice.
func TestMutate(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/sample\n", "a.go": sample,
		"a_test.go": sampleTests, "outside/b_test.go": outsideTests} {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(folder)
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")
	var out strings.Builder
	of := selection{run: ".", most: time.Hour, also: []string{"outside"}}
	if err := mutate(t.TempDir(), []string{"a.go"}, of, &out); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(out.String(), "\n\n")
	const want = `a.go:8: >= for >: LIVED
a.go:36: left out: b.note(): LIVED
a.go:43: != for ==: not reached
a.go:47: == for !=: not reached
a.go:48: -- for ++: not reached
a.go: 12 of 14 covered mutants caught (86 %), 0 hung, 3 not reached
`
	if got != want || !strings.HasPrefix(out.String(), "TestFails is not used, because it fails without a mistake") {
		t.Errorf("got\n%s", out.String())
	}
}
