package push_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Only a door's package imports the door's codec. Errors have the same shape in all doors
// (answer.go), and kind.go uses its JSON strings.
func TestOnlyDoorsNameTheirProtocol(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if file == "answer.go" || file == "kind.go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "internal/centrifuge\"") {
			t.Errorf("%s imports a door's codec", file)
		}
	}
}
