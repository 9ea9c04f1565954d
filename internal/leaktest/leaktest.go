// Package leaktest fails a package's tests for what outlives them: goroutines, descriptors, and
// whatever else the package counts.
package leaktest

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// patience is how long what is just ending may take to end.
const patience = 10 * time.Second

// A Count is something that must be back at 0 when all tests have ended.
type Count struct {
	Name string // in the plural
	Now  func() int
}

// Main is the body of a TestMain: it runs the tests and ends the process. Tests that passed fail
// for goroutines and descriptors that are left, and for counts that are not 0. A run that fuzzes is
// let off for goroutines, of which the fuzzer has its own.
func Main(m *testing.M, counts ...Count) {
	warmUp()
	files := OpenFiles()
	code := m.Run()
	http.DefaultClient.CloseIdleConnections() // the standard library's, kept for later requests
	if code == 0 {
		code = report(os.Stderr, patience, func() string { return leftover(files, counts) })
	}
	os.Exit(code)
}

// warmUp has the runtime open the descriptors that it keeps for itself.
func warmUp() {
	if ln, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		ln.Close()
	}
}

// report repeats the check until nothing remains, or patience has ended. A process that was held up
// for that long is still checked once. It returns the process's exit code.
func report(to io.Writer, patience time.Duration, leftover func() string) int {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		late := !time.Now().Before(deadline)
		what := leftover()
		if what == "" {
			return 0
		}
		if late {
			fmt.Fprintln(to, "left after all tests:", what)
			return 1
		}
	}
}

func leftover(files int, counts []Count) string {
	for _, c := range counts {
		if n := c.Now(); n != 0 {
			return fmt.Sprintf("%d %s", n, c.Name)
		}
	}
	if n := OpenFiles(); n > files {
		return fmt.Sprintf("%d descriptors, %d were open at the start", n, files)
	}
	if others := Goroutines(); others != "" && !fuzzing() {
		return "goroutines:\n" + others
	}
	return ""
}

// Goroutines are the stacks of all but the calling one, and of those that the standard library
// keeps for the process.
func Goroutines() string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var others []string
	for _, stack := range strings.Split(string(stacks), "\n\n")[1:] {
		if !strings.Contains(stack, "os/signal.") {
			others = append(others, stack)
		}
	}
	return strings.Join(others, "\n\n")
}

func fuzzing() bool {
	f := flag.Lookup("test.fuzz")
	return f != nil && f.Value.String() != ""
}

// OpenFiles counts this process's descriptors; 0 where that cannot be told.
func OpenFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
