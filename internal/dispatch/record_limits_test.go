package dispatch

import (
	"testing"
	"time"
)

// quick is a Record that is quick now, after it has been demoted so many times.
func quick(t *testing.T, demotions int) *Record {
	t.Helper()
	r := new(Record)
	for range demotions {
		untilInline(t, r)
		demote(t, r)
	}
	untilInline(t, r)
	return r
}

// untilInline makes brief calls on the pool until r is inline, and returns how many.
func untilInline(t *testing.T, r *Record) (n int) {
	t.Helper()
	for ; !r.Inline(); n++ {
		if n > 100_000 {
			t.Fatal("it never becomes inline")
		}
		r.Made(brief)
	}
	return n
}

func demote(t *testing.T, r *Record) {
	t.Helper()
	r.Strike()
	r.Strike()
	if r.Inline() {
		t.Fatal("it is inline after two strikes")
	}
}

func calls(r *Record, n int) {
	for range n {
		r.Call()
	}
}

// On probation at most one call of 256 may take a millisecond; with more it begins anew.
func TestLongCallsOnProbation(t *testing.T) {
	const wait = 1024
	for long, want := range map[int]int{0: wait, wait / rare: wait, wait/rare + 1: 2 * wait} {
		for _, took := range []time.Duration{longTime, 3 * longTime} {
			r := quick(t, 0)
			demote(t, r)
			for range long {
				r.Made(took)
			}
			if n := long + untilInline(t, r); n != want {
				t.Errorf("%d calls of %v: inline after %d calls, want %d", long, took, n, want)
			}
		}
		r := quick(t, 0)
		demote(t, r)
		for range long {
			r.Made(longTime - 1)
		}
		if n := long + untilInline(t, r); n != wait {
			t.Errorf("%d calls below a millisecond: inline after %d calls, want %d", long, n, wait)
		}
	}
}

// A second strike counts within 4,096 calls of the first.
func TestStrikesMeet(t *testing.T) {
	for between, inline := range map[int]bool{0: false, memory: false, memory + 1: true} {
		r := quick(t, 0)
		calls(r, 100)
		r.Strike()
		calls(r, between)
		if r.Strike(); r.Inline() != inline {
			t.Errorf("with %d calls between two strikes: inline %v", between, r.Inline())
		}
	}
}

// Of timed inline calls two of a millisecond demote, or four above 100 µs, of which each quick one
// takes a quarter back.
func TestTimedInlineCalls(t *testing.T) {
	for name, tt := range map[string]struct {
		took   []time.Duration
		inline bool
	}{
		"one long":          {[]time.Duration{longTime}, true},
		"two long":          {[]time.Duration{longTime, longTime}, false},
		"three slow":        {[]time.Duration{middle, longTime - 1, middle}, true},
		"four slow":         {[]time.Duration{middle, longTime - 1, quickTime + 1, middle}, false},
		"four just quick":   {[]time.Duration{quickTime, quickTime, quickTime, quickTime, quickTime}, true},
		"quick among slow":  {[]time.Duration{middle, middle, brief, middle, middle}, true},
		"one more":          {[]time.Duration{middle, middle, brief, middle, middle, middle}, false},
		"quick before slow": {[]time.Duration{brief, brief, brief, middle, middle, middle, middle}, false},
	} {
		r := quick(t, 0)
		for _, d := range tt.took {
			r.MadeInline(d)
		}
		if r.Inline() != tt.inline {
			t.Errorf("%s: inline %v", name, r.Inline())
		}
	}
}

// After 65,536 inline calls earlier demotions are forgotten.
func TestDemotionsAreForgiven(t *testing.T) {
	for made, want := range map[int]int{0: 16384, forgiven - 1: 16384, forgiven: 1024} {
		r := quick(t, 2)
		calls(r, made)
		demote(t, r)
		if n := untilInline(t, r); n != want {
			t.Errorf("demoted for the third time, after %d inline calls: inline after %d calls, want %d", made, n, want)
		}
	}
}

// What was timed before a kind became inline, or after it was demoted, teaches nothing.
func TestLateLessons(t *testing.T) {
	r := quick(t, 0)
	for range 100 {
		r.Made(longTime)
	}
	if !r.Inline() {
		t.Error("a call on the pool has demoted a kind that is inline")
	}
	demote(t, r)
	demote(t, r) // by calls that were under way
	for range 10 {
		r.MadeInline(middle)
	}
	if n := untilInline(t, r); n != 1024 {
		t.Errorf("demoted once, and inline after %d calls", n)
	}
}
