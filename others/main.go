// Command others runs the tests of programs that people use, once on net/http and once with web.Server and
// client.Transport behind every http.Server and http.Transport, and compares them test by test.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const module = "github.com/myriad-go/myriad/others"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "others:", err)
		os.Exit(1)
	}
}

func run() error {
	only := flag.String("only", "", "a pattern of programs")
	tests := flag.String("run", "", "a pattern of tests")
	verbose := flag.Int("v", 0, "bytes of each difference's output")
	retry := flag.Bool("again", true, "run differences again")
	quiet := flag.Duration("quiet", 60*time.Second, "a process in which no test begins or ends for so long hangs")
	flag.Parse()
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	text, err := exec.Command("go", "env", "-json", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return err
	}
	var env struct{ GOROOT, GOVERSION string }
	if err := json.Unmarshal(text, &env); err != nil {
		return err
	}
	w := &workplace{root: root, cache: filepath.Join(cache, "myriad-others"), goroot: env.GOROOT, goVersion: env.GOVERSION}
	pattern := regexp.MustCompile(*only)
	for i := range programs {
		p := &programs[i]
		if !pattern.MatchString(p.name) {
			continue
		}
		if err := w.program(p, *tests, *verbose, *retry, *quiet); err != nil {
			fmt.Printf("%s: %v\n", p.name, err)
		}
	}
	return nil
}

func (w *workplace) program(p *program, tests string, verbose int, retry bool, quiet time.Duration) error {
	t, err := w.fetch(p)
	if err != nil {
		return err
	}
	pkgs, err := t.list()
	if err != nil {
		return err
	}
	if len(pkgs) == 0 {
		return fmt.Errorf("no package has tests that link net/http")
	}
	for _, one := range pkgs {
		began := time.Now()
		id := strings.NewReplacer("/", "_", ".", "_").Replace(one.ImportPath)
		dir := filepath.Join(w.cache, "build", strings.ReplaceAll(p.name, "/", "_"))
		o, err := newOverlay(w.goroot, filepath.Join(w.cache, "overlay"))
		if err != nil {
			return err
		}
		if err := o.link(one, filepath.Join(w.cache, "overlay")); err != nil {
			return err
		}
		file := filepath.Join(dir, id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := o.write(file + ".json"); err != nil {
			return err
		}
		if _, err := os.Stat(file + ".plain"); err != nil || true {
			if err := t.build(one, file+".plain", ""); err != nil {
				fmt.Println(err)
				continue
			}
		}
		if err := t.build(one, file+".ours", file+".json"); err != nil {
			fmt.Println(err)
			continue
		}
		built := time.Since(began)
		var skip []string
		if p.skip != "" {
			skip = append(skip, p.skip)
		}
		log := func(name string) *os.File { f, _ := os.Create(file + name); return f }
		plain := &binary{file: file + ".plain", dir: one.Dir, args: p.args, env: p.env, skip: skip, quiet: quiet, log: log(".plain.log")}
		ours := &binary{file: file + ".ours", dir: one.Dir, args: p.args, env: p.env, skip: append(skip, hanging[p.name]...), quiet: quiet, log: log(".ours.log")}
		a, err := plain.run(tests)
		if err != nil {
			fmt.Println(err)
		}
		tookPlain := time.Since(began) - built
		b, err := ours.run(tests)
		if err != nil {
			fmt.Println(err)
		}
		tookOurs := time.Since(began) - built - tookPlain
		sum, differ := compare(a, b)
		fmt.Printf("%s %s: %d of %d, bubble %d, broken %d (build %.0f s, plain %.0f s, ours %.0f s)\n", p.name, one.ImportPath, sum.pass, sum.tests,
			sum.bubble, sum.broken, built.Seconds(), tookPlain.Seconds(), tookOurs.Seconds())
		done := map[string]string{}
		for _, name := range differ {
			result := "not run"
			if b[name] != nil {
				result = b[name].Result
			}
			note := ""
			top, _, _ := strings.Cut(name, "/")
			if retry && result == "fail" {
				if done[name] == "" {
					x, y, err := again(plain, ours, name)
					done[name] = fmt.Sprintf(" (again: net/http %d of 3, ours %d of 3, %v)", x, y, err)
				}
				note = done[name]
			}
			_ = top
			fmt.Printf("  %s: %s%s\n", name, result, note)
			if verbose > 0 && b[name] != nil {
				text := relevant(b[name].Output)
				if len(text) > verbose {
					text = text[:verbose]
				}
				fmt.Println("\t| " + strings.ReplaceAll(text, "\n", "\n\t| "))
			}
		}
	}
	return nil
}

var hanging = map[string][]string{
	"net/http": {},
}
