package myriad

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/handoff"
	"github.com/myriad-go/myriad/internal/table"
	"github.com/myriad-go/myriad/internal/wheel"
)

// A Loop is a driver with the conns attached to it, and one goroutine at a time that owns all of
// it: another one after each handoff. What a part of the engine beside the core knows of a loop is
// in that part's struct, and in its file.
type Loop struct {
	engine *Engine
	index  int
	drv    driver.Driver
	can    driver.Capabilities // of drv

	// Owned by the loop's goroutine.
	pacing
	shutdown
	conns       table.Table[*Conn]  // by slot; nil: it is free, or its connection hibernates
	born        table.Table[uint32] // by slot: when the conn came, see ageUnit
	live        int                 // connections, those that hibernate included
	wheel       *wheel.Wheel
	calls       callbacks
	settler     settler
	tasks       tasks
	owner       handoff.Owner // which goroutine owns it
	hibernation hibernation
	lateness    lateness
	newcomers   newcomers
	listeners   listeners
	locals      driver.LocalAddrs
	frozen      []*Frozen // those that have connections of this loop

	// Shared.
	posted atomic.Uint32 // of work: what any goroutine has given the loop, and whether it sleeps
	mail   mailbox
	intake intake
	stats  loopStats
}

// work says in one word what a loop has to do beside its driver's events. A turn looks at it, so
// that it calls only the parts of the loop that have something to do.
type work uint32

const (
	workMail     work = 1 << iota // functions and connections in the mailbox
	workDirty                     // conns that were given work
	workRevisits                  // conns to be settled again
	workLater                     // functions of Later
	workTasks                     // inline tasks
	asleep                        // no work: the loop waits, or is about to; post wakes it
	allWork      = asleep - 1
)

// A pacing is where a loop is in time.
type pacing struct {
	clock   time.Duration // since the engine's start, read once per turn
	now     int64         // the same in milliseconds
	due     work          // what the loop has to do, as far as it has looked at what was posted
	slept   bool          // since the clock was read: the first event reads it again, lest timers be set from the past
	waited  bool          // timers that are late have waited for one poll, of a driver that cannot look
	looked  batch[uint32] // slots whose timers are due, and whose conns the driver serves in the next poll
	turns   int           // since others could run
	owing   bool          // and in them something ran that may have given goroutines work, other than inline tasks
	yielded time.Duration // the clock then
}

// shutdown is how far a loop has come with its end.
type shutdown struct {
	stopping  bool
	abortWith error // why conns are aborted while stopping; nil: they are closed in order
	failure   error // of the driver
	told      int   // the conns in the table below it know that the loop is stopping
}

// helpers is how many goroutines may help a loop to send to many conns: there are as many as
// processors without a loop, shared out among the loops.
func helpers(loops int) int { return max(0, runtime.GOMAXPROCS(0)-loops) / loops }

func newLoop(e *Engine, index int) (*Loop, error) {
	drv, err := e.sys.Open(uint8(index), driver.Options{ReadBuffer: e.cfg.ReadBuffer,
		KeepAlive: max(0, e.cfg.KeepAlive), Helpers: helpers(e.cfg.Loops)})
	if err != nil {
		return nil, fmt.Errorf("myriad: open loop %d: %w", index, err)
	}
	l := assemble(&Loop{engine: e, index: index, drv: drv, can: drv.Capabilities(), wheel: wheel.New(0),
		listeners: listeners{}, locals: driver.LocalAddrs{}})
	l.owner.Init(handoff.Loop{Sys: e.sys, Bound: l.can.ThreadBound, Own: l.can.Own, Run: l.run,
		Overtake: l.tasks.overtake, Fail: l.stopFor}, e.monitor)
	return l, nil
}

// assemble tells the parts of a loop which loop they are of.
func assemble(l *Loop) *Loop {
	l.calls.loop, l.settler.loop, l.tasks.loop = l, l, l
	l.intake.loop, l.hibernation.loop, l.newcomers.loop = l, l, l
	return l
}

