//go:build !linux

package load

import (
	"fmt"
	"os"
)

// Main is a driver process: on Linux, whose epoll it is made of.
func Main() {
	fmt.Fprintln(os.Stderr, "load driver: it needs Linux's epoll")
	os.Exit(1)
}
