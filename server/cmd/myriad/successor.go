package main

import (
	"fmt"
	"os"
	"slices"
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

// successorEnviron returns the environment for a child that takes the place of r. The pid of the
// child is not known before it starts, so the manager's variables name r. The child takes them for
// its own, because predecessorVariable names r, too:
//
//   - WATCHDOG_PID: the child sends the keep-alives that the manager expects of r.
//   - LISTEN_PID: no child uses it yet, because a server with sockets of the manager does not
//     upgrade (mayUpgrade).
func (r recipient) successorEnviron(environ []string) []string {
	var next []string
	for _, one := range environ {
		name, value, _ := strings.Cut(one, "=")
		switch {
		case name == predecessorVariable:
			continue
		case slices.Contains([]string{"WATCHDOG_PID", "LISTEN_PID"}, name) && r.means(value):
			one = fmt.Sprintf("%s=%d", name, r.pid)
		}
		next = append(next, one)
	}
	return append(next, fmt.Sprintf("%s=%d", predecessorVariable, r.pid))
}