// Index is the loop's number in its engine, from 0. Any goroutine.
func (l *Loop) Index() int { return l.index }

// ThreadBound reports whether the loop stays on one thread, because its driver needs that. Such a
// loop is never handed off: a call that would wait on it fails with ErrOnLoop. Any goroutine.
func (l *Loop) ThreadBound() bool { return l.can.ThreadBound }

// Engine is the engine the loop belongs to. Any goroutine.
func (l *Loop) Engine() *Engine { return l.engine }

// Now is the time at which this turn of the loop began. On the loop only.
func (l *Loop) Now() time.Time { return l.engine.start.Add(time.Duration(l.now) * time.Millisecond) }

// Do has f called on the loop, soon. f must not block. It fails with ErrBusy when Config.Mailbox
// functions wait already and with ErrClosed after the engine's shutdown. Any goroutine; never
// blocks.
func (l *Loop) Do(f func()) error {
	l.mail.mu.Lock()
	switch {
	case l.mail.closed:
		l.mail.mu.Unlock()
		return ErrClosed
	case len(l.mail.funcs) >= l.engine.cfg.Mailbox:
		l.mail.mu.Unlock()
		l.stats.busy.Add(1)
		return ErrBusy
	}
	l.mail.funcs = append(l.mail.funcs, f)
	l.mail.mu.Unlock()
	l.post(workMail)
	return nil
}

// Post is Do without the limit of Config.Mailbox. It is for the few calls that must not fail for
// want of room, such as the end of a server. It reports false after the engine's shutdown. Any
// goroutine; never blocks.
func (l *Loop) Post(f func()) bool {
	l.mail.mu.Lock()
	ok := !l.mail.closed
	if ok {
		l.mail.funcs = append(l.mail.funcs, f)
	}
	l.mail.mu.Unlock()
	if ok {
		l.post(workMail)
	}
	return ok
}

// Later has f called when this turn's events have been handled: what they have gathered can be
// passed on in one go. Called by such a function, it is for the next turn; after the loop's last
// one nothing is called. On the loop only.
func (l *Loop) Later(f func()) {
	l.mail.later.add(f)
	l.due |= workLater
}

// Conns calls visit for the conns in n places of the loop's table, from place from on, and returns
// the place to go on with, 0 at the table's end. Walking in slices, one for each Loop.Do, delays no
// other connection of the loop: a thousand empty places take about a microsecond. A conn keeps its
// place for life, so none is met twice; those that come or go between two slices may be missed, and
// those that hibernate are. visit may do what a handler may. On the loop only.
func (l *Loop) Conns(from, n int, visit func(c *Conn)) (next int) {
	for i := max(0, from); n > 0 && i < l.conns.Len(); i++ {
		if c := l.conn(uint32(i)); c != nil {
			c.show()
			visit(c)
		}
		if n--; n == 0 && i+1 < l.conns.Len() {
			return i + 1
		}
	}
	return 0
}

// WakeAll wakes the connections whose Waker is chosen, and lets go of the Conns that were kept for
// these. On the loop only.
func (l *Loop) WakeAll(chosen func(w Waker) bool) { l.hibernation.wakeAll(chosen) }

