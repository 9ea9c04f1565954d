package myriad

import (
	"cmp"
	"slices"
	"time"
)

// Stats is a snapshot of an engine's counters, taken without stopping anything.
type Stats struct {
	LoopStats             // the sum over all loops; of times that are a maximum, the largest
	Loops     []LoopStats // one for each loop
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
	// gauge: how long the turn under way has taken, 0 if the loop sleeps: a large one is stuck
	Turn time.Duration

	Handlers []HandlerStats // types of handlers, the slowest first, at most 32
}

// Stats reads the counters. Any goroutine; it holds no loop up, and does not wait for one that is
// stuck.
func (e *Engine) Stats() Stats {
	var s Stats
	now := e.sys.Now().Sub(e.start)
	for _, l := range e.loops {
		one := l.snapshot(now)
		s.Loops = append(s.Loops, one)
		s.add(&one)
	}
	return s
}

func (l *Loop) snapshot(now time.Duration) LoopStats {
	s := &l.stats
	s.mu.Lock()
	t, rows := s.published, slices.Clone(s.rows)
	s.mu.Unlock()
	l.mail.mu.Lock()
	mailbox, intake := len(l.mail.funcs), len(l.intake.coming)
	l.mail.mu.Unlock()
	out := LoopStats{
		Conns: int(s.conns.Load()), Accepts: s.accepts.Load(),
		AcceptErrors: s.acceptErrors.Load(),
		Reads:        uint64(t.reads), Writes: uint64(t.writes), BytesIn: uint64(t.bytesIn),
		BytesOut: uint64(t.bytesOut),
		Sleeps:   uint64(t.sleeps), Wakes: s.wakes.Load(), Turns: uint64(t.turns),
		Overstays: uint64(t.overstays), Handoffs: uint64(t.handoffs),
		Full: s.full.Load(), Busy: s.busy.Load(),
		Queued: int64(t.given - t.bytesOut - t.dropped), Mailbox: mailbox, Intake: intake,
		Hibernating: t.hibernating,
		Dirty:       t.dirty, MostDirty: t.mostDirty, Revisits: t.revisits,
		BusyTime: t.busyTime, HandlerTime: t.handlerTime, LongTurns: uint64(t.longTurns), LongestTurn: t.longest,
	}
	if began := s.turnBegan.Load(); began != noTurn {
		out.Turn = max(0, now-time.Duration(began))
	}
	for i := range rows {
		out.Handlers = append(out.Handlers, rows[i].snapshot())
	}
	slowestFirst(out.Handlers)
	return out
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
