package natsbus

import (
	"errors"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A publication that could not be sent to the other nodes is not delivered here either.
func TestRegistryDeliversWhatWasSent(t *testing.T) {
	r, c := newRegistry(), new(collector)
	if err := r.add("news", c, func(*topic) {}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{errNotConnected, nil} {
		if err := r.publish("news", bus.Publication{}, func() error { return want }); !errors.Is(err, want) {
			t.Errorf("publish returns %v, want %v", err, want)
		}
	}
	if n, _ := c.state(); n != 1 {
		t.Errorf("%d publications were delivered, want the one that was sent", n)
	}
}

// When a log has lost messages, the receivers of its channels are told, once for each epoch, and
// those of other channels are not.
func TestRegistryTellsOfALostLog(t *testing.T) {
	r := newRegistry()
	channels := map[string]*collector{}
	for name, log := range map[string]string{"of the log": "a", "of another": "b", "without one": ""} {
		channels[name] = new(collector)
		err := r.add(name, channels[name], func(at *topic) {
			if at.log = log; log != "" {
				at.epoch = channelEpoch("e1", name)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	r.lostLog("a", "e2")
	for name, want := range map[string]int{"of the log": 1, "of another": 0, "without one": 0} {
		if _, lost := channels[name].state(); lost != want {
			t.Errorf("the channel %s has lost something %d times, want %d", name, lost, want)
		}
	}
	r.receive("of the log", bus.Publication{Position: bus.Position{Epoch: channelEpoch("e2", "of the log")}}, func() {})
	if n, lost := channels["of the log"].state(); n != 1 || lost != 1 {
		t.Errorf("in the new epoch: %d publications, lost %d times", n, lost)
	}
}
