package load

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// No test may leave a goroutine or a descriptor behind.
func TestMain(m *testing.M) {
	before := descriptors()
	code := m.Run()
	for deadline := time.Now().Add(20 * time.Second); code == 0 &&
		runtime.NumGoroutine() > 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", stacks[:runtime.Stack(stacks, true)])
			code = 1
		}
	}
	// The runtime's own poller is opened with the first connection: an epoll and an eventfd.
	if after := descriptors(); code == 0 && after > before+2 {
		fmt.Fprintf(os.Stderr, "%d descriptors before, %d after\n", before, after)
		code = 1
	}
	os.Exit(code)
}

func descriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	return len(entries)
}
