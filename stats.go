package myriad

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// This file is how a loop counts and times what it does. A call of a handler must not cost two
// readings of the clock, so turns are timed with the reading that each of them makes anyway, and of
// the calls a sample.

// Stats is a snapshot of an engine's counters, taken without stopping anything.
type Stats struct {
	LoopStats             // the sum over all loops; of times that are a maximum, the largest
	Loops     []LoopStats // one for each loop
	Newcomers NewcomerStats
	// gauge: how long the oldest task has waited that is to run off the loops: in the pools of
	// servers, and of all else that Engine.WatchQueue was given
	LateTasks time.Duration
}

// NewcomerStats are about peers that wait to be accepted while loops are late (docs/adr/0033). Of
// those in the kernel's backlog an engine does not know.
type NewcomerStats struct {
	Waited  uint64        // those that a listener has had in hand, and kept waiting
	Waiting int           // gauge: those of now, at most one for each listener
	Longest time.Duration // gauge: for how long the first of them has waited
	Loops   int           // gauge: loops that are late, and take few newcomers
}

// LoopStats are the counters of one loop since its start, and its gauges: what is so now. A loop
// publishes its counters at the end of each turn and before it sleeps, so a counter may be one turn
// old. Accepts, AcceptErrors and Conns are exact, and so are counters of other goroutines (Full,
// Busy, Wakes). Turns are wall time, in which the operating system may have run something else.
type LoopStats struct {
	Conns        int    // gauge: connections attached now
	Hibernating  int    // gauge: of those, how many hibernate (Conn.Hibernate)
	Accepts      uint64 // connections accepted by this loop, for itself and others
	AcceptErrors uint64
	Reads        uint64 // times input was received
	Writes       uint64 // times output was given to the driver
	BytesIn      uint64
	BytesOut     uint64 // bytes taken by the kernel
	Sleeps       uint64 // times the loop had nothing to do
	Wakes        uint64 // times another goroutine ended such a sleep
	Turns        uint64
	Overstays    uint64 // handoffs because an inline task overstayed (InlineTask)
	Handoffs     uint64 // handoffs by an inline task in order to wait (Handoff.HandOff)

	Full uint64 // calls of Conn's Write methods refused with ErrFull
	// calls of Loop.Do refused with ErrBusy; of Engine.Adopt, which means all loops, they count on
	// the first
	Busy uint64

	Queued  int64 // gauge: bytes that the driver holds for peers: given to it, and not yet taken by the kernel
	Mailbox int   // gauge: functions that wait for Loop.Do, at most Config.Mailbox
	Intake  int   // gauge: connections that wait to be attached
	// gauge: conns that were given work in the last turn, outside of their own callbacks: by other
	// goroutines most often
	Dirty     int
	MostDirty int // and in the turn that had most of them
	Revisits  int // gauge: conns that are served in the next turn because they wanted more than one turn's share

	BusyTime    time.Duration // in turns: not asleep and not asking the driver in vain
	HandlerTime time.Duration // in handlers and functions of Loop.Do, estimated: one call of 61 is timed
	LongTurns   uint64        // turns that took 1 ms or more: everything on the loop waited for so long
	LongestTurn time.Duration
	// gauge: how late the loop is, as Engine.Late says it: the largest of the three below, or how
	// long the turn under way has taken
	Late       time.Duration
	MostLate   time.Duration // since the start, of those at the ends of turns
	LateReads  time.Duration // gauge: how long bytes may have waited in a socket
	LateWrites time.Duration // gauge: how long output has waited to be offered to the kernel
	LateTimers time.Duration // gauge: how long a timer has waited for its call
	// gauge: how long the turn under way has taken, 0 if the loop sleeps: a large one is stuck
	Turn time.Duration

	Handlers []HandlerStats // types of handlers, the slowest first, at most 32
}

// HandlerStats says what handlers of one type cost a loop. One call of 61 is timed, and after a
// turn of 1 ms or more each one of the next 256, but no more than 256 of 4,096 so. Max finds a
// handler that is slow more than now and then. LongestTurn finds one that was slow a single time,
// but may show other types that were called in that turn, too.
type HandlerStats struct {
	Type  string        // of the handler, as %T prints it; "func()" for the functions of Loop.Do and Loop.Later
	Calls uint64        // estimated from those timed
	Time  time.Duration // estimated from those timed
	Slow  uint64        // timed calls that took 1 ms or more
	Max   time.Duration // the slowest timed call
	// turns of 1 ms or more in which it was called; only the first 8 types of a turn are noted
	LongTurns   uint64
	LongestTurn time.Duration
}

