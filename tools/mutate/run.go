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

// A suite is the test binaries that reach a package's code, with all mistakes in it.
type suite struct {
	folder   string // of the package
	programs []program
	work     string // for files
	sites    []site
	broken   map[int]bool
}

// A program is the test binary of one package.
type program struct{ folder, path string }

// These find the numbers of the sites in a line of the text that was compiled. Most sites that
// do not compile are arithmetic: "+" on strings.
var (
	arithmeticSites = regexp.MustCompile(`mutant[A-Z]\w*\((\d+)`)
	allSites        = regexp.MustCompile(`mutant\w*\((\d+)`)
)

// elsewhere are packages that test another one from outside, by its folder.
var elsewhere = map[string][]string{
	".":                            {"internal/enginetest"},
	"internal/driver/posix":        {"internal/driver/epoll"},
	"server/push/answer":           append([]string{"server/push", "server/push/hub"}, pushTests...),
	"server/push/api":              {"server/push"},
	"server/push/console":          {"server/push"},
	"server/push/doors/centrifuge": {"server/push"},
	"server/push/doors/mercure":    {"server/push"},
	"server/push/doors/redis":      {"server/push"},
	"server/push/doors/sse":        {"server/push"},
	"web/internal/exchange":        {"web"},
	"web/internal/http1":           {"web"},
	"web/internal/http2":           {"web"},
	"server/push/guard":            append([]string{"server/push"}, pushTests...),
	"server/push":                  pushTests,
	"server/push/hub":              append([]string{"server/push"}, pushTests...),
	"server/push/policy":           append([]string{"server/push", "server/push/hub"}, pushTests...),
}

// pushTests are the API and the doors of the push server, whose tests run it whole.
var pushTests = []string{"server/push/api", "server/push/doors/centrifuge", "server/push/doors/mercure",
	"server/push/doors/redis", "server/push/doors/sse"}

// build makes the binaries: that of the package itself, and those of also. Mistakes that do not
// compile are given up, and all are made again.
func build(work string, files, also []string) (*suite, error) {
	b := &suite{folder: filepath.Dir(files[0]), work: work, broken: map[int]bool{}}
	for i, folder := range append([]string{b.folder}, also...) {
		b.programs = append(b.programs, program{folder, filepath.Join(work, fmt.Sprint("tests", i))})
	}
again:
	texts, err := b.write(files)
	if err != nil {
		return nil, err
	}
	for _, p := range b.programs {
		cmd := exec.Command("go", "test", "-c", "-gcflags=-e", "-overlay", filepath.Join(work, "overlay"),
			"-o", p.path, "./"+p.folder)
		out, err := cmd.CombinedOutput()
		if err != nil && b.giveUp(texts, string(out)) {
			goto again
		}
		if err != nil {
			return nil, fmt.Errorf("go test -c %s: %w\n%s", p.folder, err, out)
		}
	}
	b.programs = slices.DeleteFunc(b.programs, func(p program) bool {
		_, err := os.Stat(p.path)
		return errors.Is(err, os.ErrNotExist) // a package without tests has no binary
	})
	return b, nil
}

