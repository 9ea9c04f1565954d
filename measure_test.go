package myriad

import (
	"reflect"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// clockOnly is a system for a loop that only measures.
type clockOnly struct{ driver.System }

func (clockOnly) Now() time.Time { return time.Now() }

// What measuring adds to one call of a handler, and to one turn. Beside them there are two system
// calls for each.
func BenchmarkMeasuring(b *testing.B) {
	l := assemble(&Loop{engine: &Engine{sys: clockOnly{}}})
	h := Handler(&streamHandler{})
	b.Run("call", func(b *testing.B) {
		for b.Loop() {
			if l.stats.calling(reflect.TypeOf(h)) {
				began := l.elapsed()
				l.stats.timed(reflect.TypeOf(h), l.elapsed()-began)
			}
		}
	})
	b.Run("turn", func(b *testing.B) {
		for b.Loop() {
			l.stats.turned(time.Microsecond)
			l.stats.turnBegan.Store(1)
			l.stats.publish(false)
		}
	})
}

// However many types there are, the table keeps those that were slowest.
func TestHandlerTableIsBounded(t *testing.T) {
	var s loopStats
	const types = 3 * maxHandlerRows
	for round := range 3 {
		for i := range types {
			s.timed(reflect.ArrayOf(i, reflect.TypeFor[byte]()), time.Duration(i+1)*time.Microsecond)
		}
		if len(s.rows) != maxHandlerRows {
			t.Fatalf("round %d: %d rows", round, len(s.rows))
		}
	}
	for _, r := range s.rows {
		if r.Max <= (types-maxHandlerRows)*time.Microsecond {
			t.Errorf("%v with a maximum of %v is in the table, and a slower one is not", r.of, r.Max)
		}
	}
	for i := range 2 * maxTurnTypes {
		s.meet(reflect.ArrayOf(i, reflect.TypeFor[int]()))
	}
	s.turned(time.Second)
	blamed := 0
	for _, r := range s.rows {
		if r.LongestTurn == time.Second && r.LongTurns == 1 {
			blamed++
		}
	}
	if blamed != maxTurnTypes || s.met != 0 {
		t.Errorf("%d types are blamed for a turn, want %d; %d are left for the next", blamed, maxTurnTypes, s.met)
	}
}

// Every call is stood for by one that is timed, whatever brings a burst about.
func TestSamplesStandForAllCalls(t *testing.T) {
	l := assemble(&Loop{engine: &Engine{sys: clockOnly{}}})
	kind := reflect.TypeFor[int]()
	stoodFor := func() int {
		for _, r := range l.stats.rows {
			return int(r.Calls)
		}
		return 0
	}
	for calls := 1; calls <= 5000; calls++ {
		if l.stats.calling(kind) {
			l.stats.timed(kind, time.Microsecond)
		}
		if calls%777 == 0 {
			l.stats.timeEach()
		}
		if n := stoodFor(); n > calls || calls-n >= samplePeriod {
			t.Fatalf("after %d calls the samples stand for %d", calls, n)
		}
	}
}

// Where each turn is long, most calls are still not timed.
func TestLongTurnsDoNotTimeAllCalls(t *testing.T) {
	l := assemble(&Loop{engine: &Engine{sys: clockOnly{}}})
	kind := reflect.TypeFor[int]()
	const calls = 4 * burstEvery
	timed := 0
	for range calls {
		l.stats.timeEach()
		if l.stats.calling(kind) {
			timed++
			l.stats.timed(kind, time.Microsecond)
		}
	}
	if least, most := calls/burstEvery*burstCalls, calls/burstEvery*burstCalls+calls/samplePeriod; timed < least ||
		timed > most {
		t.Errorf("%d of %d calls are timed, want %d to %d", timed, calls, least, most)
	}
}
