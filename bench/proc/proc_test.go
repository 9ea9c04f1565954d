//go:build linux

package proc

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	for _, tt := range []struct {
		stat         string
		user, system time.Duration
		ok           bool
	}{
		{"7 (a) S 1 2 3 4 5 6 7 8 9 10 150 50 1 1", 1500 * time.Millisecond, 500 * time.Millisecond, true},
		{"7 (a ) S 9 ( b) S 1 2 3 4 5 6 7 8 9 10 0 1 0 0", 0, 10 * time.Millisecond, true},
		{"7 (a) S 1 2 3 4 5 6 7 8 9 10 x 50", 0, 0, false},
		{"7 (a) S 1 2", 0, 0, false},
		{"", 0, 0, false},
	} {
		got, err := parseStat([]byte(tt.stat))
		if got.User != tt.user || got.System != tt.system || (err == nil) != tt.ok {
			t.Errorf("parseStat(%q): %+v, %v", tt.stat, got, err)
		}
	}
}

func TestParseStatus(t *testing.T) {
	got, err := parseStatus([]byte("Name:\tx\nVmPeak:\t  999 kB\nVmHWM:\t    8 kB\nVmRSS:\t    4 kB\nThreads:\t3\n"))
	if want := (Status{RSS: 4096, Peak: 8192, Threads: 3}); got != want || err != nil {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", "Threads:\t1\n", "Threads:\t1\nVmHWM:\t8 kB\nVmRSS:\tmany kB\n"} {
		if got, err := parseStatus([]byte(text)); err == nil {
			t.Errorf("parseStatus(%q) = %+v without an error", text, got)
		}
	}
}

func TestParseBusy(t *testing.T) {
	got, err := parseBusy([]byte("cpu  100 20 30 4000 500 6 7 8 9 9\ncpu0 1 1 1 1\n"))
	if want := 1710 * time.Millisecond; got != want || err != nil {
		t.Errorf("%v, %v, want %v: user, nice, system, irq, softirq and steal", got, err, want)
	}
	for _, text := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 x"} {
		if _, err := parseBusy([]byte(text)); err == nil {
			t.Errorf("parseBusy(%q) without an error", text)
		}
	}
}

// The process's clock and /proc tell the same time, and both go on while it works.
func TestCPU(t *testing.T) {
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	worked := 0
	for after := before; after.Total-before.Total < 50*time.Millisecond; worked++ {
		if after, err = CPU(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	after, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	used := after.Sub(before)
	if difference := (used.Total - used.User - used.System).Abs(); difference > 3*tick {
		t.Errorf("by the clock %v, by /proc %v + %v, after reading it %d times", used.Total, used.User, used.System,
			worked)
	}
	if _, err := CPU(-1); err == nil {
		t.Error("a process that cannot be has used time")
	}
}

func TestReadStatus(t *testing.T) {
	got, err := ReadStatus(os.Getpid())
	if err != nil || got.RSS < 1<<20 || got.Peak < got.RSS || got.Threads < 1 {
		t.Errorf("of this process: %+v, %v", got, err)
	}
}

func TestRaiseFiles(t *testing.T) {
	first, err := RaiseFiles()
	if second, err2 := RaiseFiles(); first < 64 || first != second || err != nil || err2 != nil {
		t.Errorf("%d, %v, then %d, %v", first, err, second, err2)
	}
}
