package harness

import (
	"errors"
	"os/exec"
	"path/filepath"
)

// errNoCentrifugo says what is missing. The bench does not build it by itself: it has a few hundred
// dependencies.
var errNoCentrifugo = errors.New("there is no centrifugo: install it with " +
	"go install github.com/centrifugal/centrifugo/v6@v6.9.1")

// FindCentrifugo looks in PATH, and where go install puts programs.
func FindCentrifugo() (string, error) {
	if path, err := exec.LookPath("centrifugo"); err == nil {
		return path, nil
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
