package bustest

import (
	"slices"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
)

// taps checks what bus.Local says, of a bus that is one.
func taps(t *testing.T, subject bus.Bus) {
	local, is := subject.(bus.Local)
	if !is {
		return
	}
	receiver, tap := newRecorder(), newRecorder()
	mustSubscribe(t, subject, "news", receiver)
	early := false // the tap got something before the receiver
	stop := local.Tap(func(channel string, list []bus.Publication) {
		tap.Receive(channel, list)
		tap.mu.Lock()
		defer tap.mu.Unlock()
		receiver.mu.Lock()
		defer receiver.mu.Unlock()
		early = early || len(receiver.received) < len(tap.received)
	})
	n := publishAll(t, subject, "news", 50)
	if got := tap.wait(t, n); !slices.Equal(got, receiver.wait(t, n)) {
		t.Errorf("the tap got %q, the receiver %q", got, receiver.wait(t, n))
	}
	if early || tap.overlap {
		t.Errorf("the tap was called before the receiver: %v; calls overlap: %v", early, tap.overlap)
	}
	mustPublish(t, subject, "other", message("without a receiver"))
	if _, err := subject.Publish(within(t), kept("news"), message("kept")); err != nil {
		t.Error(err)
	}
	tap.wait(t, n+2)
	stop()
	mustPublish(t, subject, "news", message("late"))
	receiver.wait(t, n+2)
	if got := tap.wait(t, n+2); len(got) > n+2 {
		t.Errorf("a tap that was stopped got %q", got[n+2:])
	}
}
