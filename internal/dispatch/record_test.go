package dispatch

import (
	"math/rand/v2"
	"testing"
	"time"
)

const (
	brief  = 5 * time.Microsecond
	middle = 300 * time.Microsecond
)

// run makes n calls as a server would and returns how many were made inline. took says what each
// takes.
func run(r *Record, n int, took func(i int) time.Duration) (inline int) {
	for i := range n {
		in, timed := r.Call()
		d := took(i)
		switch {
		case !in:
			r.Made(d)
		default:
			inline++
			if d >= 2*longTime {
				r.Strike() // overtaken
			} else if timed {
				r.MadeInline(d)
			}
		}
	}
	return inline
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func TestQualifies(t *testing.T) {
	for name, tt := range map[string]struct {
		took func(i int) time.Duration
		want int // inline calls of 100
	}{
		"quick":         {always(brief), 100 - QuickRow},
		"just enough":   {always(quickTime), 100 - QuickRow},
		"a little slow": {always(quickTime + 1), 0},
		"first call slow": {func(i int) time.Duration { return brief + longTime*time.Duration(max(0, 1-i)) },
			99 - QuickRow},
		"slow now and then": {func(i int) time.Duration {
			if i%QuickRow == QuickRow-1 {
				return middle
			}
			return brief
		}, 0},
	} {
		if got := run(new(Record), 100, tt.took); got != tt.want {
			t.Errorf("%s: %d inline calls of 100, want %d", name, got, tt.want)
		}
	}
}

// Two strikes send a kind back, for longer each time; one does not.
func TestStrikes(t *testing.T) {
	r := new(Record)
	for i, wait := range []int{1024, 4096, 16384, 16384} {
		run(r, QuickRow+wait, always(brief))
		if !r.Inline() {
			t.Fatalf("round %d: not inline", i)
		}
		r.Strike()
		run(r, 2*memory, always(brief))
		r.Strike()
		if !r.Inline() {
			t.Fatalf("round %d: demoted for two strikes far apart", i)
		}
		run(r, memory/2, always(brief))
		r.Strike()
		if r.Inline() {
			t.Fatalf("round %d: inline after two strikes", i)
		}
		if n := run(r, wait, always(brief)); n != 0 {
			t.Errorf("round %d: %d inline calls in the first %d", i, n, wait)
		}
		if n := run(r, QuickRow, always(brief)); n != QuickRow {
			t.Errorf("round %d: %d inline calls after that, want %d", i, n, QuickRow)
		}
	}
}

// A kind that becomes slow all the time, but not so slow that it is overtaken, is found by the
// calls that are timed.
func TestCreepsUp(t *testing.T) {
	r := new(Record)
	run(r, 1000, always(brief))
	if n := run(r, 10_000, always(middle)); n > 4*sample {
		t.Errorf("%d calls of %v inline before it was noticed, want at most %d", n, middle, 4*sample)
	}
}

// What the operating system does to a quick call now and then does not count.
func TestNoise(t *testing.T) {
	r, rng := new(Record), rand.New(rand.NewPCG(1, 2))
	run(r, 1000, always(brief))
	n := run(r, 100_000, func(int) time.Duration {
		if rng.IntN(100) == 0 {
			return middle
		}
		return brief
	})
	if n != 100_000 {
		t.Errorf("%d of 100000 calls inline although only one in a hundred is held up a little", n)
	}
}

// A slow tail of a percent is kept away from loops, whatever the luck.
func TestTail(t *testing.T) {
	const calls = 1_000_000
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		r, rng, slowInline := new(Record), rand.New(rand.NewPCG(seed, 3)), 0
		run(r, calls, func(int) time.Duration {
			if rng.IntN(100) != 0 {
				return brief
			}
			if r.Inline() {
				slowInline++
			}
			return 5 * time.Millisecond
		})
		if slowInline > 8 {
			t.Errorf("seed %d: %d slow calls inline of %d", seed, slowInline, calls)
		}
	}
}

// A kind that was slow for a while is tried again, and is inline for good when it is quick.
func TestRecovers(t *testing.T) {
	r := new(Record)
	run(r, 10_000, always(5*time.Millisecond))
	if n := run(r, 10_000, always(brief)); n < 10_000-QuickRow-2048 {
		t.Errorf("%d of 10000 quick calls inline after a slow time", n)
	}
}
