// Command others runs the tests of programs that people use, once on net/http and once with
// web.Server and client.Transport behind every http.Server and http.Transport, and compares them
// test by test. It downloads the programs (programs.go) and builds their tests in the user's cache.
// A build overlay gives net/http variables that package hook sets in the test binaries. The command
// fails if a test passes on net/http alone, unless differences.txt says why.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "others:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	tests   string
	output  int
	retry   bool
	quiet   time.Duration
	verbose bool
}

func run() error {
	share := flag.String("share", "1/1", "run the `k/n`-th part of all")
	only := flag.String("only", "", "run the programs whose names match the `pattern`")
	race := flag.Bool("race", false, "use the race detector")
	var opts options
	flag.StringVar(&opts.tests, "run", "", "run the tests that match the `pattern`, as go test -run does")
	flag.IntVar(&opts.output, "output", 1000, "print at most so many `bytes` of the output of a test that differs")
	flag.BoolVar(&opts.retry, "again", true, "run tests again that differ, to tell chance apart")
	flag.DurationVar(&opts.quiet, "quiet", 45*time.Second, "a process hangs if no test begins or ends for so long")
	flag.BoolVar(&opts.verbose, "v", false, "print expected differences, too")
	flag.Parse()
	w, err := newWorkplace(*race)
	if err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	part, err := parseShare(*share)
	if err != nil {
		return err
	}
	differences, err := parseDifferences(differencesText)
	if err != nil {
		return err
	}
	s := &session{w: w, opts: opts, differences: differences, tallies: map[*program]*tally{}}
	for _, u := range part.of(units(programs)) {
		if pattern.MatchString(u.p.name) {
			s.run(u)
		}
	}
	s.report()
	return s.verdict()
}

func newWorkplace(race bool) (*workplace, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	text, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(here))
	if _, err := os.Stat(filepath.Join(root, "others", "go.mod")); err != nil {
		return nil, fmt.Errorf("others must be compiled where it runs: %w", err)
	}
	return &workplace{
		root: root, cache: filepath.Join(cache, "myriad-others"), goroot: strings.TrimSpace(string(text)), race: race,
	}, nil
}

// A session is one run of the command.
type session struct {
	w           *workplace
	opts        options
	differences []*expected
	order       []*program
	tallies     map[*program]*tally
	unexpected  []string
	errs        []error
}

// run runs one unit on both sides.
func (s *session) run(u unit) {
	began := time.Now()
	fail := func(err error) {
		fmt.Printf("%s: %v\n", u, err)
		s.errs = append(s.errs, fmt.Errorf("%s: %w", u, err))
	}
	t, err := s.w.fetch(u.p)
	if err != nil {
		fail(err)
		return
	}
	packages, err := t.list()
	if err != nil {
		fail(err)
		return
	}
	for _, one := range packages {
		if err := s.runPackage(t, u, one); err != nil {
			fail(err)
		}
	}
	fmt.Printf("%s took %.0f s\n", u, time.Since(began).Seconds())
}

// runPackage runs the tests of one package on both sides.
func (s *session) runPackage(t *tree, u unit, one pkg) error {
	dir := filepath.Join(s.w.cache, "run", flat(u.p.name))
	file := filepath.Join(dir, flat(one.ImportPath))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	texts := filepath.Join(s.w.cache, "overlay")
	o, err := newOverlay(s.w.goroot, texts)
	if err != nil {
		return err
	}
	if u.p.realTime && !s.w.race { // only in a bubble is what a test reads ordered behind Wait
		err = o.realTime(s.w.goroot, one, texts)
	}
	if err := errors.Join(err, o.link(one, texts), o.write(file+".json")); err != nil {
		return err
	}
	if err := errors.Join(t.build(one, file+".plain", ""), t.build(one, file+".ours", file+".json")); err != nil {
		return err
	}
	used := file + ".used"
	if err := os.WriteFile(used, nil, 0o644); err != nil {
		return err
	}
	plain := s.binary(u, one, file+".plain")
	ours := s.binary(u, one, file+".ours")
	ours.env = append(ours.env, "OTHERS_USED="+used)
	ours.skip = append(ours.skip, s.notRun(u.p)...)
	pattern := s.opts.tests
	if pattern == "" {
		pattern = u.run
	}
	began := time.Now()
	before, err := plain.run(pattern)
	if err != nil {
		return fmt.Errorf("on net/http: %w", err)
	}
	tookPlain := time.Since(began)
	after, err := ours.run(pattern)
	if err != nil {
		return err
	}
	tookOurs := time.Since(began) - tookPlain
	if info, err := os.Stat(used); err != nil || info.Size() == 0 {
		fmt.Printf("%s: its tests have no server and no transport\n", one.ImportPath)
		return err
	}
	for _, e := range s.differences { // what was not run on ours counts as a difference
		if e.program == u.p.name && e.how == never {
			for name := range after {
				if e.tests.MatchString(name) {
					delete(after, name)
				}
			}
		}
	}
	sum, differ := compare(before, after)
	for name, o := range after {
		p := before[name]
		if e := find(s.differences, u.p, name); e != nil && o.result == passed && p != nil && p.result == passed {
			e.unmet = true
		}
	}
	for _, name := range differ {
		s.differs(u, one, plain, ours, &sum, name, after[name])
	}
	fmt.Printf("%s: %d tests, %d pass, %d expected differences (net/http %.0f s, ours %.0f s)\n",
		one.ImportPath, sum.tests, sum.pass, sum.expected, tookPlain.Seconds(), tookOurs.Seconds())
	if s.tallies[u.p] == nil {
		s.tallies[u.p] = &tally{}
		s.order = append(s.order, u.p)
	}
	s.tallies[u.p].add(sum)
	return nil
}

