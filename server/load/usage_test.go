package load

import (
	"bytes"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestOwnUse(t *testing.T) {
	second := time.Second
	before := []usage{{CPU: 5 * second, Usable: 1, Host: "a", Processors: 4, Busy: 100 * second},
		{CPU: 7 * second, Usable: 2, Host: "a", Processors: 4, Busy: 100 * second},
		{}, // says nothing
		{Usable: 8, Host: "b", Processors: 8, Busy: 50 * second}}
	after := []usage{{CPU: 14 * second, Usable: 1, Host: "a", Processors: 4, Busy: 136 * second},
		{CPU: 12 * second, Usable: 2, Host: "a", Processors: 4, Busy: 136 * second},
		{},
		{CPU: 8 * second, Usable: 8, Host: "b", Processors: 8, Busy: 58 * second}}
	got := ownOf(before, after, 10*second)
	// The first used 9 of 10 s; both together 14 of 40, on a machine that was busy for 36 of 40.
	if want := (Own{Busiest: 0.9, Machine: 0.9, Share: 0.35}); !nearly(got.Busiest, want.Busiest) ||
		!nearly(got.Machine, want.Machine) || !nearly(got.Share, want.Share) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := ownOf(before, after, 0); got != (Own{}) {
		t.Errorf("%+v in no time", got)
	}
}

func nearly(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

// The report says, as text and in JSON, what of this side may have been the limit.
func TestVerdicts(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(r *Report)
		says   string // in the verdict; empty: there is none
	}{
		"idle":     {func(*Report) {}, ""},
		"a worker": {func(r *Report) { r.Own.Busiest = 0.97 }, "a worker used 97 % of the processors"},
		"the machine": {func(r *Report) { r.Own.Machine, r.Own.Share = 0.99, 0.4 },
			"99 % busy, the workers' part was 40 %"},
		"the server": {func(r *Report) { r.Own.Machine, r.Own.Share = 0.99, 0.05 }, ""},
		"timers": {func(r *Report) {
			r.Total.Timers.Record(time.Millisecond, 90)
			r.Total.Timers.Record(50*time.Millisecond, 10)
		}, "one of a hundred timers of the workers was 50"},
		"good timers": {func(r *Report) { r.Total.Timers.Record(time.Millisecond, 100) }, ""},
		"left out": {func(r *Report) { r.Own.Short = 12 },
			"12 connections were not opened, for want of descriptors"},
		"descriptors": {func(r *Report) { r.Total.fail("connecting: "+syscall.EMFILE.Error(), 3) },
			"3 attempts to connect failed with \"too many open files\""},
		"ports": {func(r *Report) { r.Total.fail("connecting: "+syscall.EADDRNOTAVAIL.Error(), 3) }, "--source"},
	} {
		t.Run(name, func(t *testing.T) {
			r := testReport()
			tt.change(r)
			r.finish(newSpreads(r.Plan))
			verdict := strings.Join(r.Verdict, "; ")
			if tt.says == "" != (verdict == "") || !strings.Contains(verdict, tt.says) {
				t.Errorf("the verdict is %q, want %q", verdict, tt.says)
			}
			var text bytes.Buffer
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if tt.says != "" && !strings.Contains(text.String(), "this side may have been the limit: "+verdict) {
				t.Errorf("the verdict is not in:\n%s", &text)
			}
			encoded, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var back Report
			if err := json.Unmarshal(encoded, &back); err != nil || strings.Join(back.Verdict, "; ") != verdict ||
				back.Own != r.Own {
				t.Errorf("%v: %q and %+v of the JSON", err, back.Verdict, back.Own)
			}
		})
	}
}

// A run with fewer connections than it was to have says so.
func TestMissed(t *testing.T) {
	r := testReport()
	if r.Missed() != "" {
		t.Errorf("of a run with all connections: %q", r.Missed())
	}
	r.opened(70, 100, time.Second, true)
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(),
		"70 of 100 connections were open when the run began, and it went on with those; they had become no more") {
		t.Errorf("%v in\n%s", err, &text)
	}
	l, err := ParseLimit("absent>10")
	if err != nil || l.Check(r) == nil {
		t.Errorf("30 absent connections pass a limit of 10: %v", err)
	}
}

// Connections that come and go around the same number are not more.
func TestGrowthStalls(t *testing.T) {
	g := growth{within: 30 * time.Second, since: epoch}
	now := epoch
	for open := range 50 { // 20 a second: as slow as that is, it goes on
		now = now.Add(29 * time.Second)
		if g.note(20*open, 2000, now); g.stalled {
			t.Fatalf("stalled while it grew to %d", 20*open)
		}
	}
	for i := range 29 {
		now = now.Add(time.Second)
		if g.note(980+i%20, 2000, now); g.stalled {
			t.Fatalf("stalled after %d s", i+1)
		}
	}
	if g.note(985, 2000, now.Add(time.Second)); !g.stalled {
		t.Error("not stalled after 30 s around the same number")
	}
}
