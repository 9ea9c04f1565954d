package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A binary is a test binary with all mistakes.
type binary struct {
	path   string
	folder string // of the package
	work   string // for files
	sites  []site
	broken map[int]bool
}

// These find the numbers of the sites in a line of the text that was compiled. Most sites that
// do not compile are arithmetic: "+" on strings.
var (
	arithmeticSites = regexp.MustCompile(`mutant[A-Z]\w*\((\d+)`)
	allSites        = regexp.MustCompile(`mutant\w*\((\d+)`)
)

// build makes the binary. Mistakes that do not compile are given up, and it is made again.
func build(work string, files []string) (*binary, error) {
	b := &binary{path: filepath.Join(work, "tests"), folder: filepath.Dir(files[0]), work: work, broken: map[int]bool{}}
	for {
		texts, err := b.write(files)
		if err != nil {
			return nil, err
		}
		cmd := exec.Command("go", "test", "-c", "-gcflags=-e", "-overlay", filepath.Join(work, "overlay"),
			"-o", b.path, "./"+b.folder)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return b, nil
		}
		if !b.giveUp(texts, string(out)) {
			return nil, fmt.Errorf("go test -c: %w\n%s", err, out)
		}
	}
}

// write makes the overlay, and returns the texts in it by the names of their files.
func (b *binary) write(files []string) (texts map[string]string, err error) {
	b.sites = nil
	texts = map[string]string{}
	replace := map[string]string{}
	add := func(f, text string) error {
		at, err := filepath.Abs(f)
		if err != nil {
			return err
		}
		name := fmt.Sprint(len(texts), ".go")
		texts[name], replace[at] = text, filepath.Join(b.work, name)
		return os.WriteFile(replace[at], []byte(text), 0o600)
	}
	name := ""
	for _, f := range files {
		if filepath.Dir(f) != b.folder {
			return nil, fmt.Errorf("%s is of another package than %s", f, files[0])
		}
		src, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		text, of, err := rewrite(f, string(src), &b.sites, b.broken)
		if err != nil {
			return nil, err
		}
		name = of
		if err := add(f, text); err != nil {
			return nil, err
		}
	}
	if err := add(filepath.Join(b.folder, "zz_mutant.go"), fmt.Sprintf(switches, name, len(b.sites))); err != nil {
		return nil, err
	}
	p, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	return texts, os.WriteFile(filepath.Join(b.work, "overlay"), p, 0o600)
}

// giveUp marks the mistakes in the lines of which the compiler complains, and reports whether there
// are new ones.
func (b *binary) giveUp(texts map[string]string, complaints string) (found bool) {
	for _, m := range regexp.MustCompile(`(?m)^(\S+\.go):(\d+):`).FindAllStringSubmatch(complaints, -1) {
		line, _ := strconv.Atoi(m[2])
		lines := strings.Split(texts[filepath.Base(m[1])], "\n")
		if line <= len(lines) && (b.mark(arithmeticSites, lines[line-1]) || b.mark(allSites, lines[line-1])) {
			found = true
		}
	}
	return found
}

func (b *binary) mark(sites *regexp.Regexp, line string) (found bool) {
	for _, n := range sites.FindAllStringSubmatch(line, -1) {
		number, _ := strconv.Atoi(n[1])
		found = found || !b.broken[number]
		b.broken[number] = true
	}
	return found
}

// A test is one of the package, as it is without a mistake.
type test struct {
	name    string
	seconds float64
	reaches map[int]bool
	hangs   int // with so many mistakes
}

