package harness

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// Centrifugo is the version that bench builds. It is no requirement of this module, because it has
// a few hundred of its own.
const Centrifugo = "github.com/centrifugal/centrifugo/v6@v6.9.1"

// InstalledFolder is a folder beside the servers' programs. It holds programs of other projects
// that bench has built.
const InstalledFolder = "installed"

var errNoCentrifugo = errors.New("there is no centrifugo: install it with go install " + Centrifugo)

// FindCentrifugo looks in PATH, where go install puts programs, and in InstalledFolder beside this
// program.
func FindCentrifugo() (string, error) {
	if path, err := exec.LookPath("centrifugo"); err == nil {
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		if found, err := exec.LookPath(filepath.Join(filepath.Dir(self), InstalledFolder, "centrifugo")); err == nil {
			return found, nil
		}
	}
	for _, env := range []string{"GOBIN", "GOPATH"} {
		dir, err := exec.Command("go", "env", env).Output()
		if err != nil {
			return "", errNoCentrifugo
		}
		path := string(dir[:max(len(dir)-1, 0)])
		if env == "GOPATH" {
			path = filepath.Join(path, "bin")
		}
		if found, err := exec.LookPath(filepath.Join(path, "centrifugo")); path != "" && err == nil {
			return found, nil
		}
	}
	return "", errNoCentrifugo
}
