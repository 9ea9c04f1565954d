package membus

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/bustest"
	"github.com/myriad-go/myriad/server/push/internal/receipts"
)

var _ bus.Local = (*Bus)(nil)

func TestBus(t *testing.T) {
	bustest.Run(t, func() bus.Bus { return New(Config{}) })
}

// fakeClock moves only in advance, which runs the timers that it passes. It is not for concurrent
// use.
type fakeClock struct {
	passed time.Duration
	timers []*fakeTimer
}

type fakeTimer struct {
	at time.Duration
	f  func() // nil: it was stopped, or has run
}

func (c *fakeClock) Now() time.Time { return time.Unix(1_800_000_000, 0).Add(c.passed) }

func (c *fakeClock) AfterFunc(d time.Duration, f func()) func() bool {
	timer := &fakeTimer{c.passed + d, f}
	c.timers = append(c.timers, timer)
	return func() bool {
		stopped := timer.f != nil
		timer.f = nil
		return stopped
	}
}

// advance moves the clock by d, and runs each timer at its time. Timers are set in the order of
// their times: a bus has one.
func (c *fakeClock) advance(d time.Duration) {
	end := c.passed + d
	for len(c.timers) > 0 && c.timers[0].at <= end {
		timer := c.timers[0]
		c.timers, c.passed = c.timers[1:], timer.at
		if f := timer.f; f != nil {
			timer.f = nil
			f()
		}
	}
	c.passed = end
}

// quiet is a receiver that does nothing.
type quiet struct{ _ int }

func (*quiet) Receive(string, []bus.Publication)                      {}
func (*quiet) Lost(string)                                            {}
func (*quiet) Notice(string, bus.Notice)                              {}
func (*quiet) Present(_ string, to []bus.ClientInfo) []bus.ClientInfo { return to }

// The IDs of publications are forgotten after their time, though nothing is published.
func TestIDsAreSwept(t *testing.T) {
	clock := new(fakeClock)
	b := New(Config{Clock: clock})
	defer b.Close()
	for i := range 3 {
		p := bus.Publication{ID: fmt.Sprint(i), Data: []byte("1")}
		if _, err := b.Publish(t.Context(), bus.Topic{Name: "news"}, p); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.receipts.Len(); got != 3 {
		t.Fatalf("%d IDs are remembered, want 3", got)
	}
	clock.advance(receipts.Window + sweepEvery)
	if got := b.receipts.Len(); got != 0 {
		t.Errorf("%d IDs are remembered after their time", got)
	}
}

// A topic that exists for a tap alone is gone after its publication.
func TestTapsKeepNoTopics(t *testing.T) {
	b := New(Config{})
	defer b.Close()
	var mu sync.Mutex
	tapped := 0
	stop := b.Tap(func(_ string, list []bus.Publication) {
		mu.Lock()
		defer mu.Unlock()
		tapped += len(list)
	})
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 100 {
				topic := bus.Topic{Name: fmt.Sprintf("b%d", (i+j)%50)}
				if _, err := b.Publish(t.Context(), topic, bus.Publication{Data: []byte("1")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if tapped != 400 {
		t.Errorf("the tap got %d publications, want 400", tapped)
	}
	stop()
	for i := range b.shards {
		if n := len(b.shards[i].topics); n > 0 {
			t.Errorf("%d topics left", n)
		}
	}
	if len(b.tapped()) > 0 {
		t.Error("the bus is still tapped")
	}
}
