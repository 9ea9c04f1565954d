// Command release prepares a release of the two published modules: the library at the root, and
// server.
//
//	go run ./tools/release v0.2.0             rewrite server/go.mod and server/go.sum for the release commit
//	go run ./tools/release -proxy DIR v0.2.0  publish both to DIR, a module proxy made of files; change nothing
//
// It runs in the root of a checkout. docs/RELEASING.md has the steps around it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, out, errs io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(errs)
	proxy := flags.String("proxy", "", "publish to this `DIR` and leave the checkout as it is")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("give one version, such as v0.2.0")
	}
	version := flags.Arg(0)
	if err := checkVersion(version); err != nil {
		return err
	}
	library, err := readModule(".", version)
	if err != nil {
		return err
	}
	server, err := readModule("server", version)
	if err != nil {
		return err
	}
	if err := server.require(library); err != nil {
		return err
	}
	if *proxy != "" {
		return errors.Join(library.publish(*proxy), server.publish(*proxy))
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := os.WriteFile(filepath.Join("server", name), server.files[name], 0o644); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, next, version)
	return err
}

const next = `server/go.mod requires the library at %[1]s now, without a replace directive. Next:
  git commit -am "release %[1]s"
  git tag %[1]s && git tag server/%[1]s
  git revert --no-edit HEAD
`

// versions matches semantic versions below v2. From v2 on, the module path would have to change.
var versions = regexp.MustCompile(`^v[01]\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$`)

func checkVersion(v string) error {
	if !versions.MatchString(v) {
		return fmt.Errorf("the version is %q: it must be like v0.2.0 or v1.0.0-rc.1, and below v2", v)
	}
	return nil
}
