//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A use is what processes have used.
type use struct {
	Processes int
	CPU       time.Duration
	Memory    uint64 // bytes that are theirs alone: RssAnon
}

// A moment is what the machine says of itself and of a family at one time.
type moment struct {
	At            time.Time
	Servers, Load use
	Self          time.Duration // CPU time of this process: NATS and the adding up
	Kernel        uint64        // bytes of the kernel's slabs, page tables and stacks
	Available     uint64        // bytes that are free, or hold files that can be read again
}

// look takes a moment in.
func (f *family) look() (m moment, err error) {
	m.At = time.Now()
	memory, err := meminfo()
	if err != nil {
		return m, err
	}
	m.Kernel = memory["Slab"] + memory["PageTables"] + memory["KernelStack"]
	// MemAvailable counts the kernel's records of open sockets among what can be taken back.
	m.Available = memory["MemFree"] + memory["Cached"] - memory["Shmem"]
	servers := map[int]bool{}
	for _, s := range f.nodes {
		servers[s.command.Process.Pid] = true
	}
	if _, m.Self, err = processStat(os.Getpid()); err != nil {
		return m, err
	}
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return m, err
	}
	for _, folder := range folders {
		pid, _ := strconv.Atoi(filepath.Base(folder)) // the pattern allows no other name
		group, cpu, err := processStat(pid)
		if err != nil || group != f.group() {
			continue // it has ended, or is no child of ours
		}
		u := &m.Load
		if servers[pid] {
			u = &m.Servers
		}
		u.Processes++
		u.CPU += cpu
		u.Memory += privateMemory(pid)
	}
	return m, nil
}

// meminfo is /proc/meminfo, in bytes.
func meminfo() (map[string]uint64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	values := map[string]uint64{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if fields := strings.Fields(rest); len(fields) > 0 {
			kilobytes, _ := strconv.ParseUint(fields[0], 10, 64)
			values[name] = kilobytes << 10
		}
	}
	if values["MemTotal"] == 0 {
		return nil, errors.New("/proc/meminfo does not say how much memory there is")
	}
	return values, nil
}

// tick is the unit of CPU times in /proc/PID/stat.
const tick = 10 * time.Millisecond

// processStat says to which group a process belongs, and how much CPU time it has used.
func processStat(pid int) (group int, cpu time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	return parseStat(text)
}

// parseStat parses proc_pid_stat(5). The second field, the program's name, may hold spaces and
// parentheses; pgrp is the third one after it, utime and stime the 12th and 13th.
func parseStat(text []byte) (group int, cpu time.Duration, err error) {
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, 0, fmt.Errorf("a process's stat has %d fields after its name, want 13", len(fields))
	}
	group, err1 := strconv.Atoi(fields[2])
	user, err2 := strconv.ParseInt(fields[11], 10, 64)
	system, err3 := strconv.ParseInt(fields[12], 10, 64)
	return group, time.Duration(user+system) * tick, errors.Join(err1, err2, err3)
}

// privateMemory is RssAnon of a process, or 0 if it has ended.
func privateMemory(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "\nRssAnon:")
	kilobytes, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, _ := strconv.ParseUint(kilobytes, 10, 64)
	return n << 10
}

// setting is the numbers in a file of /proc/sys; none if there is no such file.
func setting(name string) (numbers []uint64) {
	text, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return nil
	}
	for field := range strings.FieldsSeq(string(text)) {
		n, _ := strconv.ParseUint(field, 10, 64)
		numbers = append(numbers, n)
	}
	return numbers
}
