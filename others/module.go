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

// A workplace has the directories that programs are built in.
type workplace struct {
	root      string // of the repository
	cache     string
	goroot    string
	goVersion string
	out       func(format string, args ...any)
}

// A tree is a program's source, where its tests can be built.
type tree struct {
	w   *workplace
	p   *program
	dir string // where the go command runs
	mod string // the go.mod to use in place of its own; none for the Go release
}

// fetch downloads a program, once, into a directory that its tests may write to. The go.mod that is used requires this
// repository too, on both sides of the comparison, so that both have the same versions of everything.
func (w *workplace) fetch(p *program) (*tree, error) {
	if p.path == "" {
		return &tree{w: w, p: p, dir: filepath.Join(w.root, "others")}, nil
	}
	id := strings.ReplaceAll(p.path, "/", "_") + "@" + p.version
	t := &tree{w: w, p: p, dir: filepath.Join(w.cache, "src", id), mod: filepath.Join(w.cache, "mod", id, "go.mod")}
	if _, err := os.Stat(t.dir); errors.Is(err, fs.ErrNotExist) {
		if err := w.download(p, t.dir); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if err := t.require(); err != nil {
		return nil, err
	}
	return t, nil
}

func (w *workplace) download(p *program, dir string) error {
	cmd := exec.Command("go", "mod", "download", "-json", p.path+"@"+p.version)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GOWORK=off")
	text, err := cmd.Output()
	var got struct{ Dir, Error string }
	if json.Unmarshal(text, &got) == nil && got.Error != "" {
		return errors.New(got.Error)
	}
	if err != nil {
		return fmt.Errorf("go mod download %s@%s: %w", p.path, p.version, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	half, err := os.MkdirTemp(filepath.Dir(dir), "half-")
	if err != nil {
		return err
	}
	if err := os.CopyFS(half, os.DirFS(got.Dir)); err != nil {
		return err
	}
	err = filepath.WalkDir(half, func(path string, d fs.DirEntry, err error) error {
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
	return os.Rename(half, dir)
}

// require makes the go.mod that has this repository besides what the program requires.
func (t *tree) require() error {
	text, err := os.ReadFile(filepath.Join(t.dir, "go.mod"))
	if errors.Is(err, fs.ErrNotExist) {
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
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	main := strings.TrimSuffix(module, "/others")
	text = fmt.Appendf(text, "\nrequire (\n\t%s v0.0.0\n\t%s v0.0.0\n)\n\nreplace (\n\t%s => %s\n\t%s => %s\n)\n",
		main, module, main, t.w.root, module, filepath.Join(t.w.root, "others"))
	// Relative replacements are relative to the main module's directory, and stay right with -modfile.
	text = goLine.ReplaceAll(text, []byte("go 1.26.0\n"))
	text = toolchainLine.ReplaceAll(text, nil)
	if !goLine.Match(text) {
		text = append(text, "\ngo 1.26.0\n"...)
	}
	stamp := append(append([]byte{}, text...), ours...)
	if old, err := os.ReadFile(t.mod + ".stamp"); err == nil && bytes.Equal(old, stamp) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(t.mod), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(t.mod, text, 0o644); err != nil {
		return err
	}
	if len(sums) > 0 && !bytes.HasSuffix(sums, []byte("\n")) {
		sums = append(sums, '\n')
	}
	if err := os.WriteFile(strings.TrimSuffix(t.mod, ".mod")+".sum", append(sums, ours...), 0o644); err != nil {
		return err
	}
	return os.WriteFile(t.mod+".stamp", stamp, 0o644)
}

var (
	goLine        = regexp.MustCompile(`(?m)^go [0-9.]+[a-z0-9]*\n`)
	toolchainLine = regexp.MustCompile(`(?m)^toolchain .*\n`)
)

// command is the go command, run for the tree.
func (t *tree) command(verb string, args ...string) *exec.Cmd {
	if t.mod != "" {
		args = append([]string{"-mod=mod", "-modfile=" + t.mod}, args...)
	}
	cmd := exec.Command("go", append([]string{verb}, args...)...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOTOOLCHAIN=local")
	return cmd
}

// A pkg is a package with tests.
type pkg struct{ Name, ImportPath, Dir string }

// list gives the packages whose tests link net/http.
func (t *tree) list() ([]pkg, error) {
	patterns := t.p.packages
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	cmd := t.command("list", append([]string{"-e", "-test", "-json=Name,ImportPath,Dir,ForTest,Deps"}, patterns...)...)
	var errors strings.Builder
	cmd.Stderr = &errors
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, errors.String())
	}
	var without *regexp.Regexp
	if t.p.without != "" {
		without = regexp.MustCompile(t.p.without)
	}
	names := map[string]pkg{}
	var found []pkg
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var one struct {
			pkg
			ForTest string
			Deps    []string
		}
		if err := d.Decode(&one); err != nil {
			return nil, err
		}
		if one.ForTest == "" && !strings.HasSuffix(one.ImportPath, ".test") {
			names[one.ImportPath] = one.pkg
		}
		path, isTest := strings.CutSuffix(one.ImportPath, ".test")
		if !isTest || one.Name != "main" || without != nil && without.MatchString(path) {
			continue
		}
		for _, dep := range one.Deps {
			if bare, _, _ := strings.Cut(dep, " "); bare == "net/http" {
				found = append(found, pkg{ImportPath: path})
				break
			}
		}
	}
	for i, p := range found {
		found[i] = names[p.ImportPath]
	}
	return found, nil
}

// build compiles the tests of a package into file, with an overlay or without.
func (t *tree) build(p pkg, file, overlay string) error {
	args := []string{"-c", "-vet=off", "-o", file}
	if overlay != "" {
		args = append(args, "-overlay", overlay, "-tags", "others")
	}
	cmd := t.command("test", append(args, p.ImportPath)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c %s: %w\n%s", p.ImportPath, err, text)
	}
	return nil
}