func (a *LoopStats) add(b *LoopStats) {
	a.Conns += b.Conns
	a.Hibernating += b.Hibernating
	a.Accepts += b.Accepts
	a.AcceptErrors += b.AcceptErrors
	a.Reads += b.Reads
	a.Writes += b.Writes
	a.BytesIn += b.BytesIn
	a.BytesOut += b.BytesOut
	a.Sleeps += b.Sleeps
	a.Wakes += b.Wakes
	a.Turns += b.Turns
	a.Overstays += b.Overstays
	a.Handoffs += b.Handoffs
	a.Full += b.Full
	a.Busy += b.Busy
	a.Queued += b.Queued
	a.Mailbox += b.Mailbox
	a.Intake += b.Intake
	a.Dirty += b.Dirty
	a.MostDirty = max(a.MostDirty, b.MostDirty)
	a.Revisits += b.Revisits
	a.BusyTime += b.BusyTime
	a.HandlerTime += b.HandlerTime
	a.LongTurns += b.LongTurns
	a.LongestTurn = max(a.LongestTurn, b.LongestTurn)
	a.Turn = max(a.Turn, b.Turn)
	a.Late = max(a.Late, b.Late)
	a.MostLate = max(a.MostLate, b.MostLate)
	a.LateReads = max(a.LateReads, b.LateReads)
	a.LateWrites = max(a.LateWrites, b.LateWrites)
	a.LateTimers = max(a.LateTimers, b.LateTimers)
	a.addHandlers(b.Handlers)
}

func (a *LoopStats) addHandlers(more []HandlerStats) {
	for _, h := range more {
		i := slices.IndexFunc(a.Handlers, func(known HandlerStats) bool { return known.Type == h.Type })
		if i < 0 {
			a.Handlers = append(a.Handlers, h)
			continue
		}
		sum := &a.Handlers[i]
		sum.Calls += h.Calls
		sum.Time += h.Time
		sum.Slow += h.Slow
		sum.Max = max(sum.Max, h.Max)
		sum.LongTurns += h.LongTurns
		sum.LongestTurn = max(sum.LongestTurn, h.LongestTurn)
	}
	slowestFirst(a.Handlers)
	a.Handlers = a.Handlers[:min(len(a.Handlers), maxHandlerRows)]
}

// slowestFirst orders by what was measured of the type itself, then by what it may have had a part
// in.
func slowestFirst(hs []HandlerStats) {
	slices.SortFunc(hs, func(a, b HandlerStats) int {
		return cmp.Or(cmp.Compare(b.Max, a.Max), cmp.Compare(b.LongestTurn, a.LongestTurn), cmp.Compare(b.Time, a.Time),
			cmp.Compare(a.Type, b.Type))
	})
}

const (
	// samplePeriod is of how many calls one is timed: a prime, so that of types that take turns
	// none is passed over.
	samplePeriod = 61
	// longTurn is from when on a turn is long, and a timed call slow.
	longTurn = time.Millisecond
	// burstCalls is how many calls are timed one by one after a long turn, which is seldom alone.
	// burstEvery is the least number of calls from one such burst to the next, because a loop with
	// a thousand connections has nothing but long turns.
	burstCalls = 256
	burstEvery = 16 * burstCalls
	// maxTurnTypes is how many types of handlers a turn notes, to have them answer for its length.
	// Others are not blamed.
	maxTurnTypes = 8
	// maxHandlerRows bounds the table of types: the one with the lowest maximum makes way for one
	// with a higher.
	maxHandlerRows = 32

	// noTurn is turnBegan while the loop has nothing to do, and untimed is when a call began that
	// is not timed.
	noTurn  = -1
	untimed = -1
)

// loopStats are what LoopStats is made of.
type loopStats struct {
	conns        atomic.Int64
	accepts      atomic.Uint64
	acceptErrors atomic.Uint64
	full         atomic.Uint64 // by any goroutine, as busy and wakes
	busy         atomic.Uint64
	wakes        atomic.Uint64
	turnBegan    atomic.Int64 // nanoseconds from the engine's start to the start of the turn, or noTurn

	tallies // the loop's own
	sampler // the loop's own

	mu        sync.Mutex // held by the loop, and by readers while they copy
	published tallies    // guarded by mu
	rows      []handlerRow
}

