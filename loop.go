package myriad

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/table"
	"github.com/myriad-go/myriad/internal/wheel"
)

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
	// maxLocalAddrs bounds the loop's table of shared local addresses.
	maxLocalAddrs = 1024
	// longestSleep keeps waits for far timers within what every driver's kernel can count.
	longestSleep = time.Hour
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
	born        table.Table[uint32] // by slot: when the conn came, in units of ageUnit since the engine's start
	live        int                 // connections, those that hibernate included
	wheel       *wheel.Wheel
	switches    []handlerSwitch
	work        work
	inline      inlining
	shifts      shifts
	hibernation hibernation
	listeners   listeners
	locals      localAddrs

	// Shared.
	current atomic.Pointer[Conn] // whose callback runs: it is settled when the callback ends and need not be linked
	dirty   atomic.Pointer[Conn] // a stack of conns that other goroutines have given work
	asleep  atomic.Bool          // the loop waits, or is about to: a goroutine that gives it work wakes it
	mail    mailbox
	intake  intake
	stats   loopStats
}

// A pacing is where a loop is in time.
type pacing struct {
	clock   time.Duration // since the engine's start, read once per turn
	now     int64         // the same in milliseconds
	slept   bool          // since the clock was read: the first event reads it again, lest timers be set from the past
	late    bool          // to its timers: they wait for one poll
	turns   int           // since others could run
	owing   bool          // and in them something ran that may have given goroutines work, other than inline tasks
	yielded time.Duration // the clock then
}

// work is what a turn has taken up, and what is for the next one. It is not on the stack: a handler
// may end the goroutine (runtime.Goexit), and another one goes on from here.
type work struct {
	revisits relay[*Conn] // to be settled again
	after    relay[func()]
	dirty    batch[dirtyConn]
	funcs    batch[func()]
}

