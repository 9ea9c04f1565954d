package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Family is what this process and all its descendants have used of the processors so far: children
// that it has waited for included, children of children only while they live.
func Family() (time.Duration, error) {
	parents, err := parents()
	if err != nil {
		return 0, err
	}
	self := os.Getpid()
	sum, err := clock(self)
	if err != nil {
		return 0, fmt.Errorf("CPU clock of this process: %w", err)
	}
	ended, err := waitedFor()
	sum += ended
	for pid := range parents {
		if descends(pid, self, parents) {
			used, _ := clock(pid) // one that has just ended has no clock
			sum += used
		}
	}
	return sum, err
}

// FamilyCPU is what a process and its living descendants have used so far.
func FamilyCPU(pid int) (Times, error) {
	parents, err := parents()
	if err != nil {
		return Times{}, err
	}
	sum, err := CPU(pid)
	for other := range parents {
		if !descends(other, pid, parents) {
			continue
		}
		if one, err := CPU(other); err == nil { // one that has just ended has no clock
			sum.Total, sum.User, sum.System = sum.Total+one.Total, sum.User+one.User, sum.System+one.System
		}
	}
	return sum, err
}

// parents maps each process of the machine to its parent.
func parents() (map[int]int, error) {
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("there are no processes in /proc")
	}
	all := make(map[int]int, len(names))
	for _, name := range names {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		if pid, parent, ok := parseParent(stat); ok {
			all[pid] = parent
		}
	}
	return all, err
}

// parseParent reads pid and ppid, fields 1 and 4 of proc_pid_stat(5).
func parseParent(stat []byte) (pid, parent int, ok bool) {
	number, _, _ := bytes.Cut(stat, []byte(" "))
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, 0, false
	}
	pid, err1 := strconv.Atoi(string(number))
	parent, err2 := strconv.Atoi(string(fields[1]))
	return pid, parent, err1 == nil && err2 == nil
}

// descends reports whether a process is another's child, or a child's child, and so on.
func descends(pid, from int, parents map[int]int) bool {
	for range parents { // at most: numbers that are used again while they are read could make a circle
		parent, ok := parents[pid]
		if !ok || parent == from {
			return ok
		}
		pid = parent
	}
	return false
}
