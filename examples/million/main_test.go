//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/server/load"
)

// folder holds what program builds.
var folder string

func TestMain(m *testing.M) {
	exampletest.Main(m, main)
	_ = os.RemoveAll(folder) // the system removes it some day, otherwise
}

// program is myriad, built once for all tests.
var program = sync.OnceValues(func() (_ string, err error) {
	if folder, err = os.MkdirTemp("", "million"); err != nil {
		return "", err
	}
	return build(context.Background(), folder)
})

// small are the settings of a run of a test. Its load processes are this test's program.
func small(t *testing.T, connections, each int, progress *output) settings {
	t.Helper()
	t.Setenv(exampletest.AsProgram, "1")
	file, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return settings{connections: connections, each: each, hold: time.Hour, limit: time.Hour, program: file,
		worker: []string{os.Args[0]}, progress: progress}
}

// An output is what a run prints. heard is called with each line or table.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	heard func(p string)
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text.Write(p); o.heard != nil {
		o.heard(string(p))
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// children are the servers that run for this process and their sisters, by what the kernel says.
func children(t *testing.T) (list []string) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		text, err := os.ReadFile(folder + "/stat")
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if fields[1] == fmt.Sprint(os.Getpid()) {
			list = append(list, string(text))
		}
	}
	return list
}

func TestAllAreReached(t *testing.T) {
	n := soak.Size(t, 500, 100_000)
	var out output
	s := small(t, n, soak.Size(t, 250, 18_000), &out)
	s.hold, s.paced = soak.Size(t, 15*time.Second, 40*time.Second), true
	o, err := run(t.Context(), s)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if o.Open != n || o.Lost != 0 || o.Missing != 0 || o.Twice != 0 || o.Last < o.First || o.First <= 0 {
		t.Errorf("%+v\n%s", o, out.String())
	}
	if o.Pinged != int64(n) {
		t.Errorf("%d of %d were pinged\n%s", o.Pinged, n, out.String())
	}
	if len(o.Why) > 0 {
		t.Errorf("all are connected, and it says why not: %q", o.Why)
	}
	if o.LoadBytes <= 0 || o.Connect.Load <= 0 { // the kernel's memory is also that of other programs
		t.Errorf("nothing was measured: %+v", o)
	}
	var text bytes.Buffer
	o.writeText(&text)
	if want := fmt.Sprintf("%d of %d subscribers", n, n); !strings.Contains(text.String(), want) {
		t.Errorf("%q is not in:\n%s", want, text.String())
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
}

// Whatever ends a run, no process is left, and the run says what it was.
func TestNothingIsLeft(t *testing.T) {
	for _, tt := range []struct {
		name          string
		limit         time.Duration
		end           func(cancel context.CancelCauseFunc) // while all connections are held
		want, reached string
	}{
		{"interrupt", time.Hour, func(cancel context.CancelCauseFunc) { cancel(errors.New("interrupted")) },
			"interrupted", "; 41 connections are open"},
		{"crash", time.Hour, func(context.CancelCauseFunc) { killServer(t) }, "has ended", " connections are open"},
		{"limit", 2 * time.Second, func(context.CancelCauseFunc) {}, "the run has taken 2s", " connections are open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var out output
			s := small(t, 40, 20, &out)
			s.hold, s.limit = time.Hour, tt.limit
			var once sync.Once
			out.heard = func(p string) {
				if strings.HasPrefix(p, phaseNames[load.Warming]) {
					once.Do(func() { tt.end(cancel) })
				}
			}
			_, err := run(ctx, s)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.reached) {
				t.Errorf("the error was %v, want %q and %q\n%s", err, tt.want, tt.reached, out.String())
			}
			if left := children(t); len(left) > 0 {
				t.Errorf("processes are left: %q", left)
			}
		})
	}
}

// killServer kills one of the servers that this process has started.
func killServer(t *testing.T) {
	for _, stat := range children(t) {
		var pid int
		if _, err := fmt.Sscan(stat, &pid); err == nil && strings.Contains(stat, "(myriad)") {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			return
		}
	}
	t.Error("there is no server")
}

func TestPreflightRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		change     func(s *settings)
	}{
		{"descriptors", "descriptors of a process", func(s *settings) { s.each = 1 << 30 }},
		{"memory", "memory", func(s *settings) { s.reserve = 1 << 60 }},
		{"processes", "kernel/pid_max", func(s *settings) { s.connections = math.MaxInt64 / 4 }},
		{"connections", "give positive numbers", func(s *settings) { s.connections = 0 }},
		{"hold", "8s at least", func(s *settings) { s.hold = time.Second }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := settings{connections: 10, hold: time.Minute, progress: io.Discard}
			tt.change(&s)
			if err := preflight(&s); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error was %v, want %q", err, tt.want)
			}
		})
	}
}

