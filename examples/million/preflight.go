//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strings"
	"syscall"
	"text/tabwriter"
)

// What a run takes, measured; see outcome.go.
const (
	bytesEach        = 13_000   // of memory for a connection: both ends, and the kernel
	bytesOfProcess   = 25 << 20 // of memory for a process without connections
	filesOfProcess   = 1_200    // descriptors that connections cannot have
	portsOfSource    = 14_000   // connections from one address to one port before connect becomes slow
	filesForTheOther = 20_000   // descriptors that other programs may have
)

// A check is one line of the preflight.
type check struct {
	what       string
	need, have uint64
	remedy     string
}

func (c check) passes() bool { return c.have >= c.need }

// preflight prints what the run needs and what the machine has, and fails if that is less. It sets
// s.each if that is 0.
func preflight(s *settings) error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	if s.each == 0 {
		s.each = max(1, int(min(files.Max, 60_000))-filesOfProcess)
	}
	if s.connections < 1 || s.each < 1 || s.hold < 8*settle {
		return fmt.Errorf("%d connections, %d each, held for %s: give positive numbers, and %s at least",
			s.connections,
			s.each, s.hold, 8*settle)
	}
	memory, err := meminfo()
	if err != nil {
		return err
	}
	free := memory["MemFree"] + memory["Cached"] - memory["Shmem"]
	if s.paced {
		fit(s, files.Max, free)
	}
	return report(s.progress, checks(s, files.Max, free))
}

// fit lowers s.connections to as many as the machine has resources for, if that helps, and notes
// why.
func fit(s *settings, files, free uint64) {
	asked := s.connections
	passes := func(n int) bool {
		one := *s
		one.connections = n
		return !slices.ContainsFunc(checks(&one, files, free), func(c check) bool { return !c.passes() })
	}
	if passes(asked) {
		return
	}
	// The greatest number that passes; none if it does not depend on the number.
	held := sort.Search(asked, func(n int) bool { return n > 0 && !passes(n) }) - 1
	if held < 1 {
		return
	}
	for _, c := range checks(s, files, free) {
		if !c.passes() {
			s.short = append(s.short, fmt.Sprintf("%d connections need %d of %s, and there are %s: %s", asked, c.need,
				c.what, amount(c.have), c.remedy))
		}
	}
	s.connections = held
	fmt.Fprintf(s.progress, "this machine has resources for %d of %d connections: %s\n", held, asked,
		strings.Join(s.short, "; "))
}

func checks(s *settings, files, free uint64) []check {
	n, processes := uint64(s.connections), uint64(s.processes())
	list := []check{
		{"descriptors of a process", uint64(s.each + filesOfProcess), files, "raise ulimit -Hn, or lower --each"},
		{"memory, bytes", n*bytesEach + 2*processes*bytesOfProcess + s.reserve, free,
			"lower --connections or --reserve"},
	}
	// add compares with number i of a setting, if the kernel has it.
	add := func(name string, i int, need uint64) {
		if have := setting(name); i < len(have) {
			list = append(list, check{name, need, have[i], "raise it with sysctl"})
		}
	}
	add("fs/file-max", 0, 2*n+filesForTheOther)
	add("kernel/pid_max", 0, 2*16*processes) // each has a few threads
	add("net/core/somaxconn", 0, openingEach)
	// While a publication goes out, sockets hold a page of unread data each, until they are read.
	add("net/ipv4/tcp_mem", 2, n/2)
	if ports := setting("net/ipv4/ip_local_port_range"); len(ports) == 2 {
		list = append(list, check{"ports for a source address", uint64(s.each / sourcesEach),
			min(ports[1]-ports[0]+1, portsOfSource), "widen net/ipv4/ip_local_port_range, or lower --each"})
	}
	// Connection tracking is off, whatever its limit is, as long as no rule of a firewall needs it.
	if used := setting("net/netfilter/nf_conntrack_count"); len(used) > 0 && used[0] > 0 {
		add("net/netfilter/nf_conntrack_max", 0, n+used[0])
	}
	return list
}

// report prints the checks, and joins the failures.
func report(w io.Writer, list []check) error {
	var failed []error
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "preflight\tneeds\thas\t\n")
	for _, c := range list {
		verdict := "ok"
		if !c.passes() {
			verdict = "too little"
			failed = append(failed, fmt.Errorf("%s: the run needs %d, and there are %s: %s", c.what, c.need,
				amount(c.have), c.remedy))
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", c.what, c.need, amount(c.have), verdict)
	}
	return errors.Join(append(failed, t.Flush())...)
}

func amount(n uint64) string {
	if n > math.MaxInt64/2 {
		return "no limit"
	}
	return fmt.Sprint(n)
}
