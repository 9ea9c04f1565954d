package websocket

import "sync/atomic"

// Stats are counters of all connections of one Options since the first of them.
type Stats struct {
	Refused      uint64 // messages for which Write failed with ErrFull
	Waited       uint64 // messages that waited for room
	Dropped      uint64 // messages that Overflow dropped
	DroppedBytes uint64 // of these, frame headers included
	ClosedSlow   uint64 // connections that OverflowClose closed
}

// Stats are the counters. Any goroutine.
func (o *Options) Stats() Stats {
	if s := o.compiled.Load(); s != nil {
		return s.count.read()
	}
	return Stats{}
}

// Stats are the counters. Any goroutine.
func (o *DialOptions) Stats() Stats {
	if s := o.dialing.Load(); s != nil {
		return s.count.read()
	}
	return Stats{}
}

type counters struct {
	refused, waited, dropped, droppedBytes, closed atomic.Uint64
}

func (n *counters) read() Stats {
	return Stats{Refused: n.refused.Load(), Waited: n.waited.Load(), Dropped: n.dropped.Load(),
		DroppedBytes: n.droppedBytes.Load(), ClosedSlow: n.closed.Load()}
}
