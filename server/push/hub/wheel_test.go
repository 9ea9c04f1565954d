package hub

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A session ticks after its deadline, and at most two slots later, for near and distant deadlines.
func TestWheelMeetsDeadlines(t *testing.T) {
	n := newTestNode(t)
	random := rand.New(rand.NewPCG(1, 2))
	type waiting struct {
		c  *fakeTransport
		at time.Time
	}
	var all []waiting
	for range 300 {
		c := n.dial()
		at := n.clock.Now().Add(time.Duration(random.Int64N(int64(5 * time.Minute))))
		c.s.mu.Lock()
		c.s.endAt = at.UnixNano()
		n.wheel.set(c.s, c.s.endAt)
		c.s.mu.Unlock()
		all = append(all, waiting{c, at})
	}
	for range int(6 * time.Minute / wheelSlot) {
		n.clock.Advance(wheelSlot)
		now := n.clock.Now()
		for _, w := range all {
			closed := w.c.s.IsClosing()
			if closed && now.Before(w.at) {
				t.Fatalf("closed %v too early", w.at.Sub(now))
			}
			if !closed && now.Sub(w.at) > 2*wheelSlot {
				t.Fatalf("still open %v after its deadline", now.Sub(w.at))
			}
		}
	}
}

// After a pause longer than a round of the wheel, one sweep ticks all due sessions.
func TestWheelAfterAPause(t *testing.T) {
	n := newTestNode(t)
	n.timer.stop()
	c := n.dial()
	n.clock.Advance(time.Hour)
	n.wheel.sweep(n.clock.Now())
	if !c.s.IsClosing() {
		t.Error("a client that has been stale for an hour is still connected")
	}
}

func TestWheelKeepsNoRoomForACrowd(t *testing.T) {
	n := newTestNode(t)
	crowd := make([]*fakeTransport, 5000)
	for i := range crowd {
		crowd[i] = n.dial()
	}
	if got := len(n.wheel.all()); got != len(crowd) {
		t.Fatalf("%d in the wheel, want %d", got, len(crowd))
	}
	for _, c := range crowd {
		c.hangUp()
	}
	room := 0
	for _, slot := range n.wheel.slots {
		room += cap(slot)
	}
	if room > 200 {
		t.Errorf("the list still has room for %d sessions after all have ended", room)
	}
}
