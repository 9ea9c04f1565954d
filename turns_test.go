package myriad

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/wheel"
)

// A stub is a driver that notes what it is asked for. Its loop is stepped by the test.
type stub struct {
	driver.Driver
	loop     *Loop
	dials    []string // when, and to where
	attached int
	wakes    int

	closedListeners int
}

func (s *stub) Dial(a net.Addr) (driver.ID, error) {
	s.dials = append(s.dials, fmt.Sprintf("%v at %d", a, s.loop.now))
	return driver.MakeID(0, uint32(len(s.dials)), 1), nil
}

func (s *stub) Poll(time.Duration, driver.Events) (int, error) { return 0, nil }

func (s *stub) Attach(driver.Socket) (driver.ID, error) {
	s.attached++
	return 0, errors.ErrUnsupported
}

func (s *stub) Wake()                { s.wakes++ }
func (s *stub) StopAccept(driver.ID) {}
func (s *stub) Close(driver.ID)      {}

func newStub(most int64) (*quota, *stub) {
	e := &Engine{admission: admission{quota: quota{most: most}},
		cfg: Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			DialTimeout: time.Minute}}
	s := &stub{loop: assemble(&Loop{engine: e, wheel: wheel.New(0), listeners: map[uint32]*Listener{}})}
	s.loop.drv = s
	e.loops = []*Loop{s.loop}
	e.admission.engine, e.admission.door.engine = e, e
	return &e.admission.quota, s
}

// Room that has just come up is for the listener that waits, also when another one is quicker to be
// given a peer.
func TestNobodyPassesTheQueue(t *testing.T) {
	q, s := newStub(1)
	first, second := &Listener{loop: s.loop}, &Listener{loop: s.loop}
	q.reserve()
	first.claim = claim{loop: s.loop, granted: func() bool { return s.loop.Post(first.roomReserved) }}
	q.queueUp(&first.claim)
	q.open.Add(-1) // the first half of give
	second.accepted(nilSocket{})
	if s.attached != 0 || second.hand == nil || second.waits != forRoom {
		t.Errorf("the second listener was given room that the first waits for; %d attached", s.attached)
	}
	if posted(s.loop) != 1 || q.open.Load() != 1 || !slices.Equal(q.queue, []*claim{&second.claim}) {
		t.Errorf("%d open, %d wait: the first was not given its room", q.open.Load(), len(q.queue))
	}
}

// Work that is posted keeps the loop from falling asleep, or wakes it once.
func TestPostedWorkWakesALoopOnce(t *testing.T) {
	_, s := newStub(1)
	l := s.loop
	l.post(workMail)
	if s.wakes != 0 || l.fallAsleep() {
		t.Fatalf("awake, with mail: woken %d times, or it falls asleep", s.wakes)
	}
	if got := l.todo(allWork); got != workMail || l.fallAsleep() {
		t.Fatalf("to do is %b, want mail; or it falls asleep over that", got)
	}
	if l.due = 0; !l.fallAsleep() {
		t.Fatal("a loop without work does not fall asleep")
	}
	l.post(workDirty)
	l.post(workDirty)
	l.post(workMail)
	if s.wakes != 1 {
		t.Errorf("woken %d times, want once", s.wakes)
	}
	if got := l.todo(allWork); got != workDirty|workMail {
		t.Errorf("to do is %b, want dirty conns and mail", got)
	}
	if l.post(workDirty); s.wakes != 1 {
		t.Error("a loop that is awake was woken")
	}
}

type nilSocket struct{ driver.Socket }

func (nilSocket) Close() error { return nil }

