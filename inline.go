package myriad

import (
	"fmt"
	"math"
	"reflect"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// This file runs user code that may block on the goroutine of a loop. handoff.go hands the loop off
// to another goroutine meanwhile. docs/adr/0010 is the protocol.

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

// inlining is what a loop knows of its inline tasks. The loop's goroutine owns it, but for the last
// two fields.
type inlining struct {
	tasks     []connTask // of this poll cycle
	run       int        // how many of them have run
	running   connTask   // the last task that began
	unsettled unsettled  // conns whose tasks have returned

	token  atomic.Uint64 // odd while an inline task has the loop's goroutine
	thread atomic.Int64  // that inline tasks run on; 0: not known
}

// waits reports whether there are tasks to run.
func (in *inlining) waits() bool { return len(in.tasks) > 0 }

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

// A connTask is an inline task that waits for the end of the poll cycle, and its conn.
type connTask struct {
	c *Conn
	t InlineTask
}

// RunInline has t run on the loop when the events of this poll cycle have been handled. Events of
// the conn are still delivered meanwhile: its protocol must expect them while the task runs. If
// InlineTask.Returned calls RunInline for the same conn, that task comes next, and what both write
// is sent together. After 16 such tasks, or 100 µs, tasks of other conns come first. On the loop
// only, inside a callback of the conn.
func (c *Conn) RunInline(t InlineTask) {
	c.loop.inline.tasks = append(c.loop.inline.tasks, connTask{c, t})
}

// handOff starts another goroutine for a loop whose inline task has this token. If the task no
// longer has the loop, it does nothing. Any goroutine.
func (l *Loop) handOff(token uint64, overstayed bool) {
	if l.inline.token.CompareAndSwap(token, token+1) {
		l.employ(func() { l.overtake(overstayed) })
	}
}

// overtake is how the next goroutine of a loop begins after a handoff.
func (l *Loop) overtake(overstayed bool) {
	l.readClock()
	if overstayed {
		l.stats.overstays++
	} else {
		l.stats.handoffs++
	}
	v := l.inline.running
	l.callOvertaken(v, overstayed)
	l.leave(v.c)
	l.settleTasks() // these conns have waited for as long as that task has run
}

// runTasks runs the inline tasks of this poll cycle. It returns false if the loop belongs to
// another goroutine now.
func (l *Loop) runTasks() bool {
	if len(l.inline.tasks) == 0 && l.inline.unsettled.empty() {
		return true
	}
	l.inline.unsettled.since = l.look()
	l.noteThread(len(l.inline.tasks))
	for most := l.taskQuota(); l.inline.run < min(most, len(l.inline.tasks)); {
		v := l.inline.tasks[l.inline.run]
		l.inline.tasks[l.inline.run] = connTask{}
		l.inline.run++
		if !l.runChain(v) {
			return false
		}
	}
	n := copy(l.inline.tasks, l.inline.tasks[l.inline.run:])
	clear(l.inline.tasks[n:])
	l.inline.tasks, l.inline.run = l.inline.tasks[:n], 0
	l.settleTasks()
	if !l.work.dirty.empty() || l.dirty.Load() != nil {
		l.drainDirty(dirtySlice) // what tasks have written to other conns, and conns that let tasks go first
	}
	return true
}

// taskQuota is how many tasks run in this poll cycle. The tasks that these lead to run in the next
// one, after other events: a peer that asks for a thousand things at once does not keep the others
// waiting for all of them. A loop that ends has no next cycle.
func (l *Loop) taskQuota() int {
	if l.failure != nil {
		return math.MaxInt
	}
	return len(l.inline.tasks)
}

// A chain is the tasks of one conn that run one after the other.
type chain struct {
	n     int           // how many have run
	look  int           // after how many the clock is read
	began time.Duration // the clock, not long before the first
}

// runChain runs a task, then those of the same conn that it leads to, and notes the conn as
// unsettled.
func (l *Loop) runChain(v connTask) bool {
	u := &l.inline.unsettled
	for done := (chain{n: 1, look: 1, began: u.looked}); ; done.n++ {
		if !l.runTask(v) {
			return false
		}
		u.tasks++
		if !l.goesOn(v.c, &done) {
			break
		}
		last := len(l.inline.tasks) - 1
		v, l.inline.tasks[last] = l.inline.tasks[last], connTask{}
		l.inline.tasks = l.inline.tasks[:last]
	}
	l.current.Store(nil)
	u.list = append(u.list, v.c)
	if len(u.list) >= unsettledConns || u.tasks >= tasksPerLook && l.look()-u.since >= unsettledTime {
		l.settleTasks()
		u.since = l.look() // what the next tasks write waits anew
	}
	return true
}

// goesOn reports whether c has another task and that one runs at once.
func (l *Loop) goesOn(c *Conn, done *chain) bool {
	switch {
	case done.n == maxChain || !l.hasNextTask(c):
		return false
	case done.n < done.look:
		return true
	}
	spent := l.look() - done.began
	if done.look *= 2; spent > chainTime/2 {
		done.look = done.n + 1
	}
	return spent < chainTime
}

// look reads the clock.
func (l *Loop) look() time.Duration {
	l.inline.unsettled.tasks, l.inline.unsettled.looked = 0, l.elapsed()
	return l.inline.unsettled.looked
}

// settleTasks sends what tasks have written.
func (l *Loop) settleTasks() {
	for c, ok := l.inline.unsettled.take(); ok; c, ok = l.inline.unsettled.take() {
		l.settle(c)
	}
}

// runTask runs one task. It returns false if the loop was handed off meanwhile.
func (l *Loop) runTask(v connTask) bool {
	t := reflect.TypeOf(v.t)
	began := l.calling(t)
	l.inline.running = v
	if l.current.Load() != v.c {
		l.current.Store(v.c)
	}
	e := l.engine
	h := Handoff{l, l.inline.token.Load() + 1}
	l.inline.token.Store(h.token)
	if e.monitor.state.Load() != monitorAwake {
		e.monitor.rouse()
	}
	l.callRun(v, h) // from the store to the swap only the token of the loop may be touched
	if !l.inline.token.CompareAndSwap(h.token, h.token+1) {
		v.t.Returned(false)
		return false
	}
	l.called(t, began)
	l.callReturned(v)
	l.switchHandlers()
	return true
}

// callRun calls the task's Run.
func (l *Loop) callRun(v connTask, h Handoff) {
	returned := false
	defer func() {
		if !returned {
			l.interrupted(v, h, recover())
		}
	}()
	linger := l.engine.has.Linger
	if linger != nil {
		linger()
	}
	v.t.Run(h)
	if linger != nil {
		linger()
	}
	returned = true
}

// interrupted is for a task that has panicked with p, or, if p is nil, has called runtime.Goexit.
// After Goexit this goroutine ends when interrupted returns; if it still had the loop, the loop
// continues as after every callback that has called Goexit.
func (l *Loop) interrupted(v connTask, h Handoff, p any) {
	switch {
	case p != nil:
		l.engine.cfg.Logger.Error("myriad: panic in an inline task; its connection is aborted",
			"task", fmt.Sprintf("%T", v.t), "remote", v.c.remote.String(), "panic", p, "stack", string(debug.Stack()))
		v.c.Abort(fmt.Errorf("myriad: panic in %T: %v", v.t, p))
	case l.inline.token.CompareAndSwap(h.token, h.token+1):
		l.shifts.current.next = l.afterGoexit
	default:
		v.t.Returned(false)
	}
}

// afterGoexit is how the next goroutine of a loop begins after a task has ended the one before.
func (l *Loop) afterGoexit() {
	v := l.inline.running
	l.callReturned(v)
	l.leave(v.c)
}

func (l *Loop) callReturned(v connTask) {
	call := call{began: untimed}
	defer l.returned(v.c, &call)
	v.t.Returned(true)
	call.returned = true
}

func (l *Loop) callOvertaken(v connTask, overstayed bool) {
	call := call{began: untimed}
	defer l.returned(v.c, &call)
	v.t.Overtaken(overstayed)
	call.returned = true
}

// hasNextTask reports whether the task that runs next is c's. If so, what c has queued is sent
// together with what that task writes.
func (l *Loop) hasNextTask(c *Conn) bool {
	last := len(l.inline.tasks) - 1
	return last >= l.inline.run && l.inline.tasks[last].c == c
}
