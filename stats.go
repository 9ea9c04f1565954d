package myriad

import "sync/atomic"

// Stats is a snapshot of an engine's counters, taken without stopping anything.
type Stats struct {
	LoopStats             // the sum over all loops
	Loops     []LoopStats // one for each loop
}

// LoopStats are the counters of one loop since its start; Conns is a gauge.
type LoopStats struct {
	Conns        int    // connections attached now
	Accepts      uint64 // connections accepted by this loop, for itself and others
	AcceptErrors uint64
	Reads        uint64 // times input was received
	Writes       uint64 // times output was given to the driver
	BytesIn      uint64
	BytesOut     uint64 // bytes taken by the kernel
	Sleeps       uint64 // times the loop had nothing to do
}

type loopStats struct {
	conns        atomic.Int64
	accepts      atomic.Uint64
	acceptErrors atomic.Uint64
	reads        atomic.Uint64
	writes       atomic.Uint64
	bytesIn      atomic.Uint64
	bytesOut     atomic.Uint64
	sleeps       atomic.Uint64
}

func (s *loopStats) snapshot() LoopStats {
	return LoopStats{
		Conns:   int(s.conns.Load()),
		Accepts: s.accepts.Load(), AcceptErrors: s.acceptErrors.Load(),
		Reads: s.reads.Load(), Writes: s.writes.Load(),
		BytesIn: s.bytesIn.Load(), BytesOut: s.bytesOut.Load(),
		Sleeps: s.sleeps.Load(),
	}
}

func (a *LoopStats) add(b LoopStats) {
	a.Conns += b.Conns
	a.Accepts += b.Accepts
	a.AcceptErrors += b.AcceptErrors
	a.Reads += b.Reads
	a.Writes += b.Writes
	a.BytesIn += b.BytesIn
	a.BytesOut += b.BytesOut
	a.Sleeps += b.Sleeps
}

// Stats reads the counters. Any goroutine.
func (e *Engine) Stats() Stats {
	var s Stats
	for _, l := range e.loops {
		one := l.stats.snapshot()
		s.Loops = append(s.Loops, one)
		s.add(one)
	}
	return s
}