func (l *Loop) snapshot(now time.Duration) LoopStats {
	s := &l.stats
	s.mu.Lock()
	t, rows := s.published, slices.Clone(s.rows)
	s.mu.Unlock()
	l.mail.mu.Lock()
	mailbox, intake := len(l.mail.funcs), len(l.intake.coming)
	l.mail.mu.Unlock()
	out := LoopStats{
		Conns: int(s.conns.Load()), Accepts: s.accepts.Load(),
		AcceptErrors: s.acceptErrors.Load(),
		Reads:        t.reads, Writes: t.writes, BytesIn: t.bytesIn,
		BytesOut: t.bytesOut,
		Sleeps:   t.sleeps, Wakes: s.wakes.Load(), Turns: t.turns,
		Overstays: t.overstays, Handoffs: t.handoffs,
		Full: s.full.Load(), Busy: s.busy.Load(),
		Queued: int64(t.given - t.bytesOut - t.dropped), Mailbox: mailbox, Intake: intake,
		Hibernating: t.hibernating,
		Dirty:       t.dirty, MostDirty: t.mostDirty, Revisits: t.revisits,
		BusyTime: t.busyTime, HandlerTime: t.handlerTime, LongTurns: t.longTurns, LongestTurn: t.longest,
		Late: l.late(now), MostLate: t.mostLate,
		LateReads: t.late.Read, LateWrites: t.late.Settle, LateTimers: t.late.Timer,
	}
	if began := s.turnBegan.Load(); began != noTurn {
		out.Turn = max(0, now-time.Duration(began))
	}
	for i := range rows {
		out.Handlers = append(out.Handlers, rows[i].snapshot())
	}
	slowestFirst(out.Handlers)
	return out
}

const (
	// turnsPerYield is after how many polls in a row that found something the loop lets other
	// goroutines run: raw system calls give the scheduler no chance of its own. Less than yieldTime
	// since it last did, it goes on: to yield wakes another thread, if one is idle, and short turns
	// would spend a fifth of their time with it. A loop that is alone on its processor wakes no
	// other thread, and keeps all others waiting, the garbage collector included. It yields after
	// every turn, except for yieldTime.
	turnsPerYield = 16
	yieldTime     = 250 * time.Microsecond
	// dirtySlice is how many dirty conns are settled before the loop looks for events again. A
	// client that sends a request while a message goes out to many does not wait for all of them.
	// What is queued meanwhile for the others leaves together with the message.
	dirtySlice = 32
	// dirtyFirst is how many of them are settled before the inline tasks of a poll cycle. So tasks
	// do not delay the answers of other conns, and a message that goes out to many does not delay
	// tasks.
	dirtyFirst = 8
	// manyDirty is from how many dirty conns on they are settled in the order of their slots.
	manyDirty = 2 * dirtySlice
	// keptDirty is for how many of them a loop keeps room.
	keptDirty = 1024
	// longestSleep keeps waits for far timers within what every driver's kernel can count.
	longestSleep = time.Hour
)

// post notes that the loop was given work, and wakes it if it sleeps. The work itself is where the
// loop finds it before post is called. Any goroutine.
func (l *Loop) post(w work) {
	switch before := work(l.posted.Load()); {
	case before&(w|asleep) == w: // it has yet to look, and then finds this, too
		return
	case work(l.posted.Or(uint32(w)))&asleep == 0:
		return
	}
	if work(l.posted.And(^uint32(asleep)))&asleep != 0 { // else another goroutine wakes it
		l.stats.wakes.Add(1)
		l.drv.Wake()
	}
}

// todo is what the loop has to do of w. It looks at what was posted.
func (l *Loop) todo(w work) work {
	if l.posted.Load() != 0 {
		l.due |= work(l.posted.Swap(0)) & allWork
	}
	return l.due & w
}

// fallAsleep has post wake the loop from now on. It returns false if there is something to do.
func (l *Loop) fallAsleep() bool {
	return l.due == 0 && l.posted.CompareAndSwap(0, uint32(asleep))
}

// begin is the loop's first goroutine.
func (l *Loop) begin() {
	l.slept = true
	l.readClock()
}

// run is the loop, for as long as it belongs to this goroutine.
func (l *Loop) run() {
	for l.due&workTasks == 0 || l.tasks.run() {
		if l.over() {
			l.runAfter() // what the last turn has left, or the conns of a driver that has failed
			l.fellIdle()
			l.stats.publish(true)
			l.engine.loopEnded(l)
			return
		}
		n, err := l.poll()
		if err == nil {
			l.turn(n)
			continue
		}
		l.stopFor(err)
	}
}