// A machine without memory for all is asked for as many as it has memory for. What no lower number
// helps is refused as before.
func TestFit(t *testing.T) {
	const files, free = 20_000, 300 << 20
	var out output
	s := settings{connections: 1_000_000, each: 5000, hold: time.Minute, paced: true, progress: &out}
	fit(&s, files, free)
	passes := func(n int) bool {
		one := s
		one.connections = n
		for _, c := range checks(&one, files, free) {
			if !c.passes() {
				return false
			}
		}
		return true
	}
	if s.connections < 1000 || s.connections >= 1_000_000 || !passes(s.connections) || passes(s.connections+1) {
		t.Errorf("%d connections", s.connections)
	}
	if why := strings.Join(s.short, "; "); !strings.Contains(why, "1000000 connections need") ||
		!strings.Contains(why, "memory") || !strings.Contains(out.String(), why) {
		t.Errorf("it says %q, and prints %q", why, out.String())
	}
	for _, tt := range []settings{
		{connections: 1000, each: 5000, hold: time.Minute, progress: &out},                        // there is enough
		{connections: 1_000_000, each: 1 << 20, hold: time.Minute, progress: &out},                // descriptors
		{connections: 1_000_000, each: 5000, hold: time.Minute, reserve: 1 << 50, progress: &out}, // the reserve
	} {
		before := tt.connections
		if fit(&tt, files, free); tt.connections != before || len(tt.short) > 0 {
			t.Errorf("%d connections instead of %d: %q", tt.connections, before, tt.short)
		}
	}
}

// A run with fewer connections says what the processors did when they became no more.
func TestOutcomeSaysWhy(t *testing.T) {
	s := settings{connections: 1000, each: 1000, asked: 2000, short: []string{"no memory"}, hold: time.Minute}
	r := &load.Report{Open: 801, Wanted: 1001, Stalled: true, Total: &load.Sample{}, Verdict: []string{"it was late"}}
	w := watch{progress: io.Discard}
	for _, p := range []load.Progress{{Phase: load.Opening, Open: 5}, {Phase: load.Warming, Open: 801},
		{Phase: load.Warming, Open: 701}, {Phase: load.Running, Open: 751}, {Phase: load.Closing, Open: 801}} {
		p.Total = &load.Sample{}
		w.show(p)
	}
	processors := time.Duration(runtime.NumCPU())
	for i := range 100 { // the last 20 of 99 seconds count
		at := time.Duration(i) * time.Second
		m := moment{At: time.Unix(0, 0).Add(at), Servers: use{CPU: at * processors * 6 / 10},
			Load: use{CPU: at * processors * 3 / 10}}
		if i < 70 {
			m.Servers, m.Load = use{}, use{}
		}
		w.remember(m)
	}
	o := newOutcome(&s, r, &w)
	var text bytes.Buffer
	o.writeText(&text)
	for _, want := range []string{"800 of 2000 subscribers", "this machine holds 700",
		"while they were held, 700 were the least", "no memory",
		"90 % busy with this: " +
			"servers 60 %, load 30 %; they have no time", "801 of 1001 connections were open", "it was late"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in:\n%s", want, text.String())
		}
	}
	if n := len(w.recent); n < 20 || n > 22 {
		t.Errorf("%d moments are kept", n)
	}
	r.Open, s.connections = 2001, 2000
	if o = newOutcome(&s, r, &w); len(o.Why) > 0 {
		t.Errorf("all are connected, and it says why not: %q", o.Why)
	}
}

// The program's name may hold anything.
func TestHoldFor(t *testing.T) {
	for connections, want := range map[int]time.Duration{1: time.Minute, 250_000: time.Minute,
		1_000_000: 4 * time.Minute} {
		if got := holdFor(connections); got != want {
			t.Errorf("%d are held for %v, want %v", connections, got, want)
		}
	}
}

func TestLook(t *testing.T) {
	m, err := new(family).look()
	if err != nil || m.Kernel == 0 || m.Kernel > 1<<40 || m.Available == 0 || m.Available > 1<<40 {
		t.Errorf("the machine says %+v, %v", m, err)
	}
}

func TestParseStat(t *testing.T) {
	group, cpu, err := parseStat([]byte("12 (a ) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 250 30 0 0 20 0 1"))
	if err != nil || group != 7 || cpu != 2800*time.Millisecond {
		t.Errorf("group %d, CPU %s, error %v", group, cpu, err)
	}
	if _, _, err := parseStat([]byte("12 (a) S 1")); err == nil {
		t.Error("a short line was taken")
	}
}

// Memory below the reserve ends a run.
func TestReserve(t *testing.T) {
	w := &watch{family: &family{}, reserve: 1 << 60}
	if err := w.look(); err == nil || !strings.Contains(err.Error(), "less than the reserve") {
		t.Errorf("the error was %v", err)
	}
}
