package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// How a test ended, besides what go test calls it: its process has ended in the middle of it, or
// nothing has happened for too long.
const (
	passed  = "pass"
	failed  = "fail"
	skipped = "skip"
	crashed = "crash"
	hung    = "hang"
)

// An outcome is how one test ended.
type outcome struct {
	result string // empty while it runs
	output string
}

// maxOutput bounds the output that is kept of a test.
const maxOutput = 1 << 20

// outcomes are those of one test binary, by the name of the test.
type outcomes map[string]*outcome

// leaves are the tests without subtests, in order.
func (o outcomes) leaves() []string {
	parents := map[string]bool{}
	for name := range o {
		for at := strings.LastIndex(name, "/"); at >= 0; at = strings.LastIndex(name[:at], "/") {
			parents[name[:at]] = true
		}
	}
	var names []string
	for name := range o {
		if !parents[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A binary is a compiled test program.
type binary struct {
	file, dir string
	args, env []string
	skip      []string      // patterns of tests
	quiet     time.Duration // without a test that begins or ends: the process hangs
	log       io.Writer
}

// maxResumes bounds how often a binary is started again behind a test that has ended its process.
const maxResumes = 40

// run runs the tests that match pattern, or all. If the process ends or hangs in the middle of a
// test, it is started again with the tests that are left.
func (b *binary) run(pattern string) (outcomes, error) {
	all := outcomes{}
	for range maxResumes {
		whole, err := b.runOnce(all, pattern)
		if err != nil || whole {
			return all, err
		}
	}
	return all, fmt.Errorf("%s has ended %d times in the middle of a test", b.file, maxResumes)
}

// runOnce starts a process for the tests that have no outcome yet. It reports whether the process
// has run all of them.
func (b *binary) runOnce(all outcomes, pattern string) (whole bool, err error) {
	tests := exec.Command(b.file, b.arguments(all, pattern)...)
	tests.Dir = b.dir
	tests.Env = append(append(os.Environ(), "PWD="+b.dir), b.env...)
	tests.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	tests.WaitDelay = 5 * time.Second // for processes that the tests have left behind
	convert := exec.Command("go", "tool", "test2json")
	into, err := convert.StdinPipe()
	if err != nil {
		return false, err
	}
	tests.Stdout, tests.Stderr = into, into
	events, err := convert.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := convert.Start(); err != nil {
		return false, err
	}
	defer convert.Wait()
	if err := tests.Start(); err != nil {
		_ = into.Close()
		return false, err
	}
	ended := make(chan struct{})
	go func() {
		_ = tests.Wait()
		_ = syscall.Kill(-tests.Process.Pid, syscall.SIGKILL)
		_ = into.Close()
		close(ended)
	}()
	progress := make(chan struct{}, 1)
	stuck := make(chan bool, 1)
	go func() { stuck <- b.watch(tests.Process.Pid, progress, ended) }()
	p := &reader{all: all, log: b.log, running: map[string]bool{}, progress: progress}
	p.read(events)
	<-ended
	if hangs := <-stuck; hangs || !p.finished {
		return false, p.settle(b.file, hangs)
	}
	return true, nil
}

// arguments has the binary run what has no outcome yet.
func (b *binary) arguments(all outcomes, pattern string) []string {
	args := []string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=30m"}
	for _, a := range b.args {
		args = append(args, "-"+a)
	}
	if pattern != "" {
		args = append(args, "-test.run="+pattern)
	}
	skip := slices.Clone(b.skip)
	for name, o := range all {
		top, _, sub := strings.Cut(name, "/")
		if o.result != "" && (!sub || all[top].result == "") {
			skip = append(skip, exactly(name))
		}
	}
	// Package testing takes the first alternative that matches a test or, so far, a parent of it.
	slices.SortStableFunc(skip, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	if len(skip) > 0 {
		args = append(args, "-test.skip="+strings.Join(skip, "|"))
	}
	return args
}

// exactly is the pattern that one test matches.
func exactly(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// watch ends the process if there is no progress. Its runtime then writes where all goroutines are.
func (b *binary) watch(pid int, progress, ended <-chan struct{}) (hangs bool) {
	timer := time.NewTimer(b.quiet)
	defer timer.Stop()
	for {
		select {
		case <-ended:
			return false
		case <-progress:
			timer.Reset(b.quiet)
		case <-timer.C:
			_ = syscall.Kill(pid, syscall.SIGQUIT)
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				_ = syscall.Kill(-pid, syscall.SIGKILL)
			}
			return true
		}
	}
}

// A reader takes in what test2json says of one process.
type reader struct {
	all      outcomes
	log      io.Writer
	running  map[string]bool
	progress chan<- struct{}
	failed   string   // the test without subtests that has failed last
	finished bool     // the process has said PASS or FAIL for all of its tests
	outside  []string // output that belongs to no test
}

func (p *reader) read(events io.Reader) {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		_, _ = io.WriteString(p.log, e.Output)
		if e.Test == "" {
			p.outside = append(p.outside, e.Output)
			said := strings.TrimSpace(e.Output)
			p.finished = p.finished || said == "PASS" || said == "FAIL"
			continue
		}
		p.event(e.Action, e.Test, e.Output)
	}
}

func (p *reader) event(action, test, output string) {
	o := p.all[test]
	if o == nil {
		o = &outcome{}
		p.all[test] = o
	}
	switch action {
	case "run", "cont":
		p.running[test] = true
	case "pause":
		delete(p.running, test)
	case passed, failed, skipped:
		delete(p.running, test)
		o.result = action
		if action == failed && !strings.HasPrefix(p.failed, test+"/") {
			p.failed = test
		}
	case "output":
		if len(o.output) < maxOutput {
			o.output += output
		}
		return
	}
	select {
	case p.progress <- struct{}{}:
	default:
	}
}

// settle gives the tests in whose middle the process has ended an outcome. Those that were paused
// have none, and run in the next process. So do the other subtests of those that have ended.
func (p *reader) settle(file string, hangs bool) error {
	var culprits []string
	for name := range p.running {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(p.running)), func(other string) bool {
			return strings.HasPrefix(other, name+"/")
		}) {
			culprits = append(culprits, name)
		}
	}
	for _, name := range p.all.leaves() {
		if p.all[name].result == "" && !p.running[name] {
			delete(p.all, name)
		}
	}
	// A test that panics fails before its process ends, and its parents may be said to go on.
	if len(culprits) == 0 || len(culprits) == 1 && strings.HasPrefix(p.failed, culprits[0]+"/") && !hangs {
		culprits = []string{p.failed}
	}
	if culprits[0] == "" {
		last := p.outside[max(0, len(p.outside)-40):]
		return fmt.Errorf("%s has ended outside of its tests:\n%s", file, strings.Join(last, ""))
	}
	for _, name := range culprits {
		o := p.all[name]
		if o.result = crashed; hangs {
			o.result = hung
		} else {
			o.output += strings.Join(p.outside, "")
		}
		for at := strings.LastIndex(name, "/"); at >= 0; at = strings.LastIndex(name[:at], "/") {
			if parent := p.all[name[:at]]; parent != nil {
				parent.result = ""
			}
		}
	}
	return nil
}

// relevant is the part of a test's output that says what happened. Of a dump of goroutines it has
// those that run code of tests.
func relevant(output string) string {
	head, dump, ok := strings.Cut(output, "SIGQUIT: quit")
	if !ok {
		return output
	}
	for goroutine := range strings.SplitSeq(dump, "\n\n") {
		lines := strings.Split(strings.TrimSpace(goroutine), "\n")
		if !strings.Contains(goroutine, "_test.go:") || strings.Contains(goroutine, "testing.(*T).Parallel(") ||
			strings.Contains(goroutine, "testing.(*T).Run(") || strings.Contains(goroutine, ".TestMain(") {
			continue
		}
		head += lines[0] + "\n"
		for i := 1; i+1 < len(lines); i += 2 {
			place, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " ")
			if !strings.Contains(place, "/src/runtime/") {
				function, _, _ := strings.Cut(lines[i], "(0x")
				head += "  " + function + " " + place + "\n"
			}
		}
	}
	return head
}