// stopFor ends the loop, and its connections with err, because its driver cannot be used any more.
func (l *Loop) stopFor(err error) {
	if l.failure != nil {
		return
	}
	l.engine.cfg.Logger.Error("myriad: loop stops: its driver failed", "loop", l.index, "err", err)
	l.failure = err
}

// over reports whether the loop is to end.
func (l *Loop) over() bool {
	if l.failure != nil {
		l.fail()
		return true
	}
	return l.stopping && l.live == 0 && len(l.frozen) == 0 && len(l.listeners) == 0 && l.due&workTasks == 0 &&
		l.finish()
}

// poll asks for events: at once, then once more after other goroutines had a chance to run, if one
// may need it, and only then it sleeps.
func (l *Loop) poll() (int, error) {
	if l.newcomers.on {
		l.newcomers.turned()
	}
	n, err := l.drv.Poll(0, (*sink)(l))
	if n > 0 || err != nil || l.todo(allWork) != 0 || !l.looked.empty() { // a look leaves the rest of the sockets aside
		return n, err
	}
	l.fellIdle()
	if l.mustYield() {
		l.yield()
	}
	if n, err = l.drv.Poll(0, (*sink)(l)); n > 0 || err != nil {
		return n, err
	}
	if !l.fallAsleep() {
		return 0, nil
	}
	l.stats.sleeps++
	l.stats.publish(true)
	n, err = l.drv.Poll(l.untilTimer(), (*sink)(l))
	l.todo(0) // awake
	return n, err
}

// yield lets others run.
func (l *Loop) yield() {
	l.turns, l.yielded, l.owing = 0, l.clock, false
	runtime.Gosched()
}

// mustYield reports whether the loop has to call runtime.Gosched before it blocks in Poll. With a
// single P, goroutines readied by inline tasks would otherwise wait until sysmon retakes the P.
// With more Ps an idle one runs them, and a yield would only wake a thread in vain.
func (l *Loop) mustYield() bool { return l.owing || alone() }

// alone reports whether this processor is the only one that goroutines have.
func alone() bool { return runtime.GOMAXPROCS(0) == 1 }

// untilTimer is how long the loop may sleep; negative is without end.
func (l *Loop) untilTimer() time.Duration {
	at, armed := l.wheel.Next()
	if !armed {
		return -1
	}
	now := l.elapsed().Milliseconds()
	return time.Duration(min(max(0, at-now), longestSleep.Milliseconds())) * time.Millisecond
}

// unknownEvents is of a turn whose Poll did not return, because a handler has ended the goroutine.
const unknownEvents = -1

// turn handles what is not the driver's events, which have been handled inside Poll.
func (l *Loop) turn(events int) {
	polled := l.clock
	l.readClock()
	l.newcomers.skip()
	if l.stopping {
		l.tellStopping()
	}
	if l.todo(workMail) != 0 {
		l.readMail()
	}
	if l.due&workRevisits != 0 {
		l.settler.settleRevisits()
	}
	dirty, most := 0, dirtySlice
	if l.due&workTasks != 0 {
		most = dirtyFirst
	}
	if l.todo(workDirty) != 0 {
		dirty = l.settler.drainDirty(most)
	}
	looked := l.expire(events, polled.Milliseconds())
	if dirty < most && l.todo(workDirty) != 0 {
		dirty += l.settler.drainDirty(most - dirty) // what timers have asked of other conns leaves in this turn
	}
	l.stats.dirty, l.stats.mostDirty = dirty, max(l.stats.mostDirty, dirty)
	l.owing = l.owing || dirty > 0 || l.due&workTasks == 0
	if l.due&workLater != 0 {
		l.runAfter()
	}
	l.stats.turns++
	l.stats.revisits = len(l.settler.revisits.coming)
	l.measureLateness(events, polled, looked)
	l.stats.publish(false)
	if l.newcomers.on {
		l.newcomers.turned()
	}
	if l.turns++; events > 0 && l.clock-l.yielded >= yieldTime && (l.turns >= turnsPerYield || alone()) {
		l.readClock() // what others do meanwhile is not time of this loop's
		l.yield()
		l.slept = true
	}
}

