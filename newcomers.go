package myriad

import (
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/wheel"
)

// While loops are late, newcomers wait, and those that are in keep most of the loops' time.
// docs/adr/0033 says why, and why in this way.

const (
	// tooLate is how late a loop may be before newcomers wait for those that are in. Peers hardly
	// notice less.
	tooLate = 50 * time.Millisecond
	// standingLate is for how long a loop must have been too late without a break. A burst of work
	// is over sooner, such as a message to many, or the pings that are due at once.
	standingLate = 400 * time.Millisecond
	// othersShare is how much of a late loop's time those that are in have for each part that
	// newcomers have.
	othersShare = 7
	// newCallbacks is for how many callbacks behind Opened a connection is new. By then handshakes,
	// upgrades and a protocol's first commands are mostly over. It fits into newBits.
	newCallbacks = 7
	// newcomersBurst is for how much of a loop's time newcomers may come at once: so little that
	// peers do not notice it.
	newcomersBurst = 4 * time.Millisecond
	// savedTurns is for how many turns of the loop newcomers may save up time. Their listeners may
	// need so many to have one come.
	savedTurns = 4
	// newcomersDebt bounds what newcomers have cost too much, and others get back first.
	newcomersDebt = 100 * time.Millisecond
	// prepaidTime is for what newcomers have paid in advance. A newcomer is charged the average
	// cost when it comes in. What it does not use of that flows back to the account, over about
	// prepaidTime.
	prepaidTime = 4 * time.Second
	// costSamples is from how many connections on a loop forgets half of what earlier ones have
	// cost. costPrior is for how many its first estimate counts.
	costSamples, costPrior = 512, 4
	// trickle is how long newcomers wait at least until one of them comes in, whatever the loops
	// say, and mostTrickle how long at most.
	trickle, mostTrickle = 50 * time.Millisecond, time.Second
)

// newcomers is how a loop shares its time between newcomers and the others while it is late. An
// account says how much of its time newcomers may have. It grows with the time that others have
// had, and each newcomer is paid from it: in advance what newcomers cost on average, and then what
// they cost above that. Connections that came while the loop kept up are no newcomers.
type newcomers struct {
	loop *Loop

	// Owned by the loop.
	on       bool          // newcomers are limited
	tooLate  bool          // the loop is, since lateFrom
	lateFrom time.Duration // the clock
	lateAt   time.Duration // the clock when the loop was too late last
	behind   bool          // the last turn has left something for the next one
	unread   bool          // the next event, or turn, sets began and marked
	began    time.Duration // the clock from which time is to be shared out
	marked   time.Duration // the clock when what was booked last had ended
	accepts  time.Duration // since began, of accepting
	accept   time.Duration // of these, of the last one
	left     time.Duration // and of peers that had left, which has been paid
	spent    time.Duration // since began, of newcomers' callbacks
	charged  time.Duration // since began, for newcomers, on other goroutines
	prepaid  time.Duration // of what has been paid in advance
	came     int64         // newcomers, of late
	cost     time.Duration // what they have cost together
	calls    int64         // callbacks of newcomers, of late
	took     time.Duration // what those have taken together

	// Shared.
	limited atomic.Bool  // on, for listeners
	account atomic.Int64 // nanoseconds; above 0: another newcomer may come
	each    atomic.Int64 // nanoseconds that a newcomer costs, an estimate
}

// judge is called with how late the loop is, whenever that is measured, and with how long each of
// the last events has taken.
func (n *newcomers) judge(late, perEvent time.Duration) {
	l := n.loop
	if late < tooLate {
		n.tooLate = false
		if n.on && l.clock-n.lateAt >= standingLate && l.engine.admission.door.waiting.Load() == 0 {
			n.on, n.unread = false, false
			n.limited.Store(false)
			l.engine.admission.door.serve(l.now) // a listener that has just come to wait
		}
		return
	}
	n.lateAt = l.clock
	switch {
	case !n.tooLate:
		n.tooLate, n.lateFrom = true, l.clock
	case !n.on && l.clock-n.lateFrom >= standingLate:
		n.limit(perEvent)
	}
}

