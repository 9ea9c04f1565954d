package myriad

import (
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/driver"
)

// What may follow each state. No other change is made.
func TestStatesFollowTheTable(t *testing.T) {
	follow := map[state]string{
		arriving:  "dialing open frozen closed",
		dialing:   "open closed",
		open:      "detaching frozen draining closed",
		detaching: "open draining closed",
		frozen:    "open closed",
		draining:  "lingering closed",
		lingering: "closed",
		closed:    "arriving",
	}
	names := [...]string{"arriving", "dialing", "open", "detaching", "frozen", "draining", "lingering", "closed"}
	if len(states) != len(names) || len(follow) != len(names) {
		t.Fatalf("%d states, %d names, %d rows", len(states), len(names), len(follow))
	}
	for from := range state(len(states)) {
		for to := range state(len(states)) {
			d := newEnd(t, true)
			d.c.status = d.c.status&^stateBits | status(from) | peerEnded
			want, after := false, from
			for _, name := range strings.Fields(follow[from]) {
				if name == names[to] {
					want, after = true, to
				}
			}
			got := d.c.advance(to)
			if got != want || d.c.state() != after || !d.c.is(peerEnded) {
				t.Errorf("from %s to %s: %v, and it is %s (%b); want %v", names[from], names[to], got,
					names[d.c.state()], d.c.status, want)
			}
		}
	}
}

// A conn that is not open yet, or has ended, is not settled, whatever was asked of it.
func TestOnlyAttachedConnsAreSettled(t *testing.T) {
	for from := range state(len(states)) {
		d := newEnd(t, true)
		d.write(6)
		d.c.status = status(from)
		d.c.loop.settler.settle(d.c)
		if sent, want := len(d.calls) > 0, from != arriving && from != dialing && from != frozen &&
			from != closed; sent != want {
			t.Errorf("%s: sent %v, want %v", states[from].name, sent, want)
		}
		d.c.bury()
	}
	d := newEnd(t, true)
	if c := newConn(d.c.loop, d.h); c.state() != arriving || c.id != driver.ID(0) {
		t.Errorf("a new conn is %d", c.state())
	}
}
