package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// A checker looks for goroutines that a test leaves behind.
type checker struct {
	path, file string // of its package; no path: the program's own directory
	// anchor is in front of where the checker decides about a goroutine, whose stack is the
	// expression stack. It ignores the goroutine by the statement ignore.
	anchor, stack, ignore string
}

var checkers = []checker{
	{
		"github.com/fortytw2/leaktest", "leaktest.go",
		"\tstack := strings.TrimSpace(sl[1])\n", "stack", "return nil, nil",
	},
	{
		"go.uber.org/goleak", "options.go",
		"func (o *opts) filter(s stack.Stack) bool {\n", "s.Full()", "return true",
	},
	{
		"google.golang.org/grpc/internal/leakcheck", "leakcheck.go",
		"func ignore(g string) bool {\n", "g", "return true",
	},
}

// idle are functions of goroutines that outlive tests: loops run as long as the program, and
// workers without work retire after some seconds.
var idle = []string{"myriad.(*Loop).poll(", "workers.(*worker).next(", "workers.(*Pool).monitor("}

// inform has the checkers that the packages link ignore such goroutines. A checker's module is
// copied for that, unless that is the program itself.
func (t *tree) inform(packages []pkg) error {
	if own := t.p.checks; own != nil {
		if err := own.change(filepath.Join(t.dir, own.file)); err != nil {
			return err
		}
	}
	for _, c := range checkers {
		for _, one := range packages {
			if links(one.deps, c.path) {
				if err := t.replace(c); err != nil {
					return fmt.Errorf("%s: %w", c.path, err)
				}
				break
			}
		}
	}
	return nil
}

func (t *tree) replace(c checker) error {
	if t.mod != "" { // where it is before anything is replaced
		if err := exec.Command("go", "mod", "edit", "-dropreplace="+c.path, t.mod).Run(); err != nil {
			return fmt.Errorf("go mod edit: %w", err)
		}
	}
	text, err := t.command("list", "-json=Dir,Module", c.path).Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	var found struct {
		Dir    string
		Module struct{ Path, Version, Dir string }
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return err
	}
	dir := found.Dir
	if !strings.HasPrefix(dir, t.w.cache) {
		m := found.Module
		place := filepath.Join(t.w.cache, "src", "idle_"+flat(m.Path+"@"+m.Version))
		if err := copyOnce(place, m.Dir, map[string]string{"go.mod": "module " + m.Path + "\n"}); err != nil {
			return err
		}
		if err := exec.Command("go", "mod", "edit", "-replace="+m.Path+"="+place, t.mod).Run(); err != nil {
			return fmt.Errorf("go mod edit: %w", err)
		}
		dir = filepath.Join(place, strings.TrimPrefix(dir, m.Dir))
	}
	return c.change(filepath.Join(dir, c.file))
}

// change has the file of a checker ignore idle goroutines.
func (c checker) change(file string) error {
	p, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var quoted []string
	for _, s := range idle {
		quoted = append(quoted, strconv.Quote(s))
	}
	added := fmt.Sprintf("\tfor _, idle := range []string{%s} {\n"+
		"\t\tif strings.Contains(%s, idle) {\n\t\t\t%s\n\t\t}\n\t}\n",
		strings.Join(quoted, ", "), c.stack, c.ignore)
	text := string(p)
	if strings.Contains(text, added) {
		return nil
	}
	if n := strings.Count(text, c.anchor); n != 1 {
		return fmt.Errorf("%s has %q %d times and not once: adapt checkers.go", file, c.anchor, n)
	}
	return os.WriteFile(file, []byte(strings.Replace(text, c.anchor, c.anchor+added, 1)), 0o644)
}

// copyOnce copies a module into dir, whose files can be written. It adds files that the module
// lacks. dir appears complete or not at all.
func copyOnce(dir, from string, files map[string]string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), "part-")
	if err != nil {
		return err
	}
	if err := os.CopyFS(part, os.DirFS(from)); err != nil {
		return err
	}
	err = filepath.WalkDir(part, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.Chmod(path, info.Mode()|0o200)
	})
	if err != nil {
		return err
	}
	for name, text := range files {
		file := filepath.Join(part, name)
		if _, err := os.Stat(file); err == nil {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return os.Rename(part, dir)
}
