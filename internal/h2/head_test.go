package h2

import (
	"testing"
)

func TestOfConnection(t *testing.T) {
	for name, want := range map[string]bool{"connection": true, "keep-alive": true, "proxy-connection": true,
		"transfer-encoding": true, "upgrade": true, "te": false, "trailer": false, "": false} {
		if got := OfConnection(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestParsePriority(t *testing.T) { // RFC 9218 section 4
	for s, want := range map[string]Priority{
		"":                     {3, false},
		"u=0":                  {0, false},
		"u=7, i":               {7, true},
		"i,u=1":                {1, true},
		"i=?0":                 {3, false},
		"i=?1;x=2":             {3, true},
		"u=8":                  {3, false},
		"u=-1":                 {3, false},
		"u=1.5, i":             {3, true},
		"u=?1":                 {3, false},
		"i=1":                  {3, false},
		"u=2, u=5":             {5, false},
		`x="u=1,i", u=4`:       {4, false},
		`x="a\",i", u=4;q=",i`: {4, false},
	} {
		if got := ParsePriority(s); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}

func TestAddWindow(t *testing.T) {
	for _, tt := range []struct {
		w    int32
		by   int64
		want int32
		ok   bool
	}{{10, 5, 15, true}, {10, -20, -10, true}, {MaxWindow - 1, 1, MaxWindow, true}, {MaxWindow, 1, MaxWindow, false},
		{-MaxWindow, -1, -MaxWindow, false}, {0, 1<<31 - 1, MaxWindow, true}} {
		if got, ok := AddWindow(tt.w, tt.by); got != tt.want || ok != tt.ok {
			t.Errorf("%d + %d: %d, %v", tt.w, tt.by, got, ok)
		}
	}
}

func TestBudgets(t *testing.T) {
	var b Budgets
	limits := &Limits{{200, 20}, {MaxBurst, 1000}, {1, 0}}
	for i := range 200 {
		if !b.Spend(0, 1, limits, 1000) {
			t.Fatalf("the budget is spent after %d", i)
		}
	}
	if b.Spend(0, 1, limits, 1000) {
		t.Error("one more than the burst")
	}
	if !b.Spend(0, 1, limits, 1100) { // two are back
		t.Error("the rate gives nothing back")
	}
	if b.Spend(0, 1, limits, 1100) {
		t.Error("the rate gives too much back")
	}
	b.Return(0, 10)
	if !b.Spend(0, 9, limits, 1100) {
		t.Error("Return gives nothing back")
	}
	if !b.Spend(0, 200, limits, 1<<31) || b.Spend(0, 1<<20, limits, 1<<31) || b.Spend(0, 1<<30, limits, 1<<31) {
		t.Error("long after")
	}
	if !b.Spend(1, MaxBurst, limits, 1<<31) || b.Spend(1, 1, limits, 1<<31) {
		t.Error("the largest burst")
	}
	if !b.Spend(2, 1, limits, 1<<31) || b.Spend(2, 1, limits, 1<<40) {
		t.Error("a budget without a rate")
	}
}

// Time that passes for one kind passes for all.
func TestBudgetsShareTheirClock(t *testing.T) {
	var b Budgets
	limits := &Limits{{10, 1}, {10, 3}, {10, 7}}
	for kind := range kinds {
		b.Spend(kind, 10, limits, 1000)
	}
	for ms := int64(1001); ms < 2000; ms++ { // not one of them is worth a whole thing
		b.Spend(0, 0, limits, ms)
	}
	for kind, back := range []int{1, 3, 7} {
		if !b.Spend(kind, back, limits, 2000) || b.Spend(kind, 1, limits, 2000) {
			t.Errorf("kind %d: %d are not back after a second", kind, back)
		}
	}
}

func TestErrors(t *testing.T) {
	if s := (&Error{Code: Cancel, Stream: 3, Reason: "why"}).Error(); s != "h2: error CANCEL of stream 3: why" {
		t.Error(s)
	}
	if s := (&Error{Code: 99, Reason: "why"}).Error(); s != "h2: connection error code 0x63: why" {
		t.Error(s)
	}
}
