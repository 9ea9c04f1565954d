package membus

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// This file stops a bus while what it has moves to the bus of another process.

// errFrozen says that the caller waits for the end of the freeze, and looks up the channel again.
var errFrozen = errors.New("membus: the bus is frozen")

// A freeze is that of a bus.
type freeze struct {
	mu     sync.Mutex
	thawed chan struct{} // closed by Thaw and Close; nil: the bus is not frozen
}

// end lets calls go on that wait. It does nothing if the bus is not frozen.
func (f *freeze) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed != nil {
		close(f.thawed)
		f.thawed = nil
	}
}

// waitThaw returns when the bus is not frozen, or with ctx's error.
func (b *Bus) waitThaw(ctx context.Context) error {
	b.frozen.mu.Lock()
	thawed := b.frozen.thawed
	b.frozen.mu.Unlock()
	if thawed == nil {
		return nil
	}
	select {
	case <-thawed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Freeze stops the bus until Thaw. When it returns nil, everything that was published has been
// delivered, and has its place in the history and among the IDs that are remembered.
//
// While the bus is frozen, Publish, History, Forget and Present wait, until their contexts end.
// Close refuses them with bus.ErrClosed, and what they would have published is not published.
// Notices of Announce are lost. Subscribe and Unsubscribe work. Histories still expire.
//
// If ctx ends before, Freeze returns its error, and the bus goes on. A bus is frozen by one caller
// at a time.
func (b *Bus) Freeze(ctx context.Context) error {
	b.frozen.mu.Lock()
	if b.frozen.thawed == nil {
		b.frozen.thawed = make(chan struct{})
	}
	b.frozen.mu.Unlock()
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		s.frozen = true
		topics := slices.Collect(maps.Values(s.topics))
		s.mu.Unlock()
		for _, t := range topics {
			t.freeze(b)
		}
	}
	if err := b.receipts.WaitIdle(ctx); err != nil {
		b.Thaw()
		return err
	}
	return nil
}

// freeze delivers what waits. A publication that is not among it has not been appended, and comes
// back when the bus has thawed.
func (t *topic) freeze(b *Bus) {
	t.order.Lock()
	defer t.order.Unlock()
	t.mu.Lock()
	t.frozen = true
	t.mu.Unlock()
	t.deliverAll(b)
}

// Thaw ends a freeze. It does nothing if the bus is not frozen.
func (b *Bus) Thaw() {
	var left []*topic
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		s.frozen = false
		for _, t := range s.topics {
			if t.thaw() {
				left = append(left, t)
			}
		}
		s.mu.Unlock()
	}
	for _, t := range left {
		b.keepPosition(t)
	}
	b.frozen.end()
}

// thaw reports whether t was to have receivers, and has none: their clients have not come.
func (t *topic) thaw() (left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frozen = false
	left = t.expected
	t.expected = false
	if left {
		t.hasReceivers = false
	}
	return left
}
