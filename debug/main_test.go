package debug

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
	if left := leftover(); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, left)
		code = 1
	}
	os.Exit(code)
}

// leftover gives what is just ending some time to end.
func leftover() (what string) {
	for range 200 {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		switch {
		case strings.Contains(string(stacks), "\ngoroutine "):
			what = "goroutines were left behind:\n" + string(stacks)
		case buf.InUse() != 0:
			what = fmt.Sprintf("%d blocks were not released", buf.InUse())
		default:
			return ""
		}
		time.Sleep(10 * time.Millisecond)
	}
	return what
}
