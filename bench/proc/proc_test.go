//go:build linux

package proc

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
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

func TestDescends(t *testing.T) {
	parents := map[int]int{}
	for _, stat := range []string{"1 (init) S 0 1", "20 (my sh) (x) S 1 20", "30 (bench) S 20 20",
		"31 (client) R 30 20", "32 (redis) S 31 20", "40 (other) S 20 20",
		"50 (circle) S 51 20", "51 (circle) S 50 20"} {
		pid, parent, ok := parseParent([]byte(stat))
		if !ok {
			t.Fatalf("%q is not understood", stat)
		}
		parents[pid] = parent
	}
	if _, _, ok := parseParent([]byte("12 (cut off)")); ok {
		t.Error("a line that is cut off is understood")
	}
	for _, pid := range []int{1, 20, 30, 31, 32, 40, 50, 99} {
		if got, want := descends(pid, 30, parents), pid == 31 || pid == 32; got != want {
			t.Errorf("%d descends from 30: %v", pid, got)
		}
	}
}

// The family of a process is itself and its children while they live.
func TestFamilyCPU(t *testing.T) {
	child := exec.Command("sh", "-c", "while :; do :; done")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	for {
		self, err1 := CPU(os.Getpid())
		family, err2 := FamilyCPU(os.Getpid())
		alone, err3 := FamilyCPU(child.Process.Pid)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		if alone.Total > 10*time.Millisecond && family.Total > self.Total+10*time.Millisecond {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// What children and their children use counts while they run, and a child's after it has been
// waited for.
func TestFamily(t *testing.T) {
	// The rest of the family has used at least and at most that: this process goes on between the
	// two clocks.
	others := func() (least, most time.Duration) {
		own, err1 := clock(os.Getpid())
		all, err2 := Family()
		later, err3 := clock(os.Getpid())
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		return all - later, all - own
	}
	_, before := others()
	child := exec.CommandContext(t.Context(), "sh", "-c", "sh -c 'while :; do :; done' & wait")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	child.Cancel = func() error { return syscall.Kill(-child.Process.Pid, syscall.SIGKILL) }
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	// Only the child's child uses that much: without it there is no end.
	for least := before; least-before < 100*time.Millisecond; least, _ = others() {
	}
	if err := child.Cancel(); err != nil {
		t.Error(err)
	}
	_ = child.Wait()

	before, _ = others()
	done := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
	if err := done.Run(); err != nil {
		t.Fatal(err)
	}
	used := done.ProcessState.UserTime() + done.ProcessState.SystemTime()
	// User and system time are rounded.
	if _, after := others(); after-before < used-time.Millisecond {
		t.Errorf("a child has used %v, of which %v count", used, after-before)
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