// limit begins to limit newcomers. Until it is known what they cost, one counts as much as the
// events that it has while it is new. It counts as a burst at most, because one slow event says
// little.
func (n *newcomers) limit(perEvent time.Duration) {
	n.on, n.behind = true, true
	n.accepts, n.left, n.spent, n.charged, n.prepaid = 0, 0, 0, 0, 0
	n.fresh()
	n.came, n.cost = costPrior, costPrior*min(max((1+newCallbacks)*perEvent, time.Microsecond), newcomersBurst)
	n.calls, n.took = costPrior, costPrior*min(max(perEvent, time.Microsecond), newcomersBurst)
	n.each.Store(int64(n.cost) / n.came)
	n.account.Store(0)
	n.limited.Store(true)
}

// open reports whether the loop has time for newcomers. Any goroutine.
func (n *newcomers) open() bool { return !n.limited.Load() || n.account.Load() > 0 }

// take pays in advance for a newcomer, if the loop has time for one. Any goroutine.
func (n *newcomers) take() bool {
	if !n.limited.Load() {
		return true
	}
	for {
		left := n.account.Load()
		if left <= 0 {
			return false
		}
		if n.account.CompareAndSwap(left, left-n.each.Load()) {
			return true
		}
	}
}

// takeAnyway is take, for one that comes although there is no time. Any goroutine.
func (n *newcomers) takeAnyway() { n.account.Add(-n.each.Load()) }

// giveBack is for a newcomer that has not come. Any goroutine.
func (n *newcomers) giveBack() { n.account.Add(n.each.Load()) }

// fresh has time be shared out from now on. Between two polls other goroutines may have run.
func (n *newcomers) fresh() {
	n.unread = false
	n.began = n.loop.elapsed()
	n.marked = n.began
}

// skip leaves what was done since the last booking to the others.
func (n *newcomers) skip() {
	if n.on {
		n.lap()
	}
}

// lap returns how long it is since what was booked last had ended.
func (n *newcomers) lap() time.Duration {
	if n.unread {
		n.fresh()
	}
	now := n.loop.elapsed()
	d := now - n.marked
	n.marked = now
	return d
}

// accepted books that a listener of the loop has accepted a peer.
func (n *newcomers) accepted() {
	if n.on {
		n.accept = n.lap()
		n.accepts += n.accept
	}
}

// hadLeft books that the peer which a listener of the loop has accepted last had left. It is paid
// at once: a poll accepts many, and all of them may have left.
func (n *newcomers) hadLeft() {
	n.account.Add(-int64(n.accept))
	n.left += n.accept
	n.accept = 0
}

// attached books that the loop has attached a connection that a listener has accepted, and has
// called Opened.
func (n *newcomers) attached(c *Conn) {
	if !n.on {
		return
	}
	n.spent += n.lap()
	n.came++
	n.prepaid += time.Duration(n.each.Load())
	c.status |= newcomer
	*n.loop.born.Row(c.id.Slot()) |= newCallbacks
}

// served is called when something has been done for c.
func (l *Loop) served(c *Conn) {
	if l.newcomers.on || c.is(newcomer) {
		l.newcomers.served(c)
	}
}

// served books what has just been done for c.
func (n *newcomers) served(c *Conn) {
	took := time.Duration(0)
	if n.on {
		took = n.lap()
	}
	if !c.is(newcomer) {
		return
	}
	n.spent += took
	if n.on {
		n.calls++
		n.took += min(took, newcomersDebt)
	}
	row := n.loop.born.Row(c.id.Slot())
	if *row&newBits == 0 {
		c.status &^= newcomer
		return
	}
	*row--
}