func (s *session) binary(u unit, one pkg, file string) *binary {
	log, err := os.Create(file + ".log")
	if err != nil {
		s.errs = append(s.errs, err)
	}
	b := &binary{file: file, dir: one.Dir, args: u.p.args, env: u.p.env, quiet: s.opts.quiet, log: log, skip: u.skip}
	if u.p.skip != "" {
		b.skip = append(b.skip, u.p.skip)
	}
	return b
}

// notRun are patterns of the tests that would hang.
func (s *session) notRun(p *program) (patterns []string) {
	for _, e := range s.differences {
		if e.program == p.name && e.how == never {
			patterns = append(patterns, e.skip())
		}
	}
	return patterns
}

// differs decides what the difference of one test is.
func (s *session) differs(u unit, one pkg, plain, ours *binary, sum *tally, name string, o *outcome) {
	result, output := "not run", ""
	if o != nil {
		result, output = o.result, relevant(o.output)
	}
	if e := find(s.differences, u.p, name); e != nil {
		e.met = true
		sum.expected++
		if s.opts.verbose {
			fmt.Printf("\texpected: %s: %s (%s)\n", name, result, e.reason)
		}
		return
	}
	note := ""
	if s.opts.retry && (result == failed || result == crashed) {
		onPlain, onOurs, err := again(plain, ours, name)
		switch {
		case err != nil:
			note = fmt.Sprintf(" (again: %v)", err)
		case onOurs == tries || onPlain < tries:
			fmt.Printf("\tchance: %s passes %d of %d times alone, on net/http %d\n", name, onOurs, tries, onPlain)
			sum.chance++
			return
		default:
			note = fmt.Sprintf(" (again: %d of %d pass)", onOurs, tries)
		}
	}
	s.unexpected = append(s.unexpected, fmt.Sprintf("%s | %s", u.p.name, name))
	fmt.Printf("\tDIFFERENT: %s: %s%s\n", name, result, note)
	if len(output) > s.opts.output {
		output = output[:s.opts.output]
	}
	for line := range strings.Lines(output) {
		fmt.Printf("\t\t%s\n", strings.TrimRight(line, "\n"))
	}
}

// report prints the table.
func (s *session) report() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\nprogram\tversion\tpass on net/http\tand on ours\texpected\tchance\tin bubbles\tbroken")
	row := func(name, version string, t tally) {
		fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\n",
			name, version, t.tests, t.pass, t.expected, t.chance, t.bubble, t.broken)
	}
	var all tally
	for _, p := range s.order {
		row(p.name, p.version, *s.tallies[p])
		all.add(*s.tallies[p])
	}
	row(fmt.Sprintf("%d programs", len(s.order)), "", all)
	_ = out.Flush()
}

// verdict is an error if something is not as it has to be.
func (s *session) verdict() error {
	errs := s.errs
	if n := len(s.unexpected); n > 0 {
		list := strings.Join(s.unexpected, "\n\t")
		errs = append(errs, fmt.Errorf("%d tests pass on net/http alone:\n\t%s", n, list))
	}
	for _, e := range s.differences {
		if e.how == always && e.unmet && !e.met {
			errs = append(errs, fmt.Errorf("differences.txt:%d: all tests of this line pass: remove it", e.line))
		}
	}
	return errors.Join(errs...)
}
