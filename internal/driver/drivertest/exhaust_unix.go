//go:build unix

package drivertest

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Exhaust implements Harness: it lowers the limit on descriptors below those that are open. It holds for the process.
func (h *netHarness) Exhaust() (restore func(), ok bool) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		return nil, false
	}
	none := before
	none.Cur = 1
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		return nil, false
	}
	return sync.OnceFunc(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			panic("drivertest: the limit on descriptors cannot be restored: " + err.Error())
		}
	}), true
}