const (
	// mostLooks is how many connections a turn has the driver look at.
	mostLooks = 256
)

// measureLateness is called at the end of a turn whose poll began at polled, and told of so many
// events.
func (l *Loop) measureLateness(events int, polled time.Duration, looked bool) {
	late := &l.stats.late
	full := events >= manyEvents
	if l.can.Full != nil {
		full = l.can.Full()
	}
	l.lateness.polled(events, l.live, full, polled, l.clock, looked)
	late.Read = max(0, l.clock-l.lateness.emptied)
	late.Settle = 0
	if !l.settler.taken.empty() {
		late.Settle = max(0, l.clock-l.settler.took)
	}
	most := max(late.Read, late.Settle, late.Timer)
	l.newcomers.behind = full || looked || late.Settle > 0 || most >= tooLate
	l.showLateness(most, (l.clock-polled)/time.Duration(max(1, events)))
}

// sleeps notes that the loop has nothing to do.
func (l *Loop) sleeps() {
	l.lateness.idle = true
	late := &l.stats.late
	late.Read, late.Settle, late.Timer = 0, 0, 0
	l.showLateness(0, 0)
	l.newcomers.idle()
}

// showLateness says how late the loop is. perEvent is how long each of the last events has taken.
func (l *Loop) showLateness(late, perEvent time.Duration) {
	l.newcomers.judge(late, perEvent)
	l.stats.mostLate = max(l.stats.mostLate, late)
	if int64(late) != l.lateness.shown.Load() {
		l.lateness.shown.Store(int64(late))
	}
}

// late is how late the loop is. Any goroutine.
func (l *Loop) late(now time.Duration) time.Duration {
	late := time.Duration(l.lateness.shown.Load())
	if began := l.stats.turnBegan.Load(); began != noTurn {
		late = max(late, now-time.Duration(began))
	}
	return late
}

// expire is for the timers that have run out. A connection receives what has come for it before its
// timer is called: a peer that has sent in time is not late. Mostly this turn's poll has told all
// that there was. With many events, or on a loop that is late, something may be left. Then the
// driver looks at each connection whose timer is due, and the next turn calls the timers that are
// due still. polled is when this turn's poll began. expire reports whether it was for such looks.
func (l *Loop) expire(events int, polled int64) (looked bool) {
	looked = !l.looked.empty()
	for slot, ok := l.looked.take(); ok; slot, ok = l.looked.take() {
		if l.wheel.Expire(slot, l.now) {
			l.expired(slot)
		}
	}
	since, due := l.wheel.Due(l.now)
	late := l.now-since > wheel.Tick || events > 0 && l.now-polled > wheel.Tick
	l.stats.late.Timer = 0
	if due {
		l.stats.late.Timer = time.Duration(l.now-since) * time.Millisecond
	}
	switch waited := l.waited; {
	case !due || looked: // what was looked at has been called; other connections are served before the next
		l.waited = false
	case waited, !late && events < manyEvents:
		l.waited = false
		l.wheel.Advance(l.now, l.expired)
	case l.can.Look != nil:
		l.wheel.AdvanceUpTo(l.now, mostLooks, l.look)
	default:
		l.waited = true
	}
	return looked
}

// look has the driver serve the connection of that slot next, and leaves its timer due. A listener
// has nothing that its timer waits for.
func (l *Loop) look(slot uint32) {
	if _, ok := l.listeners[slot]; ok {
		l.expired(slot)
		return
	}
	l.wheel.Set(slot, l.now-wheel.Tick)
	l.looked.list = append(l.looked.list, slot)
	l.can.Look(l.hibernation.idOf(slot))
}

