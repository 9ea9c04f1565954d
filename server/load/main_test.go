package load

import (
	"fmt"
	"os"
	"testing"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
)

// workerVariable makes this program a worker.
const workerVariable = "MYRIAD_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		if err := Work(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse})
}
