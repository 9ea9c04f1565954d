//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/bench/attack"
	"github.com/myriad-go/myriad/bench/crowd"
	"github.com/myriad-go/myriad/bench/load"
	traffic "github.com/myriad-go/myriad/server/load"
)

// TestMain is also the load driver and the servers that must be refused, when it runs as a child.
// No test may leave a process or a goroutine behind.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == driveCommand {
		load.Main()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == attackCommand {
		attack.Main()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == crowdCommand {
		crowd.Main()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == trafficCommand {
		if err := traffic.Work(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if fault := os.Getenv(faultVariable); fault != "" {
		faulty(fault)
		return
	}
	code := m.Run()
	if left := children(); code == 0 && len(left) > 0 {
		fmt.Fprintln(os.Stderr, "processes are left:", left)
		code = 1
	}
	if code == 0 && !quiet() {
		code = 1
	}
	os.Exit(code)
}

// children are the processes that this one has started and that have not ended.
func children() (pids []string) {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, name := range files {
		text, _ := os.ReadFile(name)
		pids = append(pids, strings.Fields(string(text))...)
	}
	return pids
}

// quiet waits for goroutines that are ending.
func quiet() bool {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		stacks := make([]byte, 1<<16)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if runtime.NumGoroutine() == 1 || bytes.Count(stacks, []byte("goroutine ")) == bytes.Count(stacks,
			[]byte("os/signal")) {
			return true
		}
		if time.Now().After(deadline) {
			fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", stacks)
			return false
		}
	}
}

// bench runs the command.
func bench(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, complaints bytes.Buffer
	err = command(&out, &complaints).Run(t.Context(), append([]string{"bench"}, args...))
	return out.String(), err
}

// benchFor runs bench with a duration, and with longer ones until it is enough. Other load of the
// machine may consume a short window.
func benchFor(t *testing.T, d time.Duration, enough func(stdout string, err error) bool, args ...string) (stdout string,
	err error) {
	t.Helper()
	for ; ; d *= 4 {
		stdout, err = bench(t, append(args, "--duration", d.String())...)
		if d > 4*time.Second || enough(stdout, err) {
			return stdout, err
		}
	}
}

// measured is whether every server has done something.
func measured(stdout string, _ error) bool { return !strings.Contains(stdout, "give it longer") }

// The whole way: two servers are built, started, checked, loaded, measured and ended, and the JSON
// has plausible figures.
func TestRun(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "results.json")
	var r results
	out, err := benchFor(t, 300*time.Millisecond, func(out string, err error) bool {
		r = results{}
		return err != nil && measured(out, err) || json.Unmarshal([]byte(out), &r) == nil && hasFigures(&r)
	}, "run", "http-100", "--rounds", "1", "--json", "--save", saved, "--only", "net/http,web")
	if err != nil || r.Format != resultsFormat || len(r.Scenarios) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	o := r.Scenarios[0]
	if o.Connections != 100 || o.Reference != "net/http" || len(o.Servers) != 2 {
		t.Errorf("%+v", o)
	}
	for _, name := range []string{"net/http", "web"} {
		s := o.find(name)
		if s == nil || s.Refused != "" || len(s.Rounds) != 1 {
			t.Fatalf("%s: %+v", name, s)
		}
		for _, m := range loaded {
			if !(s.Rounds[0][m] > 0) || s.Summary[m].Median != s.Rounds[0][m] {
				t.Errorf("%s: %s is %v, and %v in the summary", name, m, s.Rounds[0][m], s.Summary[m])
			}
		}
		if s.Rounds[0]["p50_ms"] > s.Rounds[0]["p99_ms"] || s.Rounds[0]["user_us"] > s.Rounds[0]["cpu_us"] {
			t.Errorf("%s: %v", name, s.Rounds[0])
		}
	}
	if n := o.find("net/http").Rounds[0]["goroutines"]; n < 100 {
		t.Errorf("net/http serves 100 connections with %v goroutines", n)
	}
	if ratio := o.find("net/http").Ratio["cpu_us"]; ratio != (spread{1, 1, 1}) {
		t.Errorf("the reference's ratio to itself is %v", ratio)
	}
	checkReport(t, saved)
}

// hasFigures reports whether all figures are present. A server may have had so little processor
// time that its user time is zero.
func hasFigures(r *results) bool {
	return !slices.ContainsFunc(r.Scenarios, func(o outcome) bool {
		return slices.ContainsFunc(o.Servers, func(s serverOutcome) bool {
			return len(s.Rounds) == 0 ||
				slices.ContainsFunc(loaded, func(m string) bool { return !(s.Rounds[0][m] > 0) })
		})
	})
}

func checkReport(t *testing.T, saved string) {
	html := filepath.Join(t.TempDir(), "page.html")
	out, err := bench(t, "report", "--html", html, saved)
	if err != nil || !strings.Contains(out, "### http-100") || !strings.Contains(out, "| **web** |") {
		t.Errorf("report: %v\n%s", err, out)
	}
	page, err := os.ReadFile(html)
	if err != nil || !bytes.Contains(page, []byte(`<section id="http-100">`)) || bytes.Contains(page, []byte("src=")) {
		t.Errorf("page: %v\n%s", err, page)
	}
}

// Connections that are held are counted, used again at the end, and have a size.
func TestHold(t *testing.T) {
	out, err := bench(t, "run", "idle-engine", "--rounds", "1", "--duration", "100ms", "--conns", "2000", "--only",
		"net,engine")
	if err != nil || !strings.Contains(out, "2000 connections") || strings.Contains(out, "not measured") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestBroadcast(t *testing.T) {
	out, err := benchFor(t, 200*time.Millisecond, measured, "run", "ws-broadcast", "--rounds", "1", "--conns", "50",
		"--only", "gobwas,websocket")
	if err != nil || !strings.Contains(out, "ms until the last has it") || strings.Contains(out, "not measured") {
		t.Errorf("%v\n%s", err, out)
	}
}

// What cannot run says why, and prints no number.
func TestCannotRun(t *testing.T) {
	out, err := bench(t, "run", "engine-echo", "--conns", "5000000", "--rounds", "1", "--duration", "100ms")
	if err == nil || !strings.Contains(out, "not run: 5000000 connections need as many files") ||
		strings.Contains(out, "server") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Setenv("PATH", "")
	t.Setenv("CC", "")
	out, err = bench(t, "run", "engine-echo", "--only", "c-epoll", "--rounds", "1", "--duration", "100ms")
	if err == nil || !strings.Contains(out, "c-epoll not measured: there is no C compiler") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestRefusesArguments(t *testing.T) {
	for _, args := range [][]string{
		{"run"},
		{"run", "no-such-scenario"},
		{"run", "http-100", "--only", "no-such-server"},
		{"run", "http-100", "--rounds", "0"},
		{"run", "http-100", "--duration", "-1s"},
		{"run", "http-100", "--server", "nameless"},
		{"run", "http-100", "--server", "web=/bin/true"},
		{"all", "http-100"},
		{"build", "web"},
		{"all", "--skip", "no-such-scenario"},
		{"report", filepath.Join(t.TempDir(), "nothing.json")},
	} {
		if out, err := bench(t, args...); err == nil {
			t.Errorf("%q did not fail:\n%s", args, out)
		}
	}
}

func TestList(t *testing.T) {
	out, err := bench(t, "list")
	for _, s := range scenarios {
		if !strings.Contains(out, s.name+" ") || err != nil {
			t.Errorf("%s is not in the list, %v", s.name, err)
		}
	}
}

// The table of scenarios names nothing that is not there.
func TestScenarios(t *testing.T) {
	for _, sc := range scenarios {
		p := selection{}.settle(sc, nil, 1<<20)
		if len(p.turns) != len(sc.servers) || p.reference != sc.reference || sc.rows == "" || sc.asks == "" {
			t.Errorf("%s: %d of %d servers, reference %s", sc.name, len(p.turns), len(sc.servers), p.reference)
		}
		for _, name := range sc.measures {
			if _, ok := findMetric(name); !ok {
				t.Errorf("%s measures %q, which is no metric", sc.name, name)
			}
		}
	}
}

// An interrupted run ends all of its processes and has no results, also in the midst of an attack.
func TestInterrupt(t *testing.T) {
	t.Run("under load", func(t *testing.T) {
		interrupted(t, selection{scenarios: []string{"http-100"}, duration: time.Minute},
			func() { time.Sleep(time.Second) })
	})
	t.Run("under attack", func(t *testing.T) {
		const window = 400 * time.Millisecond
		interrupted(t, selection{scenarios: []string{"hostile-slow"}, duration: window}, func() {
			for !attacked() {
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(window * 9 / 4) // most often in its window; any other moment must do, too
		})
	})
}

// interrupted runs what is selected, of one server, until due returns.
func interrupted(t *testing.T, s selection, due func()) {
	ctx, cancel := context.WithCancel(t.Context())
	s.only, s.rounds = []string{"net/http"}, 1
	plans, err := s.plan()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		due()
		cancel()
	}()
	var out bytes.Buffer
	r, err := s.measureAll(ctx, s.newResults(), plans, newProgress(&out, 1),
		func(*results, *outcome) { t.Error("there is an outcome") })
	if r != nil || ctx.Err() == nil || err == nil {
		t.Errorf("%v, %v", r, err)
	}
	if left := children(); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// attacked reports whether a child of this process attacks.
func attacked() bool {
	return slices.ContainsFunc(children(), func(pid string) bool {
		text, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		return bytes.HasSuffix(text, []byte("\x00"+attackCommand+"\x00"))
	})
}
