package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A module is one module of the repository with the files of its zip file: those that git tracks,
// without nested modules. https://go.dev/ref/mod#zip-files
type module struct {
	path, version string
	files         map[string][]byte // by slash-separated name
}

func readModule(dir, version string) (*module, error) {
	m := &module{version: version, files: map[string][]byte{}}
	names, err := tracked(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if nested(name, names) {
			continue
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
			continue // removed, or a link, which module zip files omit
		}
		if m.files[name], err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	if _, ok := m.files["LICENSE"]; !ok { // the go command adds the repository's
		if m.files["LICENSE"], err = os.ReadFile("LICENSE"); err != nil {
			return nil, err
		}
	}
	line, _, _ := strings.Cut(string(m.files["go.mod"]), "\n")
	var ok bool
	if m.path, ok = strings.CutPrefix(line, "module "); !ok {
		return nil, fmt.Errorf("%s/go.mod begins with %q: it must begin with the module's path", dir, line)
	}
	return m, nil
}

// tracked lists the files below dir that git tracks, relative to it.
func tracked(dir string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w", dir, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}

// nested reports whether a file belongs to a nested module.
func nested(name string, names []string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if slices.Contains(names, dir+"/go.mod") {
			return true
		}
	}
	return false
}

// require makes the module depend on the published library instead of the parent directory.
func (m *module) require(library *module) error {
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "go.mod")
	if err := os.WriteFile(file, m.files["go.mod"], 0o644); err != nil {
		return err
	}
	edit := exec.Command("go", "mod", "edit", "-dropreplace="+library.path,
		"-require="+library.path+"@"+library.version, file)
	if out, err := edit.CombinedOutput(); err != nil {
		return fmt.Errorf("go mod edit: %w: %s", err, out)
	}
	if m.files["go.mod"], err = os.ReadFile(file); err != nil {
		return err
	}
	m.addSums(library)
	return nil
}

// addSums adds the library's checksums to go.sum.
func (m *module) addSums(library *module) {
	lines := slices.DeleteFunc(strings.SplitAfter(string(m.files["go.sum"]), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, library.path+" ")
	})
	id := library.path + " " + library.version
	lines = append(lines, id+" "+library.sum()+"\n",
		id+"/go.mod "+hash1(map[string][]byte{"go.mod": library.files["go.mod"]})+"\n")
	slices.Sort(lines)
	m.files["go.sum"] = []byte(strings.Join(lines, ""))
}

// named returns the files by their names in the zip file.
func (m *module) named() map[string][]byte {
	all := make(map[string][]byte, len(m.files))
	for name, p := range m.files {
		all[m.path+"@"+m.version+"/"+name] = p
	}
	return all
}

func (m *module) sum() string { return hash1(m.named()) }

// hash1 returns the h1 checksum of go.sum: SHA-256 of a list of the files' SHA-256 sums.
func hash1(files map[string][]byte) string {
	list := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(list, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return "h1:" + base64.StdEncoding.EncodeToString(list.Sum(nil))
}

// publish writes the module to a file-based module proxy. https://go.dev/ref/mod#goproxy-protocol
func (m *module) publish(proxy string) error {
	dir := filepath.Join(proxy, filepath.FromSlash(m.path), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	archive, err := m.zip()
	if err != nil {
		return err
	}
	for name, p := range map[string][]byte{
		"list":              []byte(m.version + "\n"),
		m.version + ".info": fmt.Appendf(nil, "{\"Version\":%q}\n", m.version),
		m.version + ".mod":  m.files["go.mod"],
		m.version + ".zip":  archive,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), p, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (m *module) zip() ([]byte, error) {
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	all := m.named()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write(all[name])
		}
		if err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}
