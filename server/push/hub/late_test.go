package hub

import (
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/answer"
)

// On a node that is late, or behind output that has not left, a client has its time to answer and
// to connect twice, and no more. On others it has it once.
func TestClientsOfALateNodeAreSpared(t *testing.T) {
	for _, tt := range []struct {
		name   string
		late   time.Duration // of the loops
		queued int           // bytes for the client
		times  int
	}{
		{"on time", 0, 0, 1}, {"a little late", lateEnough - 1, 0, 1}, {"late", lateEnough, 0, 2}, {"queued", 0, 1, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newTestNode(t)
			n.wheel.lateness.of = func() time.Duration { return tt.late }
			c := n.connected()
			for len(c.take()) == 0 {
				n.clock.advance(wheelSlot)
			}
			c.mu.Lock()
			c.bytes = tt.queued
			c.mu.Unlock()
			n.clock.advance(time.Duration(tt.times)*n.timing.Pong - wheelSlot)
			c.wantOpen(t, "before the end of its time")
			n.clock.advance(3 * wheelSlot)
			c.wantClosed(t, "behind its time", answer.DisconnectNoPong)
			if got := n.Ended()["no pong"]; got != 1 {
				t.Errorf("%d sessions are counted as ended for that", got)
			}
			if tt.queued > 0 {
				return
			}
			begun := n.dial()
			n.clock.advance(time.Duration(tt.times)*n.timing.Connect - wheelSlot)
			begun.wantOpen(t, "before the end of its time to connect")
			n.clock.advance(3 * wheelSlot)
			begun.wantClosed(t, "behind its time to connect", answer.DisconnectStale)
		})
	}
}

// A timed transport knows when an answer is due.
type timedTransport struct {
	Transport
	refuses        bool
	asked, answers int
}

func (t *timedTransport) AwaitAnswer() bool { t.asked++; return !t.refuses }
func (t *timedTransport) Answered()         { t.answers++ }

// A client whose connection times its answers is not judged by the wheel, and gets no second ping
// before it has answered.
func TestAnswerTimers(t *testing.T) {
	n := newTestNode(t)
	c := n.connected()
	timed := &timedTransport{Transport: c.s.t}
	c.s.t = timed
	n.clock.advance(n.timing.Ping)
	c.want(t, "ping", `{}`)
	n.clock.advance(10 * n.timing.Ping)
	c.want(t, "a second ping")
	c.wantOpen(t, "ten intervals later")
	if timed.asked < 5 || timed.answers != 0 {
		t.Errorf("the transport was asked to wait %d times and told of %d answers", timed.asked, timed.answers)
	}
	c.frame([]byte(`{}`))
	if timed.answers != 1 {
		t.Errorf("the transport was told of %d answers, want 1", timed.answers)
	}
	c.s.NoAnswer()
	c.wantOpen(t, "after a verdict that is too late")
	n.clock.advance(n.timing.Ping)
	c.want(t, "the next ping", `{}`)
	c.s.NoAnswer()
	c.wantClosed(t, "after the verdict", answer.DisconnectNoPong)
	c.s.t = c

	c = n.connected()
	c.s.t = &timedTransport{Transport: c.s.t, refuses: true}
	n.clock.advance(n.timing.Ping + n.timing.Pong + wheelSlot)
	c.want(t, "ping", `{}`)
	c.wantClosed(t, "its transport does not wait after all", answer.DisconnectNoPong)
	c.s.t = c
}
