package epoll

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Thread is gettid.
func (System) Thread() int {
	n, _, _ := unix.RawSyscall(unix.SYS_GETTID, 0, 0, 0)
	return int(n)
}

// Ran reads the thread's clock.
func (System) Ran(thread int) time.Duration {
	// As the kernel makes the number of such a clock: the complement of the thread's, shifted by
	// three bits; 4 for a thread and 2 for time by the scheduler (include/linux/posix-timers.h).
	clock := int32(^thread<<3 | 4 | 2)
	var t unix.Timespec
	if unix.ClockGettime(clock, &t) != nil {
		return -1
	}
	return time.Duration(t.Nano())
}

// Ready reads the state that proc(5) has of the thread.
func (System) Ready(thread int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", thread))
	if err != nil {
		return false
	}
	_, state, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" ")) // a name may have anything in it
	return found && bytes.HasPrefix(state, []byte("R"))
}