// write makes the overlay, and returns the texts in it by the names of their files.
func (b *suite) write(files []string) (texts map[string]string, err error) {
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
func (b *suite) giveUp(texts map[string]string, complaints string) (found bool) {
	for _, m := range regexp.MustCompile(`(?m)^(\S+\.go):(\d+):`).FindAllStringSubmatch(complaints, -1) {
		line, _ := strconv.Atoi(m[2])
		lines := strings.Split(texts[filepath.Base(m[1])], "\n")
		if line <= len(lines) && (b.mark(arithmeticSites, lines[line-1]) || b.mark(allSites, lines[line-1])) {
			found = true
		}
	}
	return found
}

func (b *suite) mark(sites *regexp.Regexp, line string) (found bool) {
	for _, n := range sites.FindAllStringSubmatch(line, -1) {
		number, _ := strconv.Atoi(n[1])
		found = found || !b.broken[number]
		b.broken[number] = true
	}
	return found
}

// A test is one of a program, as it is without a mistake.
type test struct {
	program program
	name    string
	seconds float64
	reaches map[int]bool
	hangs   int // with so many mistakes
}

// tests runs all tests that match, each in a process of its own.
func (b *suite) tests(of selection, to io.Writer) (all []test, err error) {
	for _, p := range b.programs {
		some, err := b.testsOf(p, of, to)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	order(all)
	return all, nil
}

func (b *suite) testsOf(p program, of selection, to io.Writer) (all []test, err error) {
	names, err := exec.Command(p.path, "-test.list", of.run).Output()
	if err != nil {
		return nil, fmt.Errorf("the list of tests of %s: %w", p.folder, err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		t := test{program: p, name: name, reaches: map[int]bool{}}
		reach := filepath.Join(b.work, "reach")
		if err := os.Remove(reach); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		v := p.run([]string{name}, 300, "MUTANT_REACH="+reach)
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
		if len(t.reaches) > 0 && t.seconds <= of.most.Seconds() {
			all = append(all, t)
		}
	}
	return all, nil
}

// id tells tests of the same name apart.
func (t test) id() string { return t.program.id(t.name) }

func (p program) id(name string) string { return p.folder + " " + name }

// order puts quick tests first, and those last that hang where others may fail.
func order(tests []test) {
	slices.SortStableFunc(tests, func(a, b test) int {
		return cmp.Or(cmp.Compare(a.hangs, b.hangs), cmp.Compare(a.seconds, b.seconds))
	})
}

// A verdict is how a process of tests ends.
type verdict struct {
	failed bool
	hung   []string // the ids of tests that did not end
	out    string
}

var stillRunning = regexp.MustCompile(`(?m)^\t(\w+)\S* \([\dhms.]+\)$`)

// run runs tests in one process, with a variable of the environment.
func (p program) run(names []string, seconds int, env string) (v verdict) {
	cmd := exec.Command(p.path, "-test.short", "-test.v", "-test.failfast", fmt.Sprintf("-test.timeout=%ds", seconds),
		"-test.run=^("+strings.Join(names, "|")+")$")
	cmd.Dir, cmd.Env = p.folder, append(os.Environ(), env, waiting)
	out, err := cmd.CombinedOutput()
	v.failed, v.out = err != nil, string(out)
	_, after, hung := strings.Cut(v.out, "panic: test timed out after")
	if !hung {
		return v
	}
	list, _, _ := strings.Cut(after, "\n\n")
	for _, m := range stillRunning.FindAllStringSubmatch(list, -1) {
		v.hung = append(v.hung, p.id(m[1]))
	}
	if len(v.hung) == 0 {
		for _, n := range names {
			v.hung = append(v.hung, p.id(n))
		}
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
func (b *suite) try(number int, tests []test) result {
	r := unknown
	hung := map[string]bool{}
	defer func() {
		for i := range tests {
			if hung[tests[i].id()] {
				tests[i].hangs++
			}
		}
		order(tests)
	}()
	processes := 0
	for rest, most := tests, together; len(rest) > 0; most *= 2 {
		var some []test
		seconds := 0.0
		for len(rest) > 0 && seconds <= most {
			if t := rest[0]; t.reaches[number] {
				some = append(some, t)
				seconds += t.seconds
				r = min(r, lived)
			}
			rest = rest[1:]
		}
		for len(some) > 0 {
			v := b.fails(number, some, seconds)
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
			some = slices.DeleteFunc(some, func(t test) bool { return hung[t.id()] })
		}
	}
	if len(hung) > 0 {
		return hangs
	}
	return r
}

// fails runs the tests with a mistake, program by program, until those of one fail twice.
func (b *suite) fails(number int, tests []test, seconds float64) (v verdict) {
	for _, p := range b.programs {
		var names []string
		for _, t := range tests {
			if t.program == p {
				names = append(names, t.name)
			}
		}
		for try := 0; try < 2 && len(names) > 0; try++ {
			v = p.run(names, patience+int(factor*seconds), fmt.Sprint("MUTANT=", number))
			if len(v.hung) > 0 {
				return v
			}
			if !v.failed {
				break
			}
		}
		if v.failed {
			return v
		}
	}
	return v
}
