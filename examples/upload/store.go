package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A store is a directory of files, named by unguessable ids. The folder is all there is to know:
// ID.part is on its way, ID is accepted, ID.json says what came of it.
type store struct{ dir string }

const (
	partEnd   = ".part"
	reportEnd = ".json"
)

var idForm = regexp.MustCompile(`^[A-Z2-7]{26}$`) // rand.Text's

// A report is what is known of a file.
type report struct {
	State  string `json:"state"` // stateWaiting and so on
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	Error  string `json:"error,omitempty"`
}

const (
	stateWaiting = "waiting"
	stateDone    = "done"
	stateFailed  = "failed"
)

// openStore makes the folder, and clears away what had not come completely when the program ended.
func openStore(dir string) (store, error) {
	s := store{dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return s, err
	}
	parts, err := filepath.Glob(filepath.Join(dir, "*"+partEnd))
	for _, name := range parts {
		err = errors.Join(err, os.Remove(name))
	}
	return s, err
}

func (s store) path(id string) string { return filepath.Join(s.dir, id) }

// save streams r to a new file. It is there with all its bytes and on the disk, or not at all.
func (s store) save(r io.Reader) (id string, err error) {
	id = rand.Text()
	return id, s.write(id, func(f *os.File) error {
		_, err := io.Copy(f, r)
		return err
	})
}

func (s store) saveReport(id string, r report) error {
	return s.write(id+reportEnd, func(f *os.File) error { return json.NewEncoder(f).Encode(r) })
}

func (s store) write(name string, fill func(f *os.File) error) error {
	part := s.path(name + partEnd)
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(part, s.path(name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return s.sync()
}

// sync makes the folder's names as durable as the files.
func (s store) sync() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s store) remove(id string) error { return os.Remove(s.path(id)) }

// report fails with fs.ErrNotExist if there is no such file, whatever the id looks like.
func (s store) report(id string) (r report, err error) {
	if !idForm.MatchString(id) {
		return r, fs.ErrNotExist
	}
	text, err := os.ReadFile(s.path(id + reportEnd))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(s.path(id))
		return report{State: stateWaiting}, err
	}
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// waiting lists the files without a report.
func (s store) waiting() (ids []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	reported := map[string]bool{}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), reportEnd); ok {
			reported[id] = true
		}
	}
	for _, e := range entries {
		if idForm.MatchString(e.Name()) && !reported[e.Name()] {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}
