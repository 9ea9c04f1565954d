package sim_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
)

// TestMain fails on goroutines and blocks that outlive the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if n := buf.InUse(); n != 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d blocks were not released\n", n)
		code = 1
	}
	if left := leaked(); left != "" && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines were left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leaked gives goroutines that have ended, but not gone yet, some time to go.
func leaked() string {
	var stacks string
	for range 100 {
		b := make([]byte, 1<<20)
		stacks = string(b[:runtime.Stack(b, true)])
		if strings.Count(stacks, "\ngoroutine ") == 0 {
			return ""
		}
		time.Sleep(10 * time.Millisecond)
	}
	return stacks
}
