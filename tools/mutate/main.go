// Command mutate measures how much the short tests of a package notice. It makes one small mistake
// at a time in the package's files, runs the tests, and prints each mistake that they let pass.
//
//	go run ./tools/mutate [-run regexp] [-most 1s] [-at file.go:12,file.go:40] web/internal/http1/conn.go ...
//
// The mistakes are:
//
//   - another comparison, or another arithmetic operator
//   - && for ||, and || for &&
//   - a negated condition
//   - true for false, and false for true
//   - a call or an assignment left out
//
// All mistakes are in one test binary, and an environment variable switches one on. So a mistake
// needs no build, and only the tests that reach it run. The engine has a second test binary, that
// of internal/enginetest.
//
// A mistake is caught if a test that passes without it fails twice with it. Tests wait for four
// seconds at most for what must happen, with a mistake and without, if they ask soak.Patience. A
// test that does not end is counted apart, because a busy machine could have delayed it.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("mutate: ")
	run := flag.String("run", ".", "only the tests that match this `regexp`")
	at := flag.String("at", "", "only the mistakes in these `lines`, as in conn.go:75,conn.go:90")
	most := flag.Duration("most", time.Hour, "only the tests that take no longer than this `time` without a mistake")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	folder, err := os.MkdirTemp("", "mutate")
	if err != nil {
		log.Fatal(err)
	}
	err = mutate(folder, flag.Args(), selection{*run, *at, *most, elsewhere[filepath.Dir(flag.Arg(0))]}, os.Stdout)
	os.RemoveAll(folder)
	if err != nil {
		log.Fatal(err)
	}
}

// A selection is what is tried of the mistakes, and by what.
type selection struct {
	run  string        // a regexp that tests match
	at   string        // lines, separated by commas; empty: all
	most time.Duration // that a test takes
	also []string      // folders of packages whose tests run besides the package's own
}

func mutate(folder string, files []string, of selection, to io.Writer) error {
	b, err := build(folder, files, of.also)
	if err != nil {
		return err
	}
	tests, err := b.tests(of, to)
	if err != nil {
		return err
	}
	counts := map[string]*count{}
	for i, s := range b.sites {
		number := i + 1
		if b.broken[number] || of.at != "" && !wanted(of.at, s) {
			continue
		}
		c := counts[s.file]
		if c == nil {
			c = new(count)
			counts[s.file] = c
		}
		result := b.try(number, tests)
		c.add(result)
		if result != caught {
			fmt.Fprintf(to, "%s:%d: %s: %s\n", s.file, s.line, s.what, result)
		}
	}
	for _, f := range files {
		if c := counts[f]; c != nil {
			fmt.Fprintf(to, "%s: %v\n", f, c)
		}
	}
	return nil
}

// wanted reports whether s is in one of the lines.
func wanted(lines string, s site) bool {
	for l := range strings.SplitSeq(lines, ",") {
		if strings.HasSuffix("/"+fmt.Sprint(s.file, ":", s.line), "/"+l) {
			return true
		}
	}
	return false
}

// A result is how the tests do with a mistake.
type result uint8

const (
	caught  result = iota // one fails
	lived                 // all pass
	hangs                 // one does not end, and none fails
	unknown               // none reaches it
)

func (r result) String() string {
	return [...]string{"caught", "LIVED", "HUNG", "not reached"}[r]
}

type count [unknown + 1]int

func (c *count) add(r result) { c[r]++ }

func (c *count) String() string {
	covered := c[caught] + c[lived] + c[hangs]
	return fmt.Sprintf("%d of %d covered mutants caught (%.0f %%), %d hung, %d not reached", c[caught], covered,
		100*float64(c[caught])/float64(max(covered, 1)), c[hangs], c[unknown])
}
