package myriad

import (
	"math"
	"reflect"
	"time"

	"github.com/myriad-go/myriad/internal/handoff"
)

// This file runs user code that may block on the goroutine of a loop. Package internal/handoff
// hands the loop off to another goroutine meanwhile. docs/adr/0010 is the protocol.

const (
	// maxChain bounds how many tasks of one conn run one after the other before those of other
	// conns, and chainTime bounds for how long. The clock is read after 1, 2, 4 and 8 tasks, and
	// after each one as soon as half of chainTime is over.
	maxChain  = 16
	chainTime = 100 * time.Microsecond
	// What tasks have written is sent together with what the next tasks write, for up to
	// unsettledConns conns and unsettledTime. Sends in a row cost the kernel less, and a peer that
	// waits for many answers wakes up once.
	unsettledConns = 32
	unsettledTime  = 250 * time.Microsecond
	// tasksPerLook is after how many tasks the clock is read to see whether that time is over.
	tasksPerLook = 4
)

// tasks are the inline tasks of a loop. The loop's goroutine owns them.
type tasks struct {
	loop      *Loop
	list      []connTask // of this poll cycle
	ran       int        // how many of them have
	running   connTask   // the last task that began
	unsettled unsettled  // conns whose tasks have returned
}

// unsettled are the conns whose tasks have returned and which the loop has not settled yet.
type unsettled struct {
	batch[*Conn]
	tasks  int           // since the clock was read
	looked time.Duration // the clock when it was
	since  time.Duration // the clock when the first of the conns may have come
}

// An InlineTask is work that runs on a loop's goroutine although it may block. If it blocks, or
// takes longer than a millisecond or two, the loop is handed off: another goroutine continues with
// it. It is for protocols whose users' code is quick most of the time.
type InlineTask interface {
	// Run does the work. Methods that are "on the loop only" are forbidden in it, as on any other
	// goroutine. Before a call that would wait it calls h.HandOff.
	Run(h Handoff)
	// Overtaken says that the loop has been handed off while Run runs: because Run took too long
	// (overstayed), or by HandOff. It is called on the loop, as a callback of the conn, and may
	// come after Returned.
	Overtaken(overstayed bool)
	// Returned is called after Run. If kept is true it is called on the loop, as a callback of the
	// conn. Otherwise it is called on the goroutine of Run, which no longer has the loop and ends.
	Returned(kept bool)
}

// A Handoff is how an inline task gives up its loop before it waits. The zero Handoff belongs to no
// loop: HandOff returns true.
type Handoff struct{ token handoff.Token }

// HandOff lets the loop continue on another goroutine, so that the caller may wait. The second
// call, and a call after the task has returned, do nothing. It returns false if the task must not
// wait, because the driver is bound to the loop's thread. Any goroutine.
func (h Handoff) HandOff() bool { return h.token.HandOff() }

// Inline reports whether the task still has its loop. If so, it began a few milliseconds ago at
// most. Any goroutine.
func (h Handoff) Inline() bool { return h.token.Held() }

// loopBody is at the bottom of the stack of each loop's goroutine, and taskHost below the code of
// an inline task. That code may wait: another goroutine then continues with the loop.
var (
	loopBody = handoff.Entry((*Loop).run)
	taskHost = handoff.Entry((*tasks).runOne)
)

// OnLoop reports whether the calling goroutine runs a callback of a loop, of any engine: whether it
// must not wait. It looks through the stack, which takes microseconds, so it is for callers that
// are about to wait anyway. Any goroutine.
func OnLoop() bool { return whereabouts() == loopBody }

// whereabouts is loopBody, taskHost, or 0 on a goroutine that is no loop's.
func whereabouts() uintptr { return handoff.Innermost(loopBody, taskHost) }

// A connTask is an inline task that waits for the end of the poll cycle, and its conn.
type connTask struct {
	c *Conn
	t InlineTask
}