// The next address is tried 250 ms after the last one was. An older attempt whose own 250 ms end
// meanwhile changes nothing.
func TestOnlyTheNewestAttemptStaggers(t *testing.T) {
	_, s := newStub(100)
	l := s.loop
	var addrs []net.Addr
	for i := range 5 {
		addrs = append(addrs, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1 + i})
	}
	r := &race{loop: l, handler: idling{}, addrs: addrs}
	r.start()
	for ; l.now <= 1000; l.now++ {
		if l.now == 304 {
			// the first, after the second has begun
			(*sink)(l).DialFailed(driver.MakeID(0, 1, 1), errors.ErrUnsupported)
		}
		l.wheel.Advance(l.now, l.expired)
	}
	want := []string{
		// ticks have 8 ms; a failure is answered at once
		"127.0.0.1:1 at 0", "127.0.0.1:2 at 256", "127.0.0.1:3 at 304",
		"127.0.0.1:4 at 560", "127.0.0.1:5 at 816",
	}
	if !slices.Equal(s.dials, want) {
		t.Errorf("tried %v, want %v", s.dials, want)
	}
}

type idling struct{}

func (idling) Opened(*Conn)           {}
func (idling) Received(*Conn, []byte) {}
func (idling) Closed(*Conn, error)    {}

// standing is a world in which no time passes.
type standing struct{ driver.System }

func (standing) Now() time.Time { return time.Time{} }

// Before it sleeps a loop lets others run, but behind tasks only where there is but one processor.
func TestYieldsBeforeSleeping(t *testing.T) {
	procs := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(procs)
	_, s := newStub(1)
	l := s.loop
	l.engine.sys, l.engine.cfg.Mailbox = standing{}, 1
	tasks := func() { l.tasks.list, l.due = append(l.tasks.list, connTask{}), l.due|workTasks }
	for _, step := range []struct {
		name  string
		procs int
		do    func()
		want  bool
	}{
		{"callbacks", 2, func() {}, true},
		{"tasks", 2, tasks, false},
		{"tasks again", 2, tasks, false},
		{"tasks on one processor", 1, tasks, true},
		{"tasks, and Later", 2, func() { tasks(); l.Later(func() {}) }, true},
		{"tasks, and Do", 2, func() { tasks(); _ = l.Do(func() {}) }, true},
		{"tasks at last", 2, tasks, false},
	} {
		runtime.GOMAXPROCS(step.procs)
		step.do()
		l.turn(1)
		l.tasks.list, l.due = nil, l.due&^workTasks
		if l.mustYield() != step.want {
			t.Errorf("%s: lets others run: %v, want %v", step.name, !step.want, step.want)
		}
		if _, err := l.poll(); err != nil || l.owing {
			t.Fatalf("%s: after the poll: %v, %v", step.name, l.owing, err)
		}
	}
	l.turn(1)
	tasks()
	l.turn(1)
	if !l.mustYield() {
		t.Error("a turn with tasks has paid what one without them owes")
	}
}

// A poll that has looked at connections, and has found nothing, does not say that the loop is idle:
// it has left other sockets aside.
func TestLookIsNoIdlePoll(t *testing.T) {
	_, s := newStub(1)
	l := s.loop
	l.engine.sys = standing{}
	l.lateness.shown.Store(int64(time.Second))
	l.looked.list = append(l.looked.list, 1)
	if n, err := l.poll(); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if l.lateness.idle || l.lateness.shown.Load() == 0 {
		t.Errorf("idle %v, %v late", l.lateness.idle, l.lateness.shown.Load())
	}
	l.looked.take()
	l.looked.take()
	if _, err := l.poll(); err != nil || !l.lateness.idle {
		t.Errorf("after an idle poll: idle %v, %v", l.lateness.idle, err)
	}
}

// A dawdler is a handler with a timer, which it sets again when bytes come.
type dawdler struct{ expirations int }

func (d *dawdler) Opened(*Conn)               {}
func (d *dawdler) Received(c *Conn, _ []byte) { c.SetTimer(time.Second) }
func (d *dawdler) Expired(*Conn)              { d.expirations++ }
func (d *dawdler) Closed(*Conn, error)        {}

// A clock is a world whose time a test sets.
type clock struct {
	driver.System
	now time.Duration
}

func (c *clock) Now() time.Time { return time.Time{}.Add(c.now) }

