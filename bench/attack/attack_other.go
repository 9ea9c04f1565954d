//go:build !linux

package attack

import (
	"fmt"
	"os"
)

// Main is the process: on Linux, as the load drivers.
func Main() {
	fmt.Fprintln(os.Stderr, "attack: it needs Linux")
	os.Exit(1)
}
