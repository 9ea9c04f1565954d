package push

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestMain fails when goroutines are left after the tests.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	fuzzing := flag.Lookup("test.fuzz").Value.String() != "" // leaves goroutines of its own
	if code == 0 && !fuzzing && !settled(before) {
		stacks := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "push: goroutines are left after the tests:\n%s\n", stacks[:runtime.Stack(stacks, true)])
		code = 1
	}
	os.Exit(code)
}

// settled gives goroutines that are on their way out the time to end.
func settled(before int) bool {
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}