// tests runs all tests that match, each in a process of its own.
func (b *binary) tests(of selection, to io.Writer) (all []test, err error) {
	names, err := exec.Command(b.path, "-test.list", of.run).Output()
	if err != nil {
		return nil, fmt.Errorf("the list of tests: %w", err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		t := test{name: name, reaches: map[int]bool{}}
		reach := filepath.Join(b.work, "reach")
		v := b.run([]string{name}, 300, "MUTANT_REACH="+reach)
		if v.failed {
			fmt.Fprintf(to, "%s is not used, because it fails without a mistake:\n%.500s\n", name, v.out)
			continue
		}
		took := regexp.MustCompile(`(?m)^--- PASS: \S+ \(([\d.]+)s\)`).FindStringSubmatch(v.out)
		if took != nil {
			t.seconds, _ = strconv.ParseFloat(took[1], 64)
		}
		reached, err := os.ReadFile(reach)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for n := range strings.FieldsSeq(string(reached)) {
			number, _ := strconv.Atoi(n)
			t.reaches[number] = true
		}
		os.Remove(reach)
		if len(t.reaches) > 0 && t.seconds <= of.most.Seconds() {
			all = append(all, t)
		}
	}
	order(all)
	return all, nil
}

// order puts quick tests first, and those last that hang where others may fail.
func order(tests []test) {
	slices.SortStableFunc(tests, func(a, b test) int {
		return cmp.Or(cmp.Compare(a.hangs, b.hangs), cmp.Compare(a.seconds, b.seconds))
	})
}

// A verdict is how a process of tests ends.
type verdict struct {
	failed bool
	hung   []string // the tests that did not end
	out    string
}

var stillRunning = regexp.MustCompile(`(?m)^\t(\w+)\S* \([\dhms.]+\)$`)

// run runs tests in one process, with a variable of the environment.
func (b *binary) run(names []string, seconds int, env string) (v verdict) {
	cmd := exec.Command(b.path, "-test.short", "-test.v", "-test.failfast", fmt.Sprintf("-test.timeout=%ds", seconds),
		"-test.run=^("+strings.Join(names, "|")+")$")
	cmd.Dir, cmd.Env = b.folder, append(os.Environ(), env, waiting)
	p, err := cmd.CombinedOutput()
	v.failed, v.out = err != nil, string(p)
	_, after, hung := strings.Cut(v.out, "panic: test timed out after")
	if !hung {
		return v
	}
	list, _, _ := strings.Cut(after, "\n\n")
	for _, m := range stillRunning.FindAllStringSubmatch(list, -1) {
		v.hung = append(v.hung, m[1])
	}
	if len(v.hung) == 0 {
		v.hung = names
	}
	return v
}

const (
	together = 0.2 // seconds of tests that run in the first process; in each other one twice as many
	patience = 15  // seconds that tests have besides
	factor   = 6   // times as long as they take without a mistake
	mostHung = 3   // processes of tests that do not end, for one mistake

	// waiting bounds how long a test waits for what must happen (soak.Patience), with a mistake and
	// without. So a test that waits in vain fails before the process runs out of time.
	waiting = "MYRIAD_PATIENCE=4s"
)

// try runs the tests that reach a mistake, until one has failed twice. A test that hangs is left
// out from then on.
func (b *binary) try(number int, tests []test) result {
	r := unknown
	hung := map[string]bool{}
	defer func() {
		for i := range tests {
			if hung[tests[i].name] {
				tests[i].hangs++
			}
		}
		order(tests)
	}()
	processes := 0
	for rest, most := tests, together; len(rest) > 0; most *= 2 {
		var names []string
		seconds := 0.0
		for len(rest) > 0 && seconds <= most {
			if t := rest[0]; t.reaches[number] {
				names = append(names, t.name)
				seconds += t.seconds
				r = min(r, lived)
			}
			rest = rest[1:]
		}
		for len(names) > 0 {
			v := b.fails(number, names, seconds)
			if len(v.hung) == 0 && v.failed {
				return caught
			}
			if len(v.hung) == 0 {
				break
			}
			for _, n := range v.hung {
				hung[n] = true
			}
			if processes++; processes == mostHung {
				return hangs
			}
			names = slices.DeleteFunc(names, func(n string) bool { return hung[n] })
		}
	}
	if len(hung) > 0 {
		return hangs
	}
	return r
}

// fails runs the tests with a mistake, and once more if they fail.
func (b *binary) fails(number int, names []string, seconds float64) (v verdict) {
	for range 2 {
		v = b.run(names, patience+int(factor*seconds), fmt.Sprint("MUTANT=", number))
		if !v.failed || len(v.hung) > 0 {
			break
		}
	}
	return v
}
