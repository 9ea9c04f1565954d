//go:build unix

package drivertest

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Exhaust implements Harness: it lowers the limit on descriptors below those that are open. It
// holds for the process.
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

// room is how many connections may live at a time: the limit on descriptors must allow both ends of
// each, and a hundred others.
func room() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 102 {
		return 1
	}
	return int(min((uint64(limit.Cur)-100)/2, mostLive))
}
