// Command minutes reads what go test -json writes, and prints the seconds of each package as a
// table in Markdown, the slowest first. It fails if a test has failed.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
)

// An event is one line of go test -json, see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
}

func main() {
	log.SetFlags(0)
	if err := report(os.Stdin, os.Stdout); err != nil {
		log.Fatal("minutes: ", err)
	}
}

func report(from io.Reader, to io.Writer) error {
	packages, err := read(from)
	if err != nil {
		return err
	}
	slices.SortFunc(packages, func(a, b event) int {
		return cmp.Or(cmp.Compare(b.Elapsed, a.Elapsed), cmp.Compare(a.Package, b.Package))
	})
	fmt.Fprint(to, "| package | seconds |\n|---|--:|\n")
	rest, count := 0.0, 0
	for _, p := range packages {
		if p.Elapsed < 1 {
			rest += p.Elapsed
			count++
			continue
		}
		fmt.Fprintf(to, "| `%s` | %.0f |\n", p.Package, p.Elapsed)
	}
	_, err = fmt.Fprintf(to, "| %d others | %.0f |\n", count, rest)
	return err
}

// read returns the events that end a package.
func read(from io.Reader) (packages []event, err error) {
	for d := json.NewDecoder(from); ; {
		var e event
		switch err := d.Decode(&e); {
		case err == io.EOF && len(packages) == 0:
			return nil, fmt.Errorf("no package has passed: pipe the output of go test -json to this program")
		case err == io.EOF:
			return packages, nil
		case err != nil:
			return nil, fmt.Errorf("this is not the output of go test -json: %w", err)
		case e.Test != "":
		case e.Action == "fail":
			return nil, fmt.Errorf("the tests of %s have failed", e.Package)
		case e.Action == "pass":
			packages = append(packages, e)
		}
	}
}