// On a driver that cannot look at one connection, a loop that was held up polls once before it
// calls expired timers. Nothing delays these twice.
func TestLateLoopLooksFirst(t *testing.T) {
	for _, tt := range []struct {
		name  string
		at    time.Duration // the clock when the loop comes to the timer of a second
		heard bool          // bytes that have come
		want  [2]int        // expirations after that turn, and after the next
	}{
		{"in time", 1008 * time.Millisecond, false, [2]int{1, 1}},
		{"late", 3 * time.Second, false, [2]int{0, 1}},
		{"late, and bytes have come", 3 * time.Second, true, [2]int{0, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, s := newStub(1)
			l, world, h := s.loop, new(clock), new(dawdler)
			l.engine.sys = world
			c := newConn(l, h)
			l.enter(c, driver.MakeID(0, 1, 1), open)
			c.SetTimer(time.Second)
			l.settler.settle(c)
			for due, _ := l.wheel.Next(); due < 1000; due, _ = l.wheel.Next() {
				world.now = time.Duration(due) * time.Millisecond
				l.turn(0)
			}
			world.now = tt.at
			l.turn(0)
			got := [2]int{h.expirations}
			if tt.heard {
				(*sink)(l).Received(c.id, []byte("x"))
			}
			l.turn(0)
			if got[1] = h.expirations; got != tt.want {
				t.Errorf("%d expirations after the turns, want %d", got, tt.want)
			}
		})
	}
}

// A stopped world has no time.
type stopped struct{ driver.System }

func (stopped) Now() time.Time { return time.Time{} }

// A loop that is alone on its processor lets others run after each turn, unless it has just done
// so. Others have a processor of their own.
func TestLoopsYield(t *testing.T) {
	for _, tt := range []struct {
		name       string
		processors int
		since      time.Duration // it yielded last
		want       int           // turns without a yield
	}{
		{"alone", 1, time.Hour, 0},
		{"alone, and has just yielded", 1, -time.Hour, turnsPerYield},
		{"among others", 2, time.Hour, turnsPerYield - 1},
		{"among others, and has just yielded", 2, -time.Hour, turnsPerYield},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(tt.processors))
			_, s := newStub(1)
			l := s.loop
			l.engine.sys = stopped{}
			l.yielded = l.elapsed() - tt.since
			turns := 0
			for turns < turnsPerYield {
				if l.turn(1); l.turns == 0 {
					break
				}
				turns++
			}
			if turns != tt.want {
				t.Errorf("%d turns without a yield, want %d", turns, tt.want)
			}
		})
	}
}

// A loop that is never without events is as late as a round of its connections takes, not as long
// as it has been busy.
func TestLatenessOfABusyLoop(t *testing.T) {
	const live, perPoll, poll = 1000, 200, 10 * time.Millisecond
	var n lateness
	now := time.Duration(0)
	for range 1000 {
		n.polled(perPoll, live, true, now, now+poll, false)
		now += poll
		if round := 2 * live / perPoll * poll; now-n.emptied > 2*round+poll {
			t.Fatalf("after %v the loop is %v late, and a round takes %v", now, now-n.emptied, round)
		}
	}
	if late := now - n.emptied; late < live/perPoll*poll {
		t.Errorf("the loop is %v late, less than its connections wait", late)
	}
	emptied, seen := n.emptied, n.seen
	n.polled(perPoll, live, true, now, now+poll, true)
	n.polled(0, live, false, now, now+poll, true)
	n.polled(unknownEvents, live, false, now, now+poll, false)
	if n.emptied != emptied || n.seen != seen {
		t.Errorf("looks, and a poll that has not returned, say what the sockets have: late since %v instead of %v, %d "+
			"events instead of %d", n.emptied, emptied, n.seen, seen)
	}
	n.polled(manyEvents-1, live, false, now, now+poll, false)
	if n.emptied != now {
		t.Errorf("a poll that has left nothing is from %v, the loop is late since %v", now, n.emptied)
	}
	n.idle = true
	now += time.Hour // it sleeps until many events come at once
	n.polled(perPoll, live, true, now, now+poll, false)
	if n.emptied != now {
		t.Errorf("the loop has slept until %v, and is late since %v", now, n.emptied)
	}
}
