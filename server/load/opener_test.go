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
	pause time.Time     // when it stands still for two seconds; zero: never
	open  int
	free  time.Time
}

// serve returns when a connection that comes now is open.
func (s *modelServer) serve(now time.Time) time.Time {
	if s.free.Before(now) {
		s.free = now
	}
	if !s.pause.IsZero() && !now.Before(s.pause) {
		s.free, s.pause = s.free.Add(2*time.Second), time.Time{}
	}
	left := max(1e-9, 1-s.share*float64(s.open))
	s.free = s.free.Add(time.Duration(float64(s.each) / left))
	return s.free
}

// A pending attempt ends at a moment.
type pending struct {
	began, ends time.Time
	d           dialer
	opener      int
}

// drive opens connections of a server until a moment. most is how many waited for it at a time.
func (s *modelServer) drive(o *opener, for_ time.Duration) (most int) {
	most, _ = s.driveAll([]*opener{o}, for_)
	return most
}

// driveAll is drive for the openers of several processes. It ends early, and says when, if all
// connections are open.
func (s *modelServer) driveAll(all []*opener, for_ time.Duration) (most int, over time.Duration) {
	var queue []pending // the server's order is that of ends
	now := epoch
	ask := make([]time.Time, len(all)) // when an opener is to be asked; zero: after a change
	for i := range ask {
		ask[i] = now
	}
	for now.Before(epoch.Add(for_)) {
		var next time.Time // something happens: an end, or an opener has to be asked again
		for i, o := range all {
			if !ask[i].IsZero() && !ask[i].After(now) {
				var d dialer
				for d, ask[i] = o.take(now); d != nil; d, ask[i] = o.take(now) {
					queue = append(queue, pending{now, s.serve(now), d, i})
				}
			}
			if !ask[i].IsZero() && (next.IsZero() || ask[i].Before(next)) {
				next = ask[i]
			}
		}
		if most = max(most, len(queue)); len(queue) > 0 && (next.IsZero() || queue[0].ends.Before(next)) {
			next = queue[0].ends
		}
		if next.IsZero() {
			break
		}
		now = next
		for len(queue) > 0 && !queue[0].ends.After(now) {
			p := queue[0]
			queue = queue[1:]
			s.open++
			all[p.opener].ended(p.d, p.began, p.ends, nil)
			ask[p.opener] = now
		}
	}
	return most, now.Sub(epoch)
}

// However many processes open them, all connections are open little later than the server needs: an
// eighth at most, and three seconds for the slow beginning.
func TestPacerFindsTheRate(t *testing.T) {
	for _, tt := range []struct {
		processes, each int
		rate            float64 // that the server can do
		places          int
	}{{1, 30_000, 1000, 10_000}, {6, 10_000, 4000, 24}, {54, 800, 4000, 24}, {54, 500, 1000, 10_000}} {
		s := &modelServer{each: time.Duration(float64(time.Second) / tt.rate)}
		var all []*opener
		for range tt.processes {
			_, next := dialers(tt.each)
			all = append(all, newOpener(tt.places, newPacer(), next))
		}
		n := tt.processes * tt.each
		needs := time.Duration(n) * s.each
		most, took := s.driveAll(all, time.Hour)
		if s.open != n || took > needs*9/8+3*time.Second {
			t.Errorf("%+v: %d of %d were open after %s; the server needs %s", tt, s.open, n, took, needs)
		}
		if limit := int(tt.rate); most > limit {
			t.Errorf("%+v: %d waited for the server at a time", tt, most)
		}
	}
}

// A server that stands still for two seconds loses little more than these: the pace comes back
// soon.
func TestPacerComesBack(t *testing.T) {
	opened := func(pause time.Time) int {
		_, next := dialers(1_000_000)
		s := &modelServer{each: time.Millisecond, pause: pause}
		s.drive(newOpener(10_000, newPacer(), next), 40*time.Second)
		return s.open
	}
	whole := opened(time.Time{})
	if got := opened(epoch.Add(20 * time.Second)); got < whole-4500 || got >= whole-1000 {
		t.Errorf("%d were opened at 1,000 a second, and %d without a pause of two seconds", got, whole)
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