// run runs the inline tasks of this poll cycle. It returns false if the loop belongs to
// another goroutine now.
func (t *tasks) run() bool {
	l := t.loop
	u := &t.unsettled
	if u.tasks, u.looked = 0, l.clock; l.slept {
		t.look()
	}
	u.since = u.looked
	l.owner.NoteThread(len(t.list))
	// The tasks that these lead to run in the next poll cycle, after other events: a peer that asks
	// for a thousand things at once does not keep the others waiting for all of them. A loop that
	// ends has no next cycle.
	most := len(t.list)
	if l.failure != nil {
		most = math.MaxInt
	}
	for t.ran < min(most, len(t.list)) {
		v := t.list[t.ran]
		t.list[t.ran] = connTask{}
		t.ran++
		if !t.runChain(v) {
			return false
		}
	}
	n := copy(t.list, t.list[t.ran:])
	clear(t.list[n:])
	t.list, t.ran = t.list[:n], 0
	t.settle()
	if len(t.list) == 0 {
		l.due &^= workTasks
	}
	if l.todo(workDirty) != 0 {
		l.settler.drainDirty(dirtySlice) // what tasks have written to other conns, and conns that let tasks go first
	}
	return true
}

// A chain is the tasks of one conn that run one after the other.
type chain struct {
	n     int           // how many have run
	look  int           // after how many the clock is read
	began time.Duration // the clock, not long before the first
}

// runChain runs a task, then those of the same conn that it leads to, and notes the conn as
// unsettled.
func (t *tasks) runChain(v connTask) bool {
	l := t.loop
	u := &t.unsettled
	for done := (chain{n: 1, look: 1, began: u.looked}); ; done.n++ {
		if !t.runOne(v) {
			return false
		}
		u.tasks++
		if !t.goesOn(v.c, &done) {
			break
		}
		last := len(t.list) - 1
		v, t.list[last] = t.list[last], connTask{}
		t.list = t.list[:last]
	}
	l.calls.current.Store(nil)
	u.list = append(u.list, v.c)
	if len(u.list) >= unsettledConns || u.tasks >= tasksPerLook && t.look()-u.since >= unsettledTime {
		t.settle()
		u.since = t.look() // what the next tasks write waits anew
	}
	return true
}

// goesOn reports whether c has another task and that one runs at once.
func (t *tasks) goesOn(c *Conn, done *chain) bool {
	switch {
	case done.n == maxChain || !t.hasNext(c):
		return false
	case done.n < done.look:
		return true
	}
	spent := t.look() - done.began
	if done.look *= 2; spent > chainTime/2 {
		done.look = done.n + 1
	}
	return spent < chainTime
}

// look reads the clock.
func (t *tasks) look() time.Duration {
	t.unsettled.tasks, t.unsettled.looked = 0, t.loop.elapsed()
	return t.unsettled.looked
}

// settle sends what tasks have written.
func (t *tasks) settle() {
	for c, ok := t.unsettled.take(); ok; c, ok = t.unsettled.take() {
		t.loop.settler.settle(c)
	}
}

// runOne runs one task. It returns false if the loop was handed off meanwhile.
func (t *tasks) runOne(v connTask) bool {
	l := t.loop
	kind := reflect.TypeOf(v.t)
	began := time.Duration(untimed)
	if l.stats.calling(kind) {
		began = l.elapsed()
	}
	t.running = v
	if l.calls.current.Load() != v.c {
		l.calls.current.Store(v.c)
	}
	h := Handoff{l.owner.Begin()}
	l.calls.runTask(v, h)
	if !h.token.End() {
		v.t.Returned(false)
		return false
	}
	if began != untimed {
		l.stats.timed(kind, l.elapsed()-began)
	}
	l.calls.taskReturned(v)
	l.calls.switchHandlers()
	return true
}

// hasNext reports whether the task that runs next is c's. If so, what c has queued is sent
// together with what that task writes.
func (t *tasks) hasNext(c *Conn) bool {
	last := len(t.list) - 1
	return last >= t.ran && t.list[last].c == c
}

// has reports whether a task of c is to run.
func (t *tasks) has(c *Conn) bool {
	for i := t.ran; i < len(t.list); i++ {
		if t.list[i].c == c {
			return true
		}
	}
	return false
}

// overtake is how the next goroutine of a loop begins after a handoff.
func (t *tasks) overtake(overstayed bool) {
	l := t.loop
	l.readClock()
	if overstayed {
		l.stats.overstays++
	} else {
		l.stats.handoffs++
	}
	v := l.tasks.running
	l.calls.taskOvertaken(v, overstayed)
	l.calls.done(v.c)
	l.tasks.settle() // these conns have waited for as long as that task has run
}
