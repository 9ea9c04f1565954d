package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// This file is about a process that takes the place of another one, which has started it. The
// service manager knows the old one: variables of its environment name that one's pid, and the
// manager listens to that one alone (NotifyAccess=main).

// predecessorVariable has the pid of the process whose place this one takes. It counts only in a
// child of that process: pids are used again, and environments are inherited.
const predecessorVariable = "SUCCESSOR_OF_PID"

// A recipient knows the pids for which variables of the service manager are meant.
type recipient struct {
	pid         int
	predecessor int // 0: none
}

// self returns the recipient that this process is. It is asked at the start: later the predecessor
// has ended.
func self(environ func(string) string) recipient {
	r := recipient{pid: os.Getpid()}
	if parent := os.Getppid(); environ(predecessorVariable) == strconv.Itoa(parent) {
		r.predecessor = parent
	}
	return r
}

// means reports whether a variable with that pid is for the recipient.
func (r recipient) means(pid string) bool {
	return pid == strconv.Itoa(r.pid) || r.predecessor != 0 && pid == strconv.Itoa(r.predecessor)
}

// successorEnviron returns the environment for a child that takes the place of r. The child sends
// the keep-alives that are expected of r (WATCHDOG_PID). Sockets that were passed to r move with
// the others: the child has not been passed any.
func (r recipient) successorEnviron(environ []string) []string {
	var next []string
	for _, one := range environ {
		name, value, _ := strings.Cut(one, "=")
		switch name {
		case predecessorVariable, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES":
			continue
		case "WATCHDOG_PID":
			if r.means(value) {
				one = fmt.Sprintf("%s=%d", name, r.pid)
			}
		}
		next = append(next, one)
	}
	return append(next, fmt.Sprintf("%s=%d", predecessorVariable, r.pid))
}