// readClock is called between two turns, and by the first event after the loop has slept.
func (l *Loop) readClock() {
	clock := l.elapsed()
	if !l.slept {
		l.stats.turned(clock - l.clock)
	}
	l.slept = false
	l.clock, l.now = clock, clock.Milliseconds()
	l.stats.turnBegan.Store(int64(clock))
}

// millis is a point in time as the loop counts it; 0 for the zero time.
func (l *Loop) millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1, wheel.Millis(t.Sub(l.engine.start)))
}

// remove takes the conn out of the loop's table.
func (l *Loop) remove(c *Conn) {
	slot := c.id.Slot()
	*l.conns.Row(slot) = nil
	l.wheel.Clear(slot)
	l.live--
	l.stats.conns.Add(-1)
}

// enter puts the conn into the loop's table: it is open, or dialing.
func (l *Loop) enter(c *Conn, id driver.ID, as state) {
	c.advance(as)
	*l.conns.Grow(id.Slot()) = c
	*l.born.Grow(id.Slot()) = bornAgo(0, l.now)
	c.id = id
	l.live++
	l.stats.conns.Add(1)
}

// conn is the one of that slot; nil if it is free, or its connection hibernates.
func (l *Loop) conn(slot uint32) *Conn {
	if row := l.conns.Row(slot); row != nil {
		return *row
	}
	return nil
}

// fellIdle ends a turn after which there is nothing to do.
func (l *Loop) fellIdle() {
	l.readClock()
	l.slept = true
	s := &l.stats
	s.turnBegan.Store(noTurn)
	s.dirty = 0
	l.sleeps()
}

// elapsed is the time since the engine's start.
func (l *Loop) elapsed() time.Duration { return l.engine.sys.Now().Sub(l.engine.start) }

// The loop's table of birth times counts in units of ageUnit since the engine's start. The lowest
// newWidth bits of a row are for how many callbacks more a newcomer is new. The others are enough
// for connections that last 20 months.
const (
	ageUnit  = 100 // milliseconds
	newWidth = 3
	newBits  = 1<<newWidth - 1
)

// bornAgo is the row of a connection that is so old now, in milliseconds.
func bornAgo(age, now int64) uint32 { return uint32((now-age)/ageUnit) << newWidth }

// ageOf is how old the connection of a row is now, in milliseconds.
func ageOf(row uint32, now int64) int64 {
	units := (uint32(now/ageUnit) - row>>newWidth) & (1<<(32-newWidth) - 1)
	return int64(units)*ageUnit + now%ageUnit
}

// mailbox holds what other goroutines ask of the loop itself.
type mailbox struct {
	mu     sync.Mutex
	funcs  []func() // guarded by mu
	closed bool     // guarded by mu

	taken batch[func()] // the loop's: what it has taken up of funcs
	later relay[func()] // the loop's: what Later was given
}

// finish closes the mailbox if nothing has come in meanwhile, and reports whether the loop is done.
func (l *Loop) finish() bool {
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	if len(l.mail.funcs) > 0 || !l.mail.taken.empty() || !l.intake.empty() {
		return false
	}
	l.mail.closed = true
	return true
}

func (l *Loop) readMail() {
	l.takeMail()
	l.intake.attachAll()
	l.runAll(&l.mail.taken)
}

// takeMail takes up what is in the mailbox. What a goroutine has left of it before it ended comes
// first, and the new in the next turn.
func (l *Loop) takeMail() {
	l.due &^= workMail
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	l.mail.taken.refill(&l.mail.funcs)
	if cap(l.intake.taken.list) > keptIntake {
		l.intake.taken.list = nil
	}
	l.intake.taken.refill(&l.intake.coming)
	if len(l.mail.funcs) > 0 || len(l.intake.coming) > 0 {
		l.due |= workMail
	}
}

