package load

import (
	"errors"
	"testing"
	"time"
)

// A fakeDialer is opened by a test.
type fakeDialer struct{ state dialState }

func (d *fakeDialer) open(*worker) error  { return nil }
func (d *fakeDialer) dialing() *dialState { return &d.state }

// dialers returns n of them, and what hands them out in order.
func dialers(n int) ([]*fakeDialer, func() dialer) {
	all, next := make([]*fakeDialer, n), 0
	for i := range all {
		all[i] = new(fakeDialer)
	}
	return all, func() dialer {
		if next == n {
			return nil
		}
		next++
		return all[next-1]
	}
}

var (
	errRefused = errors.New("refused")
	epoch      = time.Unix(1_764_000_000, 0)
)

// A thousand connections have failed and wait. One that was never tried needs one of the two
// places, and has it at once.
func TestWaitingTakesNoPlace(t *testing.T) {
	_, next := dialers(1002)
	o := newOpener(2, nil, next)
	now := epoch
	for range 1000 {
		d, _ := o.take(now)
		if d == nil {
			t.Fatal("nothing may begin, although all others wait")
		}
		o.ended(d, now, now, errRefused)
	}
	for range 2 {
		if d, _ := o.take(now); d == nil {
			t.Fatal("nothing may begin, although both places are free")
		}
	}
	if d, again := o.take(now.Add(time.Hour)); d != nil || !again.IsZero() {
		t.Errorf("a third attempt began beside two: %v, ask again at %v", d, again)
	}
}

// What fails again and again is tried less and less often, at moments that are spread over the
// whole of its wait.
func TestBackoffGrowsAndIsSpread(t *testing.T) {
	const n = 2000
	_, next := dialers(n)
	o := newOpener(n, nil, next)
	now := epoch
	for failures := range dialState(12) {
		bound := min(firstBackoff<<(failures+1), lastBackoff)
		var eighths [8]int
		for range n {
			d, _ := o.take(now)
			o.ended(d, now, now, errRefused)
		}
		for _, w := range o.waiting {
			wait := w.at.Sub(now)
			if wait < 0 || wait >= bound {
				t.Fatalf("after %d failures the next attempt is after %s, and %s is the limit", failures+1, wait, bound)
			}
			eighths[8*wait/bound]++
		}
		for i, count := range eighths {
			if count < n/8/2 || count > n/8*2 {
				t.Errorf("after %d failures %d of %d wait for between %d and %d eighths of %s", failures+1, count, n,
					i, i+1, bound)
			}
		}
		now = now.Add(bound)
	}
}

// A connection that was open and is lost is opened again soon, however often it has failed before.
func TestOpenConnectionsForgetFailures(t *testing.T) {
	d := new(fakeDialer)
	o := newOpener(1, nil, nil)
	for range 1000 {
		d.state.failed()
	}
	d.state.succeeded()
	o.again(d, epoch)
	if got, _ := o.take(epoch.Add(firstBackoff)); got != d {
		t.Errorf("after %s the next attempt is not due", firstBackoff)
	}
}

// A connection whose server has ended it in a long silence is opened again at once, so that it is
// there when something is due. One that has ended soon waits, as does one with a request under way.
func TestIdleConnectionsAreOpenedAtOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		open   time.Duration
		busy   bool
		atOnce bool
	}{
		{"after a silence", 2 * firstBackoff, false, true},
		{"soon", 0, false, false},
		{"with a request", 2 * firstBackoff, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := new(fakeDialer)
			for range 20 {
				d.state.failed()
			}
			k := &wireLink{lane: testLane(), dialer: d, reopen: func(dialer) {}}
			k.Opened(nil)
			k.since = k.since.Add(-c.open)
			if c.busy {
				k.due = time.Now()
			}
			k.Closed(nil, nil)
			o := newOpener(1, nil, nil)
			o.again(d, epoch)
			if got := o.waiting[0].at.Equal(epoch); got != c.atOnce {
				t.Errorf("opened again at once: %v, want %v; state %b", got, c.atOnce, d.state)
			}
			if c.atOnce && d.state.failures() != 0 {
				t.Errorf("%d failures are remembered", d.state.failures())
			}
		})
	}
}

