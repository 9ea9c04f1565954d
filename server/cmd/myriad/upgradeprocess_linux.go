package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// This file asks a process without --handover for an upgrade, and watches which process ends.

// upgradeProcess sends SIGUSR2 to the process, and waits until it ends or its new process does.
// If it is myriad init, the server that it runs at the time is meant: init stays.
func upgradeProcess(ctx context.Context, pid int, stdout io.Writer) error {
	pid = serverOf(pid)
	if err := catchesUpgrades(pid); err != nil {
		return err
	}
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Signal(syscall.SIGUSR2)
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer p.Release()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for child := 0; ; {
		if child == 0 {
			child = successorOf(pid)
		}
		switch old := isRunning(pid); {
		case child != 0 && !isRunning(child):
			return fmt.Errorf("no upgrade: process %d has started process %d, which has ended: the log says why", pid,
				child)
		case !old && child == 0:
			return fmt.Errorf("process %d has ended, and no new one was seen: the log says why", pid)
		case !old:
			_, err = fmt.Fprintf(stdout, "process %d goes on: process %d has handed over, and ended\n", child, pid)
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d still runs: %w: its log says why", pid, ctx.Err())
		case <-look.C:
		}
	}
}

// serverOf returns the pid of the server that myriad init runs, if the process is that, and else
// the pid itself.
func serverOf(pid int) int {
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(string(command), "\x00")
	if len(args) < 3 || args[1] != "init" || args[2] != "serve" {
		return pid
	}
	for _, child := range childrenOf(pid) {
		if catchesUpgrades(child) == nil {
			return child
		}
	}
	return pid
}

// catchesUpgrades fails for a process that SIGUSR2 would end.
func catchesUpgrades(pid int) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no process %d", pid)
	}
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(status), "\nSigCgt:")
	line, _, _ := strings.Cut(rest, "\n")
	caught, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil || caught&(1<<(syscall.SIGUSR2-1)) == 0 {
		return fmt.Errorf("process %d is no running server: it does not catch SIGUSR2", pid)
	}
	return nil
}

// isRunning reports whether there is such a process, other than one that only has to be waited for.
func isRunning(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := bytes.LastIndex(stat, []byte(") ")) // the program's name may have anything in it
	return err == nil && end >= 0 && !bytes.HasPrefix(stat[end+2:], []byte("Z"))
}

// successorOf returns the pid of the process that the server has started in its place; 0: none.
func successorOf(pid int) int {
	for _, child := range childrenOf(pid) {
		if predecessorOf(child) == pid && isRunning(child) {
			return child
		}
	}
	return 0
}

// childrenOf returns the pids of the processes that the process has started, or adopted.
func childrenOf(pid int) (children []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(child); err == nil {
				children = append(children, n)
			}
		}
	}
	return children
}

// predecessorOf returns the pid of the server that has started the process in its place; 0: none.
func predecessorOf(pid int) int {
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	for one := range strings.SplitSeq(string(environ), "\x00") {
		if value, is := strings.CutPrefix(one, predecessorVariable+"="); is {
			predecessor, _ := strconv.Atoi(value)
			return predecessor
		}
	}
	return 0
}