func (l *Loop) runAll(fs *batch[func()]) {
	if !fs.empty() {
		l.calls.current.Store(nil)
		l.owing = true
	}
	for f, ok := fs.take(); ok; f, ok = fs.take() {
		l.calls.function(f)
		l.calls.switchHandlers()
	}
}

// runAfter runs what Later was given in this turn. What that gives to Later again waits for the
// next turn.
func (l *Loop) runAfter() {
	l.due &^= workLater
	l.mail.later.renew()
	l.runAll(&l.mail.later.batch)
}

// A batch is a list that is taken up piece by piece.
type batch[T any] struct {
	list []T
	next int
}

// A relay is a batch with what gathers for the next one.
type relay[T any] struct {
	batch[T]
	coming []T
}

func (r *relay[T]) add(piece T) { r.coming = append(r.coming, piece) }

// renew takes up what has gathered, unless something is left of what was taken up before.
func (r *relay[T]) renew() { r.refill(&r.coming) }

// take returns the next piece. False: it was the last, and the list's room can be used again.
func (b *batch[T]) take() (piece T, ok bool) {
	var none T
	if b.next == len(b.list) {
		b.list, b.next = b.list[:0], 0
		return none, false
	}
	piece, b.list[b.next] = b.list[b.next], none
	b.next++
	return piece, true
}

func (b *batch[T]) empty() bool { return b.next == len(b.list) }

// refill takes *list up and leaves the room of the last one in its place, unless something is left
// of that.
func (b *batch[T]) refill(list *[]T) {
	if b.empty() {
		b.list, *list, b.next = *list, b.list[:0], 0
	}
}

// fail is called by a loop whose driver has failed: no conn of it can be served any more.
func (l *Loop) fail() {
	err := l.failure
	l.stopping = true
	for _, ln := range l.listeners {
		if !ln.closed.Swap(true) {
			ln.inner.Refuse()
		}
		ln.dropHand()
	}
	for i := range uint32(l.conns.Len()) {
		if c := l.hibernation.awake(i); c != nil {
			l.closedAndCounted(c, err)
		}
	}
	l.dropAllFrozen(err)
	for !l.finish() { // callers that wait for an answer are told
		l.takeMail()
		for a, ok := l.intake.taken.take(); ok; a, ok = l.intake.taken.take() {
			_ = a.sock.Close()
			l.intake.refuse(a.conn, err)
		}
		l.runAll(&l.mail.taken)
	}
}

// stop begins the end of the loop; it runs until its last conn has closed. A later call may turn it
// into an abort, and else does nothing.
func (l *Loop) stop(abort error) {
	if l.stopping && abort == nil {
		return
	}
	l.stopping = true
	l.abortWith = abort
	for _, ln := range l.listeners {
		if !ln.closed.Swap(true) {
			ln.inner.Refuse()
			ln.stop()
		} else if ln.leaves {
			ln.stop()
		}
	}
	l.told = 0
	l.tellStopping()
	if abort != nil {
		l.dropAllFrozen(abort)
	}
}

// tellStopping tells those conns that do not know it yet.
func (l *Loop) tellStopping() {
	for l.stopping && l.told < l.conns.Len() {
		c := l.hibernation.awake(uint32(l.told))
		l.told++
		switch {
		case c == nil, c.state() == frozen: // that is told when it goes on
		case c.state() == dialing:
			c.attempt().race.lose(errShutDown)
		default:
			l.dismiss(c)
		}
	}
	l.told = math.MaxInt // later callers are told when they come
}

// dismiss ends a conn because its loop is stopping.
func (l *Loop) dismiss(c *Conn) {
	if l.abortWith != nil {
		c.Abort(l.abortWith)
		return
	}
	l.calls.current.Store(c)
	l.calls.stopping(c)
	l.calls.done(c)
}

// closedAndCounted makes room for another conn, but not before the handler has heard of it: it
// never sees more than MaxConns.
func (l *Loop) closedAndCounted(c *Conn, err error) {
	defer l.engine.admission.quota.release()
	c.driverClosed(err)
}
