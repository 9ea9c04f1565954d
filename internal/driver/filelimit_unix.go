//go:build unix

package driver

import "syscall"

// FileLimit is how many descriptors the process may have; false: it is not known.
func FileLimit() (uint64, bool) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur <= 0 {
		return 0, false
	}
	return uint64(l.Cur), true
}