// tallies are published as a whole.
type tallies struct {
	reads, writes, bytesIn, bytesOut uint64
	given, dropped                   uint64 // bytes given to the driver, and those that it will not send any more
	sleeps, turns, longTurns         uint64
	overstays, handoffs              uint64
	dirty, mostDirty, revisits       int
	hibernating                      int // connections
	busyTime, handlerTime, longest   time.Duration
	mostLate                         time.Duration
	late                             struct{ Read, Settle, Timer time.Duration } // at the end of the last turn
}

// A sampler chooses which calls are timed.
type sampler struct {
	until  int // calls until one is timed
	weight int // how many calls the next timed one stands for
	burst  int // how many more are timed one by one
	rest   int // calls until the next burst may begin

	last  reflect.Type // whose handler was called last
	types [maxTurnTypes]reflect.Type
	met   int // how many of types this turn has called
}

// A handlerRow is HandlerStats in the making.
type handlerRow struct {
	of reflect.Type
	HandlerStats
}

func (r *handlerRow) snapshot() HandlerStats {
	s := r.HandlerStats
	s.Type = r.of.String()
	return s
}

// publish lets readers see what the loop has counted. In the middle of its work it does not wait
// for a reader.
func (s *loopStats) publish(must bool) {
	if must {
		s.mu.Lock()
	} else if !s.mu.TryLock() {
		return
	}
	s.published = s.tallies
	s.mu.Unlock()
}

// turned is told at each reading of the clock between two turns how long the one took that has just
// ended.
func (s *loopStats) turned(took time.Duration) {
	s.busyTime += took
	s.longest = max(s.longest, took)
	if took >= longTurn {
		s.longTurns++
		s.blame(took)
		s.timeEach()
	}
	s.met, s.last = 0, nil
}

// blame books a long turn on all types of handlers that were called in it.
func (s *loopStats) blame(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.types[:s.met] {
		if r := s.row(t, took); r != nil {
			r.LongTurns++
			r.LongestTurn = max(r.LongestTurn, took)
		}
	}
}

// timeEach has the next calls timed one by one, unless others were not long ago.
func (s *sampler) timeEach() {
	if s.rest > 0 {
		return
	}
	s.burst, s.rest = burstCalls, burstEvery
	if s.until > 1 {
		s.weight -= s.until - 1
		s.until = 1
	}
}

// calling notes that a method of a value of type t is about to be called, and reports whether that
// call is to be timed.
func (s *sampler) calling(t reflect.Type) (timed bool) {
	if t != s.last {
		s.meet(t)
	}
	s.until--
	return s.until <= 0
}

// meet notes another type that is called in this turn.
func (s *sampler) meet(t reflect.Type) {
	s.last = t
	if s.met < maxTurnTypes && !slices.Contains(s.types[:s.met], t) {
		s.types[s.met] = t
		s.met++
	}
}

func (s *loopStats) timed(t reflect.Type, took time.Duration) {
	n := max(1, s.weight)
	s.handlerTime += took * time.Duration(n)
	s.rest -= n
	s.weight = samplePeriod
	if s.burst > 0 {
		s.burst--
		s.weight = 1
	}
	s.until = s.weight
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.row(t, took)
	if r == nil {
		return
	}
	r.Calls += uint64(n)
	r.Time += took * time.Duration(n)
	r.Max = max(r.Max, took)
	if took >= longTurn {
		r.Slow++
	}
}

// row finds the row of a type, or makes one; in a full table only in place of one that was never as
// slow as took. mu is held.
func (s *loopStats) row(t reflect.Type, took time.Duration) *handlerRow {
	least := 0
	for i := range s.rows {
		if s.rows[i].of == t {
			return &s.rows[i]
		}
		if s.rows[i].slowest() < s.rows[least].slowest() {
			least = i
		}
	}
	switch {
	case len(s.rows) < maxHandlerRows:
		s.rows = append(s.rows, handlerRow{of: t})
		return &s.rows[len(s.rows)-1]
	case s.rows[least].slowest() < took:
		s.rows[least] = handlerRow{of: t}
		return &s.rows[least]
	}
	return nil
}

func (r *handlerRow) slowest() time.Duration { return max(r.Max, r.LongestTurn) }
