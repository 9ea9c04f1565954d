package myriad_test

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
)

// fewFilesEnv marks the child process of TestFewFiles.
const fewFilesEnv = "MYRIAD_TEST_FEW_FILES"

// TestMain fails on goroutines, descriptors and blocks that outlive the tests.
func TestMain(m *testing.M) {
	if os.Getenv(fewFilesEnv) != "" {
		os.Exit(m.Run()) // the child process of TestFewFiles
	}
	if ln, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		ln.Close() // the runtime's poller has descriptors of its own from now on
	}
	before := openFiles()
	code := m.Run()
	if left := leftover(before); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, left)
		code = 1
	}
	os.Exit(code)
}

// leftover gives what is just ending some time to end.
func leftover(files int) (what string) {
	for range 200 {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		switch {
		case strings.Count(string(stacks), "\ngoroutine ") > 0:
			what = "goroutines were left behind:\n" + string(stacks)
		case buf.InUse() != 0:
			what = fmt.Sprintf("%d blocks were not released", buf.InUse())
		case openFiles() > files:
			what = fmt.Sprintf("%d descriptors are open, %d were at the start", openFiles(), files)
		default:
			return ""
		}
		time.Sleep(10 * time.Millisecond)
	}
	return what
}

// openFiles counts this process's descriptors, or says 0 where that cannot be told.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