// turned is called when a turn has ended, and when its tasks have. It shares out the time since
// began.
func (n *newcomers) turned() {
	if n.unread { // nothing has been done
		return
	}
	now := n.loop.elapsed()
	passed, newly := now-n.began, n.spent+n.charged
	others := max(0, passed-n.accepts-n.spent)
	n.learn(newly)
	expired := n.prepaid * min(passed, prepaidTime) / prepaidTime
	n.prepaid -= expired
	unpaid := max(0, newly-n.prepaid)
	n.prepaid = max(0, n.prepaid-newly)

	earned := others / othersShare
	before := time.Duration(n.account.Load())
	after := min(before+earned+expired-unpaid-(n.accepts-n.left), max(newcomersBurst, savedTurns*earned))
	n.began, n.accepts, n.left, n.spent, n.charged = now, 0, 0, 0, 0
	n.unread = true
	n.settle(before, max(after, -newcomersDebt))
}

// learn renews the estimate of what a newcomer costs. One that holds the loop up for seconds says
// little about the others. Of those that have just come little is known yet, so each counts as
// two callbacks at least.
func (n *newcomers) learn(newly time.Duration) {
	n.cost += min(newly, newcomersDebt)
	if n.came >= costSamples {
		n.came /= 2
		n.cost /= 2
	}
	if n.calls >= costSamples {
		n.calls /= 2
		n.took /= 2
	}
	n.each.Store(max(int64(n.cost)/n.came, 2*int64(n.took)/n.calls, 1))
}

// settle moves the account. A loop that has caught up has time for a burst.
func (n *newcomers) settle(before, after time.Duration) {
	if !n.behind {
		after = max(after, newcomersBurst)
	}
	if n.account.Add(int64(after-before)) > 0 { // listeners may have taken from it since before
		n.loop.engine.admission.door.serve(n.loop.now)
	}
}

// idle is called when the loop has nothing to do.
func (n *newcomers) idle() {
	if !n.on {
		return
	}
	n.behind, n.unread = false, true
	before := time.Duration(n.account.Load())
	n.settle(before, before)
}

// A door is where listeners wait until a loop has time for the peer that they have in hand, first
// come, first served.
type door struct {
	engine *Engine
	claims
	last atomic.Int64 // loop time in milliseconds when one came in that had waited
}

// reserve finds the loop that gets the next connection of a listener on the loop from. It returns
// nil if from has no time (accepting costs its time), or if no loop has. Any goroutine.
func (d *door) reserve(from *Loop) *Loop {
	if !from.newcomers.open() {
		return nil
	}
	for range d.engine.loops {
		if l := d.engine.admission.nextLoop(); l.newcomers.take() {
			return l
		}
	}
	return nil
}

// queueUp queues a listener's claim. now is its loop's time.
func (d *door) queueUp(c *claim, now int64) {
	d.join(c)
	d.serve(now) // time that a loop had before the queue could be seen
}

// serve lets in those that wait, as far as loops have time. now is the time of a loop.
func (d *door) serve(now int64) {
	for d.waiting.Load() > 0 {
		c := d.next(func(c *claim) bool {
			c.to = d.reserve(c.loop)
			return c.to != nil
		})
		if c == nil {
			return
		}
		d.last.Store(now)
		d.grant(c)
	}
}

func (d *door) grant(c *claim) {
	if to := c.to; !c.granted() {
		to.newcomers.giveBack() // the listener's loop has ended
	}
}

// trickleIn lets the first one in, whatever the loops say, if none has come in for some time. So no
// measure that goes wrong can lock the door. now is a loop's time.
func (d *door) trickleIn(now int64) {
	last, to := d.last.Load(), d.engine.admission.nextLoop()
	if now-last < wheel.Millis(to.newcomers.patience()) || !d.last.CompareAndSwap(last, now) {
		return
	}
	if c := d.next(func(*claim) bool { return true }); c != nil {
		c.to = to
		to.newcomers.takeAnyway()
		d.grant(c)
	}
}

// patience is how long the first one waits at most. Newcomers that cost much come less often, or
// they would have more than their share. Any goroutine.
func (n *newcomers) patience() time.Duration {
	return min(max(trickle, 2*(1+othersShare)*time.Duration(n.each.Load())), mostTrickle)
}
