package proc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// clock is the time that a process has run on processors.
func clock(pid int) (time.Duration, error) {
	var now unix.Timespec
	// clock_getcpuclockid(3): the complement of the pid, then the kind of clock, of which 2 is this
	// time.
	err := unix.ClockGettime(int32(^pid<<3|2), &now)
	return time.Duration(now.Nano()), err
}

// waitedFor is the time that children have run which have ended and been waited for.
func waitedFor() (time.Duration, error) {
	var used unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_CHILDREN, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), err
}

// RaiseFiles sets the limit of open files to the most this process may have, and returns it.
// Children inherit it.
func RaiseFiles() (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return int(min(limit.Cur, 1<<20)), nil
}

// Monotonic is the time of the clock that all processes of the machine share, in nanoseconds.
func Monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail on Linux
	return now.Nano()
}
