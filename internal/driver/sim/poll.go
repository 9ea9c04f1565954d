package sim

import (
	"slices"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// errTooManyFiles is what accepting fails with.
const errTooManyFiles = syscall.EMFILE

// mostEvents is how many connections one Poll serves at most.
const mostEvents = 64

// Poll implements driver.Driver. It is a turn of the world, whatever wait is. Called outside the
// world it drives it meanwhile; then Poll(0) lets one thing happen.
func (d *Driver) Poll(wait time.Duration, ev driver.Events) (int, error) {
	d.enter("Poll")
	defer d.exit()
	if d.inPoll {
		d.refuse("Poll inside an event, or by two goroutines at once")
	}
	d.inPoll = true
	if d.goid == 0 {
		d.goid, d.owner = d.w.identity()
	}
	defer d.polled()
	d.await(wait)
	d.woken = false
	n := d.emit(ev)
	d.w.note(d.name, "poll", 0, int64(n))
	d.inPoll = false
	return n, nil
}

// polled ends a Poll, also one in which an event did not return.
func (d *Driver) polled() {
	if d.inPoll {
		d.inPoll = false
		d.disown()
	}
}

// await returns when the driver has a turn. That its owner is calling has been checked.
func (d *Driver) await(wait time.Duration) {
	w := d.w
	switch {
	case wait == 0 || len(d.queued) > 0 || len(d.batch) > 0 || len(d.looks) > 0 || d.woken || w.chance(w.o.Spurious):
		w.yield(d.owner, d.goid, "Poll(0)")
	default:
		d.wt = w.newWaiterFor(d.owner, wait)
		w.wait(d.wt, "Poll")
		d.wt = nil
	}
}

// Wake implements driver.Driver.
func (d *Driver) Wake() {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if !d.closed {
		d.woken = true
		d.w.wake(d.wt)
	}
}

// tellOwner queues c for the next Poll. The lock is held.
func (c *conn) tellOwner() {
	if c.isQueued || c.state == free || !c.hasNews() {
		return
	}
	c.isQueued = true
	c.d.queued = append(c.d.queued, c)
	c.d.w.wake(c.d.wt)
}

// endChanged implements holder.
func (c *conn) endChanged() {
	if c.state == live {
		c.planPump()
	}
	c.tellOwner()
}

// hasNews reports whether there is an event to emit.
func (c *conn) hasNews() bool {
	switch c.state {
	case listening:
		return c.accepting && len(c.l.backlog) > 0
	case dialing:
		return c.dialDone
	case ending:
		return c.last != nil
	case live:
		return c.out.sent > 0 || c.readable() || c.finished() || c.broken()
	}
	return false
}

func (c *conn) mayRead() bool  { return !c.paused || c.inFlight }
func (c *conn) readable() bool { return c.mayRead() && len(c.e.in) > 0 }
func (c *conn) broken() bool   { return c.sendErr != nil || c.e.reset != nil }

func (c *conn) finished() bool {
	return c.mayRead() && c.e.finArrived && len(c.e.in) == 0 && !c.ended && c.e.reset == nil
}

// emit serves a seeded number of those with news, in turns.
func (d *Driver) emit(ev driver.Events) int {
	if len(d.batch) == 0 {
		if len(d.looks) > 0 {
			d.batch = d.lookNext()
		} else {
			d.batch = d.nextBatch()
		}
	}
	n := 0
	for len(d.batch) > 0 {
		c := d.batch[0]
		d.batch = d.batch[1:] // before the event, which may not return
		n += c.serve(ev)
	}
	return n
}

func (c *conn) serve(ev driver.Events) (n int) {
	defer c.tellOwner()
	if c.isQueued {
		c.isQueued = false
		n = c.tell(ev)
	}
	return n
}

// nextBatch takes the first of the queue, some of them or all, and perhaps shuffles them. Their
// isQueued stays set, so that they are not queued again meanwhile; a slot that was left and taken
// again has it cleared.
func (d *Driver) nextBatch() []*conn {
	w := d.w
	n := min(len(d.queued), mostEvents)
	if n > 1 && w.chance(w.o.Split) {
		n = 1 + w.rng.IntN(n)
	}
	batch := append([]*conn(nil), d.queued[:n]...)
	d.full = n < len(d.queued)
	d.queued = append(d.queued[:0], d.queued[n:]...)
	for _, c := range d.listeners { // each Poll serves them
		if i := slices.Index(d.queued, c); d.full && c.state == listening && i >= 0 {
			d.queued = slices.Delete(d.queued, i, i+1)
			batch = append(batch, c)
		}
	}
	n = len(batch)
	if w.chance(w.o.Reorder) {
		w.rng.Shuffle(n, func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
	}
	return batch
}

// tell emits what there is about c, at most one receive buffer of it, and returns how many events
// that was.
func (c *conn) tell(ev driver.Events) int {
	switch c.state {
	case listening:
		return c.tellAccepted(ev)
	case dialing:
		return c.tellDialed(ev)
	case ending:
		return c.tellLast(ev)
	case live:
		return c.tellLive(ev)
	}
	return 0
}

// call runs an event without the lock.
func (d *Driver) call(f func()) {
	d.w.spend(d.w.o.Costs.Event)
	d.unlocked(f)
}

func (d *Driver) unlocked(f func()) {
	d.w.mu.Unlock()
	defer d.w.mu.Lock()
	f()
}

// tellAccepted accepts at most Options.Accepts connections. The event may stop or close the
// listener.
func (c *conn) tellAccepted(ev driver.Events) (n int) {
	for gen := c.gen; n < c.d.w.o.Accepts && c.gen == gen && c.state == listening && c.hasNews(); n++ {
		c.tellOneAccepted(ev)
	}
	return n
}

func (c *conn) tellOneAccepted(ev driver.Events) {
	d, w, id := c.d, c.d.w, c.id()
	if w.noFiles || w.chance(w.o.Accept) {
		c.accepting = false
		w.noteErr(d.name, "acceptfailed", uint64(id), 0, errTooManyFiles)
		d.call(func() { ev.AcceptFailed(id, errTooManyFiles) })
		return
	}
	e := c.l.backlog[0]
	c.l.backlog = c.l.backlog[1:]
	s := w.newSocket(e, "accepted")
	w.note(d.name, "accepted", uint64(id), int64(e.id))
	w.spend(w.o.Costs.Accept)
	d.unlocked(func() { ev.Accepted(id, s) })
}

func (c *conn) tellDialed(ev driver.Events) int {
	d, id, err := c.d, c.id(), c.dialErr
	if err != nil {
		c.lastEvent("dialfailed", err, func() { ev.DialFailed(id, err) })
		return 1
	}
	c.state = live
	local := c.e.local
	d.note("dialed", c, int64(c.e.id))
	d.call(func() { ev.Dialed(id, local) })
	return 1
}

func (c *conn) tellLast(ev driver.Events) int {
	if c.last == nil {
		return 0
	}
	last := c.last
	c.lastEvent("last", nil, func() { last(ev) })
	return 1
}

// lastEvent frees the slot, before the event or after it: a caller may rely on neither.
func (c *conn) lastEvent(what string, err error, emit func()) {
	d := c.d
	d.w.noteErr(d.name, what, uint64(c.id()), 0, err)
	if d.w.chance(d.w.o.EarlySlot) {
		c.release()
		d.call(emit)
		return
	}
	c.state, c.last = ending, nil
	c.out.drop()
	defer c.release()
	d.call(emit)
}

// tellLive emits Sent, Received, Ended and Closed, as far as each is due and the owner does not end
// it meanwhile.
func (c *conn) tellLive(ev driver.Events) int {
	gen, n := c.gen, 0
	parts := [...]func(driver.Events) int{c.tellSent, c.tellReceived, c.tellEnded}
	if c.d.w.chance(c.d.w.o.Reorder) {
		parts[0], parts[1], parts[2] = parts[1], parts[2], parts[0]
	}
	for _, part := range parts {
		if c.gen == gen && c.state == live {
			n += part(ev)
		}
	}
	if c.gen == gen && c.state == live {
		n += c.tellBroken(ev)
	}
	return n
}

func (c *conn) tellSent(ev driver.Events) int {
	if c.out.sent == 0 {
		return 0
	}
	id := c.id()
	n := c.out.sent
	if c.d.w.chance(c.d.w.o.Split / 4) {
		n = 1 + c.d.w.rng.Int64N(n)
	}
	c.out.sent -= n
	c.d.note("sent", c, n)
	c.d.call(func() { ev.Sent(id, n) })
	return 1
}

func (c *conn) tellReceived(ev driver.Events) int {
	if !c.readable() {
		return 0
	}
	d, id := c.d, c.id()
	n := d.w.portion(min(len(c.e.in), len(d.rbuf)))
	p := d.rbuf[:c.e.read(d.rbuf[:n]):n]
	c.inFlight = false
	d.w.noteBytes(d.name, "received", uint64(id), p)
	d.call(func() { ev.Received(id, p) })
	for i := range p {
		p[i] = poison
	}
	return 1
}

// poison is what a view holds after its event.
const poison = 0xA5

func (c *conn) tellEnded(ev driver.Events) int {
	if !c.finished() {
		return 0
	}
	id := c.id()
	c.ended, c.inFlight = true, false
	c.d.note("ended", c, 0)
	c.d.call(func() { ev.Ended(id) })
	return 1
}

// tellBroken ends a connection that was reset, or whose sending failed, when what had arrived
// before is delivered. If the owner has paused it, that is lost.
func (c *conn) tellBroken(ev driver.Events) int {
	if !c.broken() || c.readable() {
		return 0
	}
	id, err := c.id(), c.resetError()
	c.e.abort()
	c.lastEvent("closed", err, func() { ev.Closed(id, err) })
	return 1
}
