package main

import (
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/client"
	"github.com/myriad-go/myriad/web"
)

// TestOverlay makes the overlay from the Go release at hand.
func TestOverlay(t *testing.T) {
	text, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	goroot := strings.TrimSpace(string(text))
	o, err := newOverlay(goroot, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.link(pkg{Name: "chess", ImportPath: "example.org/chess", Dir: "/nowhere"}, dir); err != nil {
		t.Fatal(err)
	}
	web := pkg{ImportPath: "net/http", Dir: filepath.Join(goroot, "src/net/http")}
	if err := o.realTime(goroot, web, dir); err != nil {
		t.Fatal(err)
	}
	var packages []string
	for _, file := range o.Replace {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		packages = append(packages, parsed.Name.Name)
	}
	slices.Sort(packages)
	want := []string{"chess_test", "http", "http", "http", "http", "http_test", "http_test", "http_test", "synctest"}
	if !slices.Equal(packages, want) {
		t.Errorf("the overlay replaces files of the packages %v, not %v", packages, want)
	}
}

// TestOverlayOfAnotherRelease shows what happens when net/http has changed.
func TestOverlayOfAnotherRelease(t *testing.T) {
	goroot := t.TempDir()
	within := filepath.Join(goroot, "src", "net", "http")
	if err := os.MkdirAll(within, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(within, "server.go"), []byte("package http\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := newOverlay(goroot, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "0 times and not once") {
		t.Errorf("got %v", err)
	}
}

// TestDifferences looks at each line of differences.txt. A row that it names is in
// docs/net-http.md.
func TestDifferences(t *testing.T) {
	all, err := parseDifferences(differencesText)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join("..", "docs", "net-http.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if !slices.ContainsFunc(programs, func(p program) bool { return p.name == e.program }) {
			t.Errorf("differences.txt:%d: there is no program %s", e.line, e.program)
		}
		kind, words, ok := strings.Cut(e.reason, ": ")
		switch {
		case !ok || words == "":
			t.Errorf("differences.txt:%d: the reason is %q", e.line, e.reason)
		case kind == "row":
			if !slices.ContainsFunc(strings.Split(string(doc), "\n"), func(line string) bool {
				return strings.HasPrefix(line, "|") && strings.Contains(line, words)
			}) {
				t.Errorf("differences.txt:%d: no row of docs/net-http.md has the words %q", e.line, words)
			}
		case kind != "internals" && kind != "test":
			t.Errorf("differences.txt:%d: a reason is not %q", e.line, kind)
		}
	}
}

func TestParseDifferences(t *testing.T) {
	for text, want := range map[string]string{
		"a | b | fails":            "1 has 3 fields",
		"# c\n\na | ( | fails | r": "3: error parsing regexp",
		"a | b | seldom | r":       "1 says \"seldom\"",
	} {
		if _, err := parseDifferences(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	all, err := parseDifferences("chess | TestA/b\\d | not-run | row: x | y\n")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{name: "chess"}
	if e := find(all, p, "TestA/b1"); e == nil || e.reason != "row: x | y" {
		t.Errorf("TestA/b1 is %+v", e)
	}
	if find(all, p, "TestA/b12") != nil || find(all, &program{name: "go"}, "TestA/b1") != nil {
		t.Error("a line matches too much")
	}
	if got, want := all[0].skip(), "^(?:TestA)$/^(?:b\\d)$"; got != want {
		t.Errorf("skip is %s, not %s", got, want)
	}
}

// TestPrograms looks at each row of the table.
func TestPrograms(t *testing.T) {
	names := map[string]bool{}
	for _, p := range programs {
		if names[p.name] {
			t.Errorf("%s is there twice", p.name)
		}
		names[p.name] = true
		if p.path == "" && p.packages == nil || p.path != "" && !strings.HasPrefix(p.version, "v") {
			t.Errorf("%s has no packages or no version", p.name)
		}
		if p.tests != "" && p.cuts != nil {
			t.Errorf("%s has tests and cuts", p.name)
		}
		for _, pattern := range append(p.cuts, p.skip, p.without, p.tests) {
			if _, err := regexp.Compile(pattern); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
	}
}

// TestShares gives each unit to one share, and no share much more than another.
func TestShares(t *testing.T) {
	all := units([]program{{name: "a", seconds: 90, cuts: []string{"A", "B"}}, {name: "b"}, {name: "c", seconds: 40}})
	var got []string
	for part := 1; part <= 3; part++ {
		sum := 0
		for _, u := range (share{part, 3}).of(all) {
			got = append(got, u.String()+" -run "+u.run+" -skip "+strings.Join(u.skip, "|"))
			sum += u.seconds()
		}
		if sum < 90 || sum > 130 {
			t.Errorf("share %d takes %d s", part, sum)
		}
	}
	slices.Sort(got)
	want := []string{
		"a (1 of 3) -run A -skip ", "a (2 of 3) -run B -skip A", "a (3 of 3) -run  -skip A|B",
		"b -run  -skip ", "c -run  -skip ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, bad := range []string{"", "0/3", "4/3", "1", "a/b"} {
		if _, err := parseShare(bad); err == nil {
			t.Errorf("the share %q is accepted", bad)
		}
	}
}

func TestCompare(t *testing.T) {
	of := func(pairs ...string) outcomes {
		o := outcomes{}
		for i := 0; i < len(pairs); i += 2 {
			o[pairs[i]] = &outcome{result: pairs[i+1]}
		}
		return o
	}
	plain := of("TestGood", passed, "TestBad", passed, "TestGone", passed, "TestBroken", failed, "TestSkip", skipped,
		"TestSub", passed, "TestSub/a", passed, "TestSub/b", passed, "TestPort", passed, "TestPort/1", passed,
		"TestBubble", passed)
	ours := of("TestGood", passed, "TestBad", hung, "TestBroken", failed, "TestSkip", failed,
		"TestSub", failed, "TestSub/a", passed, "TestSub/b", failed, "TestPort", passed, "TestPort/2", passed,
		"TestBubble", passed)
	ours["TestBubble"].output = inBubble + " of some kind"
	plain["TestLate"], ours["TestLate"] = &outcome{result: passed}, &outcome{result: hung}
	plain["TestLate/a"], ours["TestLate/a"] = &outcome{result: passed}, &outcome{result: passed}
	sum, differ := compare(plain, ours)
	if want := (tally{tests: 7, pass: 3, broken: 1, bubble: 1}); sum != want {
		t.Errorf("got %+v, want %+v", sum, want)
	}
	if want := []string{"TestBad", "TestGone", "TestLate", "TestSub/b"}; !slices.Equal(differ, want) {
		t.Errorf("got %v, want %v", differ, want)
	}
}

// sample is a pattern of the tests below, which are what TestRun runs.
const sample = "^TestSample"

func inSample(t *testing.T) {
	if os.Getenv("OTHERS_SAMPLE") == "" {
		t.Skip("TestRun runs it")
	}
}

func TestSampleA(t *testing.T) {
	inSample(t)
	t.Run("good", func(*testing.T) {})
	t.Run("bad", func(t *testing.T) { t.Error("it is") })
	t.Run("panic", func(*testing.T) { panic("now") })
	t.Run("after", func(*testing.T) {})
}

func TestSampleB(t *testing.T) {
	inSample(t)
	t.Parallel()
	t.Run("skip", func(t *testing.T) { t.Skip("no") })
	t.Run("hang", func(*testing.T) { <-make(chan int) })
}

func TestSampleC(t *testing.T) {
	inSample(t)
	t.Run("exit", func(*testing.T) { os.Exit(3) })
	t.Cleanup(func() { os.Exit(4) })
}

func TestSampleD(t *testing.T) { inSample(t) }

// TestRun has a process end in many ways. The tests behind each end are run nevertheless.
func TestRun(t *testing.T) {
	b := &binary{
		file: os.Args[0], dir: ".", env: []string{"OTHERS_SAMPLE=1"}, skip: []string{"^TestSampleC$/^exit$"},
		quiet: 5 * time.Second, log: t.Output(),
	}
	if testing.Short() {
		b.skip = append(b.skip, "/^hang$")
	}
	got, err := b.run(sample)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"TestSampleA/good": passed, "TestSampleA/bad": failed, "TestSampleA/panic": crashed,
		"TestSampleA/after": passed,
		"TestSampleB/skip":  skipped, "TestSampleB/hang": hung, "TestSampleC": crashed, "TestSampleD": passed,
	}
	if testing.Short() {
		delete(want, "TestSampleB/hang")
	}
	results := map[string]string{}
	for _, name := range got.leaves() {
		results[name] = got[name].result
	}
	if !maps.Equal(results, want) {
		t.Errorf("got %v, want %v", results, want)
	}
	if o := got["TestSampleB/hang"]; o != nil {
		text := relevant(o.output)
		if !strings.Contains(text, "TestSampleB.func2") || strings.Contains(text, "TestMain") {
			t.Errorf("the dump is:\n%s", text)
		}
	}
}

// TestRunExits shows that a process that ends without a word in the middle of a test is noticed.
func TestRunExits(t *testing.T) {
	b := &binary{file: os.Args[0], dir: ".", env: []string{"OTHERS_SAMPLE=1"}, quiet: 30 * time.Second, log: t.Output()}
	got, err := b.run("^TestSample[CD]$")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"TestSampleC", "TestSampleC/exit"} {
		if o := got[name]; o == nil || o.result != crashed {
			t.Errorf("%s, which exits: %+v", name, o)
		}
	}
	if o := got["TestSampleD"]; o == nil || o.result != passed {
		t.Errorf("the test behind it: %+v", o)
	}
}

// TestFields shows that package hook finds all fields of http.Server and http.Transport.
func TestFields(t *testing.T) {
	for ours, theirs := range map[reflect.Type]reflect.Type{
		reflect.TypeFor[web.Server]():       reflect.TypeFor[http.Server](),
		reflect.TypeFor[client.Transport](): reflect.TypeFor[http.Transport](),
	} {
		for _, f := range reflect.VisibleFields(theirs) {
			if !f.IsExported() {
				continue
			}
			got, ok := ours.FieldByName(f.Name)
			if !ok || got.Type != f.Type {
				t.Errorf("%v has no field %s of type %v", ours, f.Name, f.Type)
			}
		}
	}
}
