package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// An outcome is how a test ended.
type outcome struct {
	Result string // pass, fail, skip; crash: it ran when its process ended; hang: when nothing happened for long
	Output string
	Took   float64 // seconds
}

// outcomes are those of one test binary, by the name of the test.
type outcomes map[string]*outcome

// leaves are the tests that have no subtests, in order.
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
	skip      []string // top-level tests, or a pattern
	quiet     time.Duration
	log       *os.File
}

// maxResumes bounds how often a binary is started again behind a crash.
const maxResumes = 40

// run runs all tests, or those of a pattern. When the process ends, or hangs, in the middle of a test, it is started again
// with the tests that are left.
func (b *binary) run(pattern string) (outcomes, error) {
	all := outcomes{}
	for range maxResumes {
		whole, err := b.once(all, pattern)
		if err != nil || whole {
			return all, err
		}
	}
	return all, fmt.Errorf("%s ended %d times in the middle of a test", b.file, maxResumes)
}

// once starts the process and reports whether it has run to its end.
func (b *binary) once(all outcomes, pattern string) (whole bool, err error) {
	skip := slices.Clone(b.skip)
	for name, o := range all {
		top, _, _ := strings.Cut(name, "/")
		if name == top && ended(o.Result) || !ended(all[top].Result) && all.isLeaf(name) {
			skip = append(skip, exactly(name))
		}
	}
	args := append([]string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=30m"}, b.args...)
	if pattern != "" {
		args = append(args, "-test.run="+pattern)
	}
	if len(skip) > 0 {
		args = append(args, "-test.skip="+strings.Join(skip, "|"))
	}
	tests := exec.Command(b.file, args...)
	tests.Dir = b.dir
	tests.Env = append(append(os.Environ(), "PWD="+b.dir), b.env...)
	tests.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	convert := exec.Command("go", "tool", "test2json", "-t")
	pipe, err := convert.StdinPipe()
	if err != nil {
		return false, err
	}
	tests.Stdout, tests.Stderr = pipe, pipe
	events, err := convert.StdoutPipe()
	if err != nil {
		return false, err
	}
	tests.WaitDelay = 5 * time.Second
	if err := convert.Start(); err != nil {
		return false, err
	}
	if err := tests.Start(); err != nil {
		_ = pipe.Close()
		_ = convert.Wait()
		return false, err
	}
	ended := make(chan struct{})
	go func() {
		_ = tests.Wait()
		_ = pipe.Close()
		close(ended)
	}()
	hung := false
	last := make(chan struct{}, 1)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		timer := time.NewTimer(b.quiet)
		defer timer.Stop()
		for {
			select {
			case <-ended:
				return
			case <-last:
				timer.Reset(b.quiet)
			case <-timer.C:
				hung = true
				_ = syscall.Kill(tests.Process.Pid, syscall.SIGQUIT)
				select {
				case <-ended:
				case <-time.After(5 * time.Second):
					_ = syscall.Kill(-tests.Process.Pid, syscall.SIGKILL)
				}
				return
			}
		}
	}()
	running := map[string]bool{}
	finished := false
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	var loose []string // the last lines that belong to no test
	for lines.Scan() {
		var e struct {
			Action, Test, Output string
			Elapsed              float64
		}
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		if b.log != nil && e.Output != "" {
			_, _ = b.log.WriteString(e.Output)
		}
		if e.Test == "" {
			if e.Action == "output" {
				loose = append(loose, e.Output)
				if text := strings.TrimSpace(e.Output); text == "PASS" || text == "FAIL" {
					finished = true
				}
			}
			continue
		}
		o := all[e.Test]
		if o == nil {
			o = &outcome{}
			all[e.Test] = o
		}
		switch e.Action {
		case "run", "cont":
			running[e.Test] = true
		case "pause":
			delete(running, e.Test)
		case "pass", "fail", "skip":
			delete(running, e.Test)
			o.Result, o.Took = e.Action, e.Elapsed
		case "output":
			if len(o.Output) < 1<<20 {
				o.Output += e.Output
			}
		}
		if e.Action != "output" {
			select {
			case last <- struct{}{}:
			default:
			}
		}
	}
	<-ended
	_ = syscall.Kill(-tests.Process.Pid, syscall.SIGKILL) // what the tests have left behind
	<-watched
	_ = convert.Wait()
	if finished && !hung {
		return true, nil
	}
	found := false
	for _, name := range all.leaves() {
		o := all[name]
		switch {
		case running[name] || o.Result == "fail" && (strings.Contains(o.Output, "panic:") || strings.Contains(o.Output, "fatal error:")):
			found = true
			o.Result = "crash"
			if hung {
				o.Result = "hang"
			}
		case o.Result == "": // paused
			delete(all, name)
		}
	}
	if !found {
		return false, fmt.Errorf("%s ended outside of a test:\n%s", b.file, strings.Join(loose[max(0, len(loose)-40):], ""))
	}
	return false, nil
}

func ended(result string) bool { return result != "" }

// isLeaf reports whether the test has no subtests.
func (o outcomes) isLeaf(name string) bool {
	for other := range o {
		if strings.HasPrefix(other, name+"/") {
			return false
		}
	}
	return true
}

// exactly is the pattern of go test -run that matches one test.
func exactly(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// relevant is the part of a test's output that says what happened: of a dump of goroutines, where those stand that
// run code of tests.
func relevant(text string) string {
	head, dump, ok := strings.Cut(text, "SIGQUIT: quit")
	if !ok {
		return text
	}
	for g := range strings.SplitSeq(dump, "\n\n") {
		if !strings.Contains(g, "_test.go:") || strings.Contains(g, "testing.(*T).Parallel(") ||
			strings.Contains(g, "testing.(*T).Run(") || strings.Contains(g, "TestMain(") {
			continue
		}
		lines := strings.Split(strings.TrimSpace(g), "\n")
		head += lines[0] + "\n"
		for i := 1; i+1 < len(lines); i += 2 {
			if place, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " "); !strings.Contains(place, "/src/runtime/") {
				function, _, _ := strings.Cut(lines[i], "(0x")
				head += "  " + function + " " + place + "\n"
			}
		}
	}
	return head
}