// take says when the next attempt is due, and what was tried before goes first.
func TestOpenerSaysWhenToAsk(t *testing.T) {
	all, next := dialers(2)
	o := newOpener(2, nil, next)
	d, _ := o.take(epoch)
	o.ended(d, epoch, epoch, errRefused)
	at := o.waiting[0].at
	if d, _ := o.take(at); d != all[0] {
		t.Error("a fresh connection goes before one that has waited")
	}
	o.ended(d, at, at, errRefused)
	if d, _ := o.take(at); d != all[1] {
		t.Error("the fresh connection does not follow")
	}
	if d, again := o.take(at); d != nil || !again.Equal(o.waiting[0].at) {
		t.Errorf("ask again at %v, want %v", again, o.waiting[0].at)
	}
}

// Once a run goes on with what it has, only what was open is opened again.
func TestSettledOpensNothingNew(t *testing.T) {
	all, next := dialers(4)
	o := newOpener(4, nil, next)
	for range 3 {
		o.take(epoch)
	}
	all[0].state.opened()
	o.ended(all[0], epoch, epoch, nil)
	o.again(all[0], epoch)                    // it is lost
	o.ended(all[1], epoch, epoch, errRefused) // all[2] is being opened, all[3] was never tried
	o.settle()
	o.ended(all[2], epoch, epoch, errRefused)
	now := epoch.Add(time.Hour)
	if d, _ := o.take(now); d != all[0] {
		t.Errorf("%v is opened again, want the one that was open", d)
	}
	if d, again := o.take(now); d != nil || !again.IsZero() {
		t.Errorf("another one is opened: %v", d)
	}
}

// A modelServer takes connections in one after the other. Those that it has take a share of its
// time.
type modelServer struct {
	each  time.Duration // to take one in
	share float64       // of its time that one which is open takes
	open  int
	free  time.Time
}

// serve returns when a connection that comes now is open.
func (s *modelServer) serve(now time.Time) time.Time {
	if s.free.Before(now) {
		s.free = now
	}
	left := max(1e-9, 1-s.share*float64(s.open))
	s.free = s.free.Add(time.Duration(float64(s.each) / left))
	return s.free
}

// A pending attempt ends at a moment.
type pending struct {
	began, ends time.Time
	d           dialer
}

// drive opens connections of a server until a moment. most is how many waited for it at a time.
func (s *modelServer) drive(o *opener, for_ time.Duration) (most int) {
	var queue []pending // the server's order is that of ends
	for now := epoch; now.Before(epoch.Add(for_)); {
		if d, again := o.take(now); d != nil {
			queue = append(queue, pending{now, s.serve(now), d})
			most = max(most, len(queue))
			continue
		} else if len(queue) > 0 && (again.IsZero() || !queue[0].ends.After(again)) {
			now = queue[0].ends
			s.open++
			o.ended(queue[0].d, queue[0].began, now, nil)
			queue = queue[1:]
		} else if now = again; again.IsZero() {
			return most
		}
	}
	return most
}

// A server that can take 1,000 a second in is offered about as many, from a slow beginning.
func TestPacerFindsTheRate(t *testing.T) {
	_, next := dialers(1_000_000)
	s := &modelServer{each: time.Millisecond}
	most := s.drive(newOpener(10_000, newPacer(), next), time.Minute)
	if s.open < 40_000 || s.open > 60_000 {
		t.Errorf("%d were opened in a minute, at 1,000 a second", s.open)
	}
	if most > 1000 {
		t.Errorf("%d waited for the server at a time", most)
	}
}

// A server whose connections take all of its time has few newcomers when it is nearly full: those
// that are open are served, and the pace is the least.
func TestPacerStopsWhereTheServerDoes(t *testing.T) {
	_, next := dialers(1_000_000)
	s := &modelServer{each: time.Millisecond, share: 1.0 / 20_000}
	o := newOpener(10_000, newPacer(), next)
	most := s.drive(o, 10*time.Minute)
	if s.open < 18_000 || s.open > 20_100 {
		t.Errorf("%d are open, of 20,000 that are possible", s.open)
	}
	if most > 1000 {
		t.Errorf("%d waited for the server at a time", most)
	}
}

// Connections that the server ends slow the pace down once a second, however many there are.
func TestLossesSlowThePace(t *testing.T) {
	p := &pacer{rate: 1000}
	for i := range 3000 {
		p.lost(epoch.Add(time.Duration(i) * time.Millisecond))
	}
	if want := 1000 * paceDown * paceDown * paceDown; !nearly(p.rate, want) {
		t.Errorf("a rate of %g after three seconds of losses, want %g", p.rate, want)
	}
	for range 1000 {
		p.lost(p.cut.Add(time.Second))
	}
	if p.rate != paceLeast {
		t.Errorf("a rate of %g, want %g", p.rate, paceLeast)
	}
}
