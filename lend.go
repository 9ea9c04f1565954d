package myriad

import (
	"fmt"
	"math"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file is how a loop runs what may block, and how another goroutine takes the loop over meanwhile. docs/adr/0010 is the
// protocol, lend_model_test.go explores it.

const (
	// maxChain is how many guests of one conn run one after the other before others have their turn, and chainTime is for how long they may.
	// The clock is read after 1, 2, 4 and 8 of them, and after each once half of the time is over.
	maxChain  = 16
	chainTime = 100 * time.Microsecond
	// What guests have written leaves together with what the next ones write, for up to heldConns conns and heldTime: the kernel's part
	// in sending costs less when it is done in a row, and a peer that waits for many answers is woken once.
	heldConns = 32
	heldTime  = 250 * time.Microsecond
	// visitsPerLook is after how many visits the clock is read to see whether that time is over.
	visitsPerLook = 4
)

// held are the conns that guests have left and that wait to be settled.
type held struct {
	batch[*Conn]
	visits int           // since the clock was read
	looked time.Duration // the clock when it was
	since  time.Duration // the clock when the first of them may have come
}

// A Guest is work for the goroutine of a loop that may block all the same: if it does, or takes longer than a millisecond or two,
// another goroutine goes on with the loop. It is for protocols whose users' code is quick most of the time.
type Guest interface {
	// Visit does the work. It runs as any other goroutine would, not on the loop: what is "on the loop only" is
	// forbidden. Before a call that would wait it hands the loop over.
	Visit(l Lease)
	// Taken says that the loop has been taken over while Visit runs: because it took too long (overstayed), or by HandOver. On the
	// loop, as a callback of the conn.
	Taken(overstayed bool)
	// Left is called after Visit. kept: on the loop, as a callback of the conn. Otherwise on the goroutine of Visit, which
	// is not the loop's any more and ends; Taken may come only after that.
	Left(kept bool)
}

// A guest waits for the end of the turn, with the conn that it works for.
type guest struct {
	c *Conn
	g Guest
}

// Invite has g visit the loop when the events of this turn have been handled. Whoever invites sees to it that the conn stays
// quiet meanwhile as far as its protocol asks for it: its events come as usual. A guest that Left invites for the
// same conn comes next, and what both write leaves together; after 16 of them, or 100 µs, it is the others' turn. On the loop only, inside a
// callback of the conn.
func (c *Conn) Invite(g Guest) { c.loop.guests = append(c.loop.guests, guest{c, g}) }

// A Lease is a guest's claim on the goroutine that it runs on.
type Lease struct {
	loop *Loop
	word uint64
}

// HandOver lets the loop go on without this goroutine, so that the caller may wait. It may be called more than once, and after the
// visit, when it does nothing. It reports false if the guest must not wait, because the driver is bound to the loop's
// thread. The zero Lease allows everything. Any goroutine.
func (v Lease) HandOver() bool {
	switch {
	case v.loop == nil:
	case v.loop.bound:
		return v.loop.lease.Load() != v.word
	default:
		v.loop.takeOver(v.word, false)
	}
	return true
}

// Held reports whether the loop still waits for the guest: then it has been there for a few milliseconds at most. Any goroutine.
func (v Lease) Held() bool { return v.loop != nil && v.loop.lease.Load() == v.word }

// takeOver ends a lease in its guest's place, and has another goroutine own the loop. Any goroutine.
func (l *Loop) takeOver(word uint64, overstayed bool) bool {
	if !l.lease.CompareAndSwap(word, word+1) {
		return false
	}
	l.employ(func() { l.succeed(overstayed) })
	return true
}

// succeed is the goroutine that goes on with a loop whose guest is still there.
func (l *Loop) succeed(overstayed bool) {
	l.readClock()
	if overstayed {
		l.stats.takeovers++
	} else {
		l.stats.handOvers++
	}
	v := l.visitor
	l.callTaken(v, overstayed)
	l.leave(v.c)
	l.settleHeld() // these have waited for as long as that guest has stayed
}

// own tells a driver that looks at its callers whom it belongs to now.
func (l *Loop) own() {
	if d, ok := l.drv.(driver.Owned); ok {
		d.Own()
	}
}

// entertain runs the guests of this turn. It reports false if the loop belongs to another goroutine now.
func (l *Loop) entertain() bool {
	if len(l.guests) == 0 && l.held.empty() {
		return true
	}
	l.held.since = l.look()
	l.noteThread(len(l.guests))
	for most := l.invited(); l.served < min(most, len(l.guests)); {
		v := l.guests[l.served]
		l.guests[l.served] = guest{}
		l.served++
		if !l.host(v) {
			return false
		}
	}
	n := copy(l.guests, l.guests[l.served:])
	clear(l.guests[n:])
	l.guests, l.served = l.guests[:n], 0
	l.settleHeld()
	if l.work.dirty != nil || l.dirty.Load() != nil {
		l.drainDirty(dirtySlice) // what guests have written to other conns, and what has let them go ahead
	}
	return true
}

// invited is how many guests this turn has. Those that their visits lead to come in the next one, after a look at everybody else: a peer that
// has asked for a thousand things at once does not keep others waiting for all of them. A loop that ends has no next turn.
func (l *Loop) invited() int {
	if l.failure != nil {
		return math.MaxInt
	}
	return len(l.guests)
}

// A chain is the guests of one conn that run one after the other.
type chain struct {
	n     int           // how many they have been
	look  int           // after how many the clock is read
	began time.Duration // the clock, not long before the first
}

// host runs a guest, then those that it leads to, and has what they have written sent before long.
func (l *Loop) host(v guest) bool {
	h := &l.held
	for done := (chain{n: 1, look: 1, began: h.looked}); ; done.n++ {
		if !l.visit(v) {
			return false
		}
		h.visits++
		if !l.goesOn(v.c, &done) {
			break
		}
		last := len(l.guests) - 1
		v, l.guests[last] = l.guests[last], guest{}
		l.guests = l.guests[:last]
	}
	l.current.Store(nil)
	h.list = append(h.list, v.c)
	if len(h.list) >= heldConns || h.visits >= visitsPerLook && l.look()-h.since >= heldTime {
		l.settleHeld()
		h.since = l.look() // what the next ones write waits anew
	}
	return true
}

// goesOn reports whether c has another guest and it comes at once, behind those that are done.
func (l *Loop) goesOn(c *Conn, done *chain) bool {
	switch {
	case done.n == maxChain || !l.expecting(c):
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
	l.held.visits, l.held.looked = 0, l.elapsed()
	return l.held.looked
}

// settleHeld sends what guests have written.
func (l *Loop) settleHeld() {
	for c, ok := l.held.take(); ok; c, ok = l.held.take() {
		l.settle(c)
	}
}

// visit lends the loop to one guest. It reports false if it did not get it back.
func (l *Loop) visit(v guest) bool {
	t := reflect.TypeOf(v.g)
	began := l.calling(t)
	l.visitor = v
	if l.current.Load() != v.c {
		l.current.Store(v.c)
	}
	e := l.engine
	lease := Lease{l, l.lease.Load() + 1}
	l.lease.Store(lease.word)
	if e.monitor.state.Load() != monitorAwake {
		e.monitor.rouse()
	}
	l.receive(v, lease) // from the store to the swap nothing of the loop may be touched but the word
	if !l.lease.CompareAndSwap(lease.word, lease.word+1) {
		v.g.Left(false)
		return false
	}
	l.called(t, began)
	l.callLeft(v)
	l.switchHandlers()
	return true
}

// receive runs the visit itself.
func (l *Loop) receive(v guest, lease Lease) {
	returned := false
	defer func() {
		if !returned {
			l.interrupted(v, lease, recover())
		}
	}()
	linger := l.engine.linger
	if linger != nil {
		linger()
	}
	v.g.Visit(lease)
	if linger != nil {
		linger()
	}
	returned = true
}

// interrupted is for a guest that has panicked with p, or, if p is nil, has called runtime.Goexit: then this goroutine ends when
// this call returns, and another one goes on with the loop, if it is still this one's.
func (l *Loop) interrupted(v guest, lease Lease, p any) {
	switch {
	case p != nil:
		l.engine.cfg.Logger.Error("myriad: panic in a guest; its connection is aborted",
			"guest", fmt.Sprintf("%T", v.g), "remote", v.c.remote.String(), "panic", p, "stack", string(debug.Stack()))
		v.c.Abort(fmt.Errorf("myriad: panic in %T: %v", v.g, p))
	case l.lease.CompareAndSwap(lease.word, lease.word+1):
		l.employ(l.inherit)
	default:
		v.g.Left(false)
	}
}

// inherit is the goroutine that goes on with a loop whose own was ended by a guest.
func (l *Loop) inherit() {
	v := l.visitor
	l.callLeft(v)
	l.leave(v.c)
}

func (l *Loop) callLeft(v guest) {
	call := call{began: untimed}
	defer l.returned(v.c, &call)
	v.g.Left(true)
	call.returned = true
}

func (l *Loop) callTaken(v guest, overstayed bool) {
	call := call{began: untimed}
	defer l.returned(v.c, &call)
	v.g.Taken(overstayed)
	call.returned = true
}

// expecting reports whether c has a guest that comes next: then what was queued leaves with what that one writes.
func (l *Loop) expecting(c *Conn) bool {
	last := len(l.guests) - 1
	return last >= l.served && l.guests[last].c == c
}
