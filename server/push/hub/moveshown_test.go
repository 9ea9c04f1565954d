package hub

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// newShown returns a hub with a console, whose clock is that.
func newShown(t *testing.T, clock *pushtest.Clock, console bool) *home {
	t.Helper()
	h := newHome(t, clock, new(laterReader), strings.NewReader(strings.Repeat("x", 1<<10)),
		func(c *Config) { c.Console = console })
	t.Cleanup(func() { _ = h.Shutdown(context.Background()) }) // nothing waits
	return h
}

// What the console lists moves, with the numbers of refusals, also where there are more than are
// kept, and where there is no console in one of the processes.
func TestShownListsMove(t *testing.T) {
	for _, tt := range []struct {
		refusals, slow int
		from, to       bool // there is a console
	}{{0, 0, true, true}, {3, 2, true, true}, {3 * keptRefusals, 2 * keptSlow, true, true}, {3, 2, true, false},
		{3, 2, false, true}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			clock := pushtest.NewClock()
			from, to := newShown(t, clock, tt.from), newShown(t, clock, tt.to)
			for i := range tt.refusals {
				from.CountRefusal(RefusedToken, fmt.Sprint("192.0.2.1:", i), "error", "old\nnew", "channel", "a")
				clock.Advance(refusalPeriod / maxRefusalLines / 2) // the log has no room for every other one
			}
			for i := range tt.slow {
				one := SlowClient{At: clock.Now(), Client: fmt.Sprint(i), User: "ann", Channel: "kept:a", Queued: i}
				from.figures.slowest.add(one)
				one.Channel = ""
				from.figures.droppers.add(one)
				clock.Advance(time.Millisecond)
			}
			_, refused, last := from.Refusals(0)
			from.freeze(t)
			to.freeze(t)
			from.sharedState(t, to)
			from.Leave()
			to.thaw()
			_, got, number := to.Refusals(0)
			if !tt.to {
				refused = []ShownRefusal{}
			}
			if !reflect.DeepEqual(got, refused) || number != last {
				t.Errorf("refusals to number %d\n%+v, want number %d\n%+v", number, got, last, refused)
			}
			disconnected, dropped := to.SlowClients()
			wantDisconnected, wantDropped := from.SlowClients()
			if !reflect.DeepEqual(disconnected, wantDisconnected) || !reflect.DeepEqual(dropped, wantDropped) {
				t.Errorf("slow clients\n%+v\n%+v, want\n%+v\n%+v", disconnected, dropped, wantDisconnected, wantDropped)
			}
		})
	}
}

// Lists that no hub writes are refused.
func TestWrongShownLists(t *testing.T) {
	refusal := func(number uint64) []byte {
		p := snapshot.AppendInt(snapshot.AppendNumber(nil, number), 1)
		return snapshot.AppendNumber(append(p, 0, 0, 0), 0)
	}
	last := func(number uint64) []byte { return snapshot.AppendNumber(snapshot.AppendNumber(nil, number), 0) }
	type record struct {
		part string
		body []byte
	}
	for name, list := range map[string][]record{
		"out of order":    {{refusalPart, refusal(2)}, {refusalPart, refusal(1)}},
		"twice":           {{refusalPart, refusal(2)}, {refusalPart, refusal(2)}},
		"number zero":     {{refusalPart, refusal(0)}},
		"above the last":  {{refusalPart, refusal(2)}, {refusedPart, last(1)}},
		"a list too long": {{slowPart, []byte{0, 2, 0, 0, 0, 0, 0}}},
		"neither list":    {{slowPart, []byte{2, 2, 0, 0, 0, 0}}},
	} {
		h := newShown(t, pushtest.NewClock(), true)
		h.freeze(t)
		r, err := h.Restore()
		if err != nil {
			t.Fatal(err)
		}
		for i, one := range list {
			err = r.Record(one.part, one.body)
			if is := snapshot.IsMalformed(err); is != (i == len(list)-1) {
				t.Errorf("%s: record %d: %v", name, i, err)
			}
		}
		h.Leave()
	}
}
