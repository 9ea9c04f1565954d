package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"testing"
	"time"
)

// TestMain is one of the servers when it runs as a child.
func TestMain(m *testing.M) {
	if name := os.Getenv(serveVariable); name != "" {
		exit(serve(name, os.Stdin, os.Stdout))
	}
	m.Run()
}

// A short run answers requests on every server, each of which has used CPU time for them.
func TestRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("CPU time comes from Linux's /proc")
	}
	var out bytes.Buffer
	if err := run(context.Background(), settings{connections: 8, duration: 300 * time.Millisecond, rounds: 2}, &out); err != nil {
		t.Fatal(err)
	}
	for _, name := range serverNames {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^ *%s +[1-9]\d* +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d *$`, name))
		if !row.Match(out.Bytes()) {
			t.Errorf("no row of figures for %s in\n%s", name, &out)
		}
	}
	t.Logf("\n%s", &out)
}

func TestRunRefuses(t *testing.T) {
	if err := run(context.Background(), settings{connections: 0, duration: time.Second, rounds: 1}, new(bytes.Buffer)); err == nil {
		t.Error("a run without connections did not fail")
	}
	if err := serve("no such server", new(bytes.Buffer), new(bytes.Buffer)); err == nil {
		t.Error("a server that does not exist was served")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := measure(ctx, "web", settings{connections: 1, duration: time.Hour, rounds: 1}); err == nil {
		t.Error("a run that was interrupted did not fail")
	}
}

func TestParseStat(t *testing.T) {
	for _, tt := range []struct {
		stat string
		want time.Duration
		ok   bool
	}{
		{"7 (a) S 1 2 3 4 5 6 7 8 9 10 150 50 1 1", 2 * time.Second, true},
		{"7 (a ) S 9 ( b) S 1 2 3 4 5 6 7 8 9 10 0 1 0 0", 10 * time.Millisecond, true},
		{"7 (a) S 1 2 3 4 5 6 7 8 9 10 x 50", 0, false},
		{"7 (a) S 1 2", 0, false},
		{"", 0, false},
	} {
		got, err := parseStat([]byte(tt.stat))
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("parseStat(%q): %v, %v", tt.stat, got, err)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		cpu  []time.Duration
		want float64 // µs
	}{
		{[]time.Duration{3, 1, 2}, 2},
		{[]time.Duration{4, 1, 3, 2}, 2},
		{[]time.Duration{5}, 5},
	} {
		var rs []sample
		for _, c := range tt.cpu {
			rs = append(rs, sample{requests: 1, cpu: c * time.Microsecond})
		}
		if got := middle(rs); got != tt.want {
			t.Errorf("middle of %v: %v, want %v", tt.cpu, got, tt.want)
		}
	}
}