func newLoop(e *Engine, index int) (*Loop, error) {
	drv, err := e.sys.Open(uint8(index), driver.Options{ReadBuffer: e.cfg.ReadBuffer,
		KeepAlive: max(0, e.cfg.KeepAlive)})
	if err != nil {
		return nil, fmt.Errorf("myriad: open loop %d: %w", index, err)
	}
	return &Loop{engine: e, index: index, drv: drv, can: drv.Capabilities(), wheel: wheel.New(0),
		listeners: listeners{}, locals: localAddrs{}}, nil
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

func (l *Loop) wakeIf(needed bool) {
	if needed && l.asleep.CompareAndSwap(true, false) {
		l.stats.wakes.Add(1)
		l.drv.Wake()
	}
}

// begin is the loop's first goroutine.
func (l *Loop) begin() {
	l.slept = true
	l.readClock()
}

// run is the loop, for as long as it belongs to this goroutine.
func (l *Loop) run() {
	for l.runTasks() {
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
	l.engine.cfg.Logger.Error("myriad: loop stops: its driver failed", "loop", l.index, "err", err)
	l.failure = err
}

// over reports whether the loop is to end.
func (l *Loop) over() bool {
	if l.failure != nil {
		l.fail()
		return true
	}
	return l.stopping && l.live == 0 && len(l.listeners) == 0 && !l.inline.waits() && l.finish()
}

// poll asks for events: at once, then once more after other goroutines had a chance to run, if one
// may need it, and only then it sleeps.
func (l *Loop) poll() (int, error) {
	n, err := l.drv.Poll(0, (*sink)(l))
	if n > 0 || err != nil || l.hasWork() {
		return n, err
	}
	l.fellIdle()
	if l.mustYield() {
		l.yield()
	}
	if n, err = l.drv.Poll(0, (*sink)(l)); n > 0 || err != nil {
		return n, err
	}
	l.asleep.Store(true)
	defer l.asleep.Store(false)
	if l.hasWork() {
		return 0, nil
	}
	l.stats.sleeps.Add(1)
	l.stats.publish(true)
	wait := l.untilTimer()
	return l.drv.Poll(wait, (*sink)(l))
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

// hasWork reports whether the loop has been given work.
func (l *Loop) hasWork() bool {
	w := &l.work
	if l.dirty.Load() != nil || !w.dirty.empty() || w.revisits.gathers() || w.after.gathers() || l.inline.waits() {
		return true
	}
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	return len(l.mail.funcs) > 0 || !l.intake.empty()
}

// untilTimer is how long the loop may sleep; negative is without end.
func (l *Loop) untilTimer() time.Duration {
	at, armed := l.wheel.Next()
	if !armed {
		return -1
	}
	now := l.elapsed().Milliseconds()
	return time.Duration(min(max(0, at-now), longestSleep.Milliseconds())) * time.Millisecond
}

// turn handles what is not the driver's events, which have been handled inside Poll.
func (l *Loop) turn(events int) {
	l.readClock()
	l.tellStopping()
	l.readMail()
	l.settleRevisits()
	most := dirtySlice
	if l.inline.waits() {
		most = dirtyFirst
	}
	dirty := l.drainDirty(most)
	l.expire()
	if dirty < most {
		dirty += l.drainDirty(most - dirty) // what timers have asked of other conns leaves in this turn
	}
	l.stats.dirty, l.stats.mostDirty = dirty, max(l.stats.mostDirty, dirty)
	l.owing = l.owing || dirty > 0 || !l.inline.waits()
	l.runAfter()
	l.stats.turns.Add(1)
	l.stats.revisits = len(l.work.revisits.coming)
	l.stats.publish(false)
	if l.turns++; events > 0 && l.clock-l.yielded >= yieldTime && (l.turns >= turnsPerYield || alone()) {
		l.readClock() // what others do meanwhile is not time of this loop's
		l.yield()
		l.slept = true
	}
}

// expire is for the timers that have run out. If the loop is late for them, it first looks for what
// has come meanwhile, so that a peer that has sent in time is not treated as one that has not.
func (l *Loop) expire() {
	due, armed := l.wheel.Next()
	if l.late = !l.late && armed && l.now-due > wheel.Tick; !l.late {
		l.wheel.Advance(l.now, l.expired)
	}
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
	return max(1, ceilMillis(t.Sub(l.engine.start)))
}

func ceilMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// remove takes the conn out of the loop's table.
func (l *Loop) remove(c *Conn) {
	slot := c.id.Slot()
	*l.conns.Row(slot) = nil
	l.wheel.Clear(slot)
	l.live--
	l.stats.conns.Add(-1)
}

// enter puts the conn into the loop's table.
func (l *Loop) enter(c *Conn, id driver.ID) {
	*l.conns.Grow(id.Slot()) = c
	*l.born.Grow(id.Slot()) = uint32(l.now / ageUnit)
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
}

// elapsed is the time since the engine's start.
func (l *Loop) elapsed() time.Duration { return l.engine.sys.Now().Sub(l.engine.start) }

// ageUnit is what the loop's table of birth times counts in: four bytes for a conn last 13 years.
const ageUnit = 100 // milliseconds

// shutdown is how far a loop has come with its end.
type shutdown struct {
	stopping  bool
	abortWith error // why conns are aborted while stopping; nil: they are closed in order
	failure   error // of the driver
	told      int   // the conns in the table below it know that the loop is stopping
}

// mailbox holds what other goroutines ask of the loop itself.
type mailbox struct {
	mu     sync.Mutex
	funcs  []func()
	closed bool
}

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
	l.wakeIf(true)
	return nil
}

// Later has f called when this turn's events have been handled: what they have gathered can be
// passed on in one go. Called by such a function, it is for the next turn; after the loop's last
// one nothing is called. On the loop only.
func (l *Loop) Later(f func()) { l.work.after.add(f) }

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
	l.wakeIf(ok)
	return ok
}

// finish closes the mailbox if nothing has come in meanwhile, and reports whether the loop is done.
func (l *Loop) finish() bool {
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	if len(l.mail.funcs) > 0 || !l.work.funcs.empty() || !l.intake.empty() {
		return false
	}
	l.mail.closed = true
	return true
}

func (l *Loop) readMail() {
	l.takeMail()
	l.admitAll()
	l.runAll(&l.work.funcs)
}

// takeMail takes up what is in the mailbox. What a goroutine has left of it before it ended comes
// first, and the new in the next turn.
func (l *Loop) takeMail() {
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	l.work.funcs.refill(&l.mail.funcs)
	l.intake.takeUp()
}

func (l *Loop) runAll(fs *batch[func()]) {
	if !fs.empty() {
		l.current.Store(nil)
		l.owing = true
	}
	for f, ok := fs.take(); ok; f, ok = fs.take() {
		l.guard(f)
		l.switchHandlers()
	}
}

// runAfter runs what Later was given in this turn. What that gives to Later again waits for the
// next turn.
func (l *Loop) runAfter() {
	l.work.after.renew()
	l.runAll(&l.work.after.batch)
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

// gathers reports whether there is something for the next batch.
func (r *relay[T]) gathers() bool { return len(r.coming) > 0 }

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

// sink is the loop as its driver sees it: the events, out of the way of Loop's public methods.
type sink Loop

var _ driver.Events = (*sink)(nil)

func (s *sink) loop() *Loop {
	l := (*Loop)(s)
	if l.slept {
		l.readClock()
	}
	return l
}

func (s *sink) conn(id driver.ID) *Conn { return s.loop().awake(id.Slot()) }

func (s *sink) Received(id driver.ID, p []byte) {
	c, l := s.conn(id), s.loop()
	l.stats.reads.Add(1)
	l.stats.bytesIn.Add(uint64(len(p)))
	switch {
	case c.phase() != open && !c.mustEncode():
		l.discard(c, len(p))
	case c.layer() != nil:
		l.current.Store(c)
		l.decode(c, p)
		l.leave(c)
	default:
		l.current.Store(c)
		l.deliver(c, p)
		l.leave(c)
	}
}

func (s *sink) Ended(id driver.ID) {
	c, l := s.conn(id), s.loop()
	l.current.Store(c)
	l.wireEnded(c)
	l.leave(c)
}

func (s *sink) Sent(id driver.ID, n int64) {
	c, l := s.conn(id), s.loop()
	l.stats.bytesOut.Add(uint64(n))
	if x := c.extra.Load(); x != nil && x.sending {
		x.fileSent(c, n)
	} else {
		c.queued.Add(-n)
	}
	l.settle(c)
}

func (s *sink) Closed(id driver.ID, err error) {
	l := s.loop()
	if ln, ok := l.listeners[id.Slot()]; ok {
		delete(l.listeners, id.Slot())
		l.wheel.Clear(id.Slot())
		ln.ended()
		return
	}
	// also if the conn hibernates, and its Wake does not return
	defer func() { l.closedAndCounted(l.conn(id.Slot()), err) }()
	l.awake(id.Slot())
}

func (s *sink) Detached(id driver.ID, sock driver.Socket) {
	l := s.loop()
	defer l.engine.quota.give()
	l.detached(s.conn(id), sock)
}

func (s *sink) Dialed(id driver.ID, local driver.Addr) {
	c := s.conn(id)
	c.local = ownAddr{local}
	s.loop().dialed(c)
}

func (s *sink) DialFailed(id driver.ID, err error) {
	c, l := s.conn(id), s.loop()
	l.engine.quota.give()
	l.remove(c)
	c.bury()
	c.dialing().finish(err)
}

func (s *sink) Accepted(id driver.ID, sock driver.Socket) {
	l := s.loop()
	l.accepted(l.listeners[id.Slot()], sock)
}

func (s *sink) AcceptFailed(id driver.ID, err error) {
	l := s.loop()
	l.acceptFailed(l.listeners[id.Slot()], err)
}

// expired is the wheel's callback: the timer of a conn, of an attempt to connect, or of a listener
// that rests.
func (l *Loop) expired(slot uint32) {
	if ln, ok := l.listeners[slot]; ok {
		l.rested(ln)
		return
	}
	c := l.awake(slot)
	if c.is(connecting) {
		l.attemptDue(c)
		return
	}
	if c.phase() != open {
		l.lingerExpired(c)
		return
	}
	l.current.Store(c)
	l.callExpired(c)
	l.leave(c)
}

// fail is called by a loop whose driver has failed: no conn of it can be served any more.
func (l *Loop) fail() {
	err := l.failure
	l.stopping = true
	for _, ln := range l.listeners {
		if !ln.closed.Swap(true) {
			ln.inner.Refuse()
		}
		l.dropHand(ln)
	}
	for i := range uint32(l.conns.Len()) {
		if c := l.awake(i); c != nil {
			l.closedAndCounted(c, err)
		}
	}
	for !l.finish() { // callers that wait for an answer are told
		l.takeMail()
		for a, ok := l.intake.taken.take(); ok; a, ok = l.intake.taken.take() {
			_ = a.sock.Close()
			l.refuse(a.conn, err)
		}
		l.runAll(&l.work.funcs)
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
			l.closeListener(ln)
		}
	}
	l.told = 0
	l.tellStopping()
}

// tellStopping tells those conns that do not know it yet.
func (l *Loop) tellStopping() {
	for l.stopping && l.told < l.conns.Len() {
		c := l.awake(uint32(l.told))
		l.told++
		switch {
		case c == nil:
		case c.is(connecting):
			c.dialing().race.lose(errShutDown)
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
	l.current.Store(c)
	l.callStopping(c)
	l.leave(c)
}

// closedAndCounted makes room for another conn, but not before the handler has heard of it: it
// never sees more than MaxConns.
func (l *Loop) closedAndCounted(c *Conn, err error) {
	defer l.engine.quota.give()
	l.ended(c, err)
}
