package natsbus

import (
	"strconv"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A follower that does not hear much of what the log publishes reads it from there: it delivers
// everything once and in order.
func TestFollowerFillsHoles(t *testing.T) {
	t.Parallel()
	s := alone(t)
	one := opened(t, Config{Server: s, Node: "one"})
	two := opened(t, Config{Server: s, Node: "two", Prefix: one.prefix})
	r := new(collector)
	if err := two.Subscribe(within(t), news, r); err != nil {
		t.Fatal(err)
	}
	f, err := two.logs.live(within(t), news)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.sub.SetPendingLimits(2, -1); err != nil { // what does not fit, the client library drops
		t.Fatal(err)
	}
	const rounds, each = 20, 20
	for range rounds {
		func() {
			f.work.Lock() // it does not get on: most of the round is dropped
			defer f.work.Unlock()
			for i := range each {
				publish(t, one, strconv.Itoa(i))
			}
		}()
	}
	eventually(t, "all are delivered", func() bool {
		n, _ := r.state()
		return n >= rounds*each
	})
	dropped, err := f.sub.Dropped()
	if err != nil || dropped == 0 {
		t.Errorf("%d messages were dropped on the way, %v: nothing is tested", dropped, err)
	}
	h, err := one.History(within(t), news, bus.Query{Limit: -1})
	if err != nil {
		t.Fatal(err)
	}
	if n, lost := r.state(); n != rounds*each || lost > 0 || n != len(h.Publications) {
		t.Errorf("%d of %d delivered, %d kept, lost %d times", n, rounds*each, len(h.Publications), lost)
	}
	for i, p := range h.Publications {
		if p.Position != r.list[i].Position || string(p.Data) != string(r.list[i].Data) {
			t.Fatalf("publication %d was delivered as %v, and is kept as %v", i, r.list[i], p)
		}
	}
}

// A follower that has missed what the log has dropped meanwhile says so.
func TestFollowerSaysWhatIsLost(t *testing.T) {
	t.Parallel()
	s := alone(t)
	one := opened(t, Config{Server: s, Node: "one"})
	two := opened(t, Config{Server: s, Node: "two", Prefix: one.prefix})
	small := bus.Topic{Name: "news", Keep: bus.Retention{Size: 1, Age: time.Hour}}
	r := new(collector)
	if err := two.Subscribe(within(t), small, r); err != nil {
		t.Fatal(err)
	}
	f, err := two.logs.live(within(t), small)
	if err != nil {
		t.Fatal(err)
	}
	f.work.Lock() // it does not get on
	if err := f.sub.SetPendingLimits(1, -1); err != nil {
		t.Fatal(err)
	}
	var last bus.Position
	for i := range 20 {
		if last, err = one.Publish(within(t), small, bus.Publication{Data: []byte(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
	}
	f.work.Unlock()
	eventually(t, "the receivers are told, and have the last one", func() bool {
		n, lost := r.state()
		return lost > 0 && n > 0 && r.list[n-1].Position == last
	})
}
