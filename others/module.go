package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// The modules of this repository that the tests of a program import.
const (
	library = "github.com/myriad-go/myriad"
	module  = library + "/others"
)

// A workplace knows where things are.
type workplace struct {
	root   string // of the repository
	cache  string // what is downloaded and built
	goroot string
	race   bool
}

// A tree is a program's source in a place where its tests can be built and run.
type tree struct {
	w   *workplace
	p   *program
	dir string // the go command runs here
	mod string // the go.mod that is used in place of the program's own; empty for the Go release
}

// A pkg is a package with tests.
type pkg struct {
	Name, ImportPath, Dir string
	deps                  []string // of its tests
}

// fetch downloads a program, once. Its tests may write into the copy.
func (w *workplace) fetch(p *program) (*tree, error) {
	if p.path == "" {
		return &tree{w: w, p: p, dir: filepath.Join(w.root, "others")}, nil
	}
	id := flat(p.path + "@" + p.version)
	t := &tree{w: w, p: p, dir: filepath.Join(w.cache, "src", id), mod: filepath.Join(w.cache, "mod", id, "go.mod")}
	if _, err := os.Stat(t.dir); errors.Is(err, fs.ErrNotExist) {
		if err := w.download(p, t.dir); err != nil {
			return nil, err
		}
	}
	return t, t.require()
}

// download gets a module, and copies it into dir.
func (w *workplace) download(p *program, dir string) error {
	cmd := exec.Command("go", "mod", "download", "-json", p.path+"@"+p.version)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if p.sum != "" {
		cmd.Env = append(cmd.Env, "GONOSUMDB="+p.path)
	}
	text, failed := cmd.Output()
	var got struct{ Dir, Error, Sum string }
	if err := json.Unmarshal(text, &got); err != nil || failed != nil {
		return fmt.Errorf("go mod download %s@%s: %w: %s", p.path, p.version, errors.Join(failed, err), got.Error)
	}
	if p.sum != "" && p.sum != got.Sum {
		return fmt.Errorf("%s@%s has the hash %s and not %s, as programs.go says", p.path, p.version, got.Sum, p.sum)
	}
	return copyOnce(dir, got.Dir, p.files)
}

var (
	goLine        = regexp.MustCompile(`(?m)^go [0-9.]+[a-z0-9]*\n`)
	toolchainLine = regexp.MustCompile(`(?m)^toolchain .*\n`)
)

// require makes the go.mod that is used: it requires this repository besides what the program's own
// requires. Both sides of the comparison use it, so that they have equal versions of everything.
func (t *tree) require() error {
	text, err := os.ReadFile(filepath.Join(t.dir, "go.mod"))
	if errors.Is(err, fs.ErrNotExist) { // it is older than modules
		text, err = []byte("module "+t.p.path+"\n"), nil
	}
	if err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(t.dir, "go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ours, err := os.ReadFile(filepath.Join(t.w.root, "go.sum"))
	if err != nil {
		return err
	}
	text = goLine.ReplaceAll(toolchainLine.ReplaceAll(append(text, '\n'), nil), nil)
	text = append(text, "\ngo 1.26.0\n"...)
	for _, folder := range []string{"", "/others"} {
		text = fmt.Appendf(text, "\nrequire %[1]s v0.0.0\n\nreplace %[1]s => %[2]s\n", library+folder, t.w.root+folder)
	}
	// The go command completes both files. They begin anew when what they were made of changes.
	stamp := bytes.Join([][]byte{text, sums, ours}, nil)
	if old, err := os.ReadFile(t.mod + ".stamp"); err == nil && bytes.Equal(old, stamp) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(t.mod), 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(t.mod, text, 0o644),
		os.WriteFile(strings.TrimSuffix(t.mod, ".mod")+".sum", bytes.Join([][]byte{sums, ours}, []byte("\n")), 0o644),
		os.WriteFile(t.mod+".stamp", stamp, 0o644))
}

// command is the go command for the tree.
func (t *tree) command(verb string, args ...string) *exec.Cmd {
	if t.mod != "" {
		args = append([]string{"-mod=mod", "-modfile=" + t.mod}, args...)
	}
	cmd := exec.Command("go", append([]string{verb}, args...)...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOTOOLCHAIN=local")
	return cmd
}

// list gives the packages whose tests link net/http.
func (t *tree) list() ([]pkg, error) {
	patterns := t.p.packages
	if patterns == nil {
		patterns = []string{"./..."}
	}
	args := append([]string{"-e", "-test", "-tags", t.p.tags, "-json=Name,ImportPath,Dir,ForTest,Deps"}, patterns...)
	cmd := t.command("list", args...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &complaints)
	}
	without := regexp.MustCompile(t.p.without)
	plain := map[string]pkg{}
	var tested []pkg
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var one struct {
			pkg
			ForTest string
			Deps    []string
		}
		if err := d.Decode(&one); err != nil {
			return nil, err
		}
		path, isTest := strings.CutSuffix(one.ImportPath, ".test")
		switch {
		case one.ForTest != "" || t.p.without != "" && without.MatchString(path):
		case !isTest:
			plain[path] = one.pkg
		case links(one.Deps, "net/http"):
			found := plain[path]
			found.deps = one.Deps
			tested = append(tested, found)
		}
	}
	if len(tested) == 0 {
		return nil, fmt.Errorf("no package has tests that link net/http\n%s", &complaints)
	}
	return tested, t.inform(tested)
}

// links reports whether path is among deps, also in the form that is compiled for a test.
func links(deps []string, path string) bool {
	for _, dep := range deps {
		if bare, _, _ := strings.Cut(dep, " "); bare == path {
			return true
		}
	}
	return false
}

// build compiles the tests of a package into file. An overlay is a file; empty: net/http alone.
func (t *tree) build(one pkg, file, overlay string) error {
	tags := t.p.tags
	args := []string{"-c", "-vet=off", "-o", file}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
		tags = strings.TrimPrefix(tags+",others", ",")
	}
	if t.w.race {
		args = append(args, "-race")
	}
	cmd := t.command("test", append(args, "-tags", tags, one.ImportPath)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c %s: %w\n%s", one.ImportPath, err, text)
	}
	return nil
}
