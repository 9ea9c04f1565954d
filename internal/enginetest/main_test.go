// Package enginetest tests the engine from outside: on the drivers of the system, and in simulated
// worlds.
package enginetest

import (
	"os"
	"testing"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
)

// fewFilesEnv marks the child process of TestFewFiles.
const fewFilesEnv = "MYRIAD_TEST_FEW_FILES"

// TestMain fails on goroutines, descriptors and blocks that outlive the tests.
func TestMain(m *testing.M) {
	if os.Getenv(fewFilesEnv) != "" {
		os.Exit(m.Run()) // the child process of TestFewFiles
	}
	leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse})
}
