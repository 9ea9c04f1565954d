// Package proc reads from outside what processes and the machine have used: Linux's /proc and the
// clock that the kernel keeps for each process.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is USER_HZ, the unit of times in /proc, which Linux has fixed for programs.
const tick = time.Second / 100

// Times are what a process has used of the processors so far.
type Times struct {
	Total        time.Duration // to the nanosecond, from the process's clock
	User, System time.Duration // in ticks of 10 ms, from /proc/PID/stat
}

// Sub is the time used since an earlier reading.
func (t Times) Sub(earlier Times) Times {
	return Times{t.Total - earlier.Total, t.User - earlier.User, t.System - earlier.System}
}

// CPU reads a process's times. Total comes from the process's CPU clock, because ticks of ten
// milliseconds are too coarse for short runs. The kernel derives utime and stime from the same
// counter. Children do not count.
func CPU(pid int) (Times, error) {
	total, err := clock(pid)
	if err != nil {
		return Times{}, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Times{}, fmt.Errorf("CPU time: %w", err)
	}
	t, err := parseStat(stat)
	t.Total = total
	return t, err
}

// parseStat reads utime and stime, fields 14 and 15 of proc_pid_stat(5).
func parseStat(stat []byte) (Times, error) {
	// The second field is a name in parentheses that may hold spaces; what follows the last one is
	// regular, from field 3 on.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return Times{}, fmt.Errorf("/proc/PID/stat has %d fields behind the name, not at least 13: %q", len(fields),
			stat)
	}
	user, err1 := strconv.ParseInt(string(fields[14-3]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[15-3]), 10, 64)
	if err1 != nil || err2 != nil {
		return Times{}, fmt.Errorf("/proc/PID/stat: times %q and %q are not numbers", fields[14-3], fields[15-3])
	}
	return Times{User: time.Duration(user) * tick, System: time.Duration(system) * tick}, nil
}

// Status is what a process occupies now.
type Status struct {
	RSS     int64 // bytes of memory, VmRSS
	Peak    int64 // the most so far, VmHWM
	Threads int
}

// ReadStatus reads /proc/PID/status.
func ReadStatus(pid int) (Status, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Status{}, fmt.Errorf("memory: %w", err)
	}
	return parseStatus(text)
}

func parseStatus(text []byte) (Status, error) {
	var s Status
	var err error
	number := func(name string) (n int64) {
		for line := range bytes.Lines(text) {
			key, value, _ := bytes.Cut(line, []byte(":"))
			if fields := bytes.Fields(value); string(key) == name && len(fields) > 0 {
				n, err = strconv.ParseInt(string(fields[0]), 10, 64)
				return n
			}
		}
		err = fmt.Errorf("/proc/PID/status has no %s: the process has ended", name)
		return 0
	}
	s.Threads = int(number("Threads"))
	s.Peak = number("VmHWM") << 10
	s.RSS = number("VmRSS") << 10 // the last, because a process without memory has neither
	return s, err
}
