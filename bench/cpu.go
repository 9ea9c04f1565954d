package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// ticksPerSecond is USER_HZ, the unit of times in /proc, which Linux has fixed for programs.
const ticksPerSecond = 100

// cpuTime is what a process has used so far, user and system: fields 14 and 15 of /proc/PID/stat, proc_pid_stat(5).
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time comes from Linux's /proc: %w", err)
	}
	return parseStat(stat)
}

func parseStat(stat []byte) (time.Duration, error) {
	// The second field is a name in parentheses that may hold spaces; what follows the last one is regular, from field 3 on.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat has %d fields behind the name, not at least 13: %q", len(fields), stat)
	}
	ticks := 0
	for _, field := range fields[14-3 : 16-3] {
		n, err := strconv.Atoi(string(field))
		if err != nil {
			return 0, fmt.Errorf("/proc/PID/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}
