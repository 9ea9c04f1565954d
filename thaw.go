package myriad

import (
	"errors"
	"fmt"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/parts"
)

// This file is how a frozen connection is written down, and made of what was written. freeze.go
// says when.

// recordVersion is that of the engine's own part of a record.
const recordVersion = 1

// The parts of a record. What is missing has its zero value.
const (
	partState  = "state"  // the protocol's
	partUnread = "unread" // input that was not delivered
	partUnsent = "unsent" // output that was queued while the connection was frozen
	partTimer  = "timer"  // milliseconds that are left of the timer, plus 1
	partAge    = "age"    // of the connection, in milliseconds
	partPaused = "paused" // Conn.Pause
	partEnded  = "ended"  // the peer's FIN was seen, and the handler has been called for it
	partFIN    = "fin"    // CloseWrite
	partLimit  = "limit"  // SetWriteLimit's, in bytes
	partLocal  = "local"  // what SetAddrs was told
	partRemote = "remote"

	partNotified = "notified" // Notify: the call is pending
	partRoom     = "room"     // ErrFull was given: Drained is pending
	partEmpty    = "empty"    // and waits for an empty queue
)

const (
	maxAddrText  = 96                                                   // bytes of an address with a zone
	maxRemaining = uint64(10 * 365 * 24 * time.Hour / time.Millisecond) // of a timer, and of an age
)

// FormatOfRecords names the engine's part of a record. Both sides of a move compare it before
// anything moves.
const FormatOfRecords = "myriad/1"

// errChanged says that a frozen connection was written to, or asked for something, while its
// protocol wrote its state down. The state may be older than that, or not.
var errChanged = fmt.Errorf("myriad: the connection changes while it is written down: %w", ErrBusy)

// stateTries is how often a protocol is asked for its state, because the connection has changed
// meanwhile. Then the connection stays here.
const stateTries = 8

// A mark is what has been asked of a frozen connection so far. Nothing is sent of it, so each write
// makes queued larger.
type mark struct {
	queued int64
	asked  request
}

// mark is the mark of now. c.mu is held.
func (c *Conn) mark() mark { return mark{c.queued.Load(), c.asked &^ (linked | shown | offering)} }

// record writes a frozen connection down. It fails with errChanged if something has been asked of
// it since the mark, and with ErrBusy if that was its end. Any other error is that the record would
// be longer than restore reads.
func (z *frozenConn) record(state []byte, since mark) ([]byte, error) {
	c, l := z.conn, z.conn.loop
	x := c.cold.Load()
	c.mu.Lock()
	changed := c.mark() != since
	asked, due, limit := c.asked, z.due, c.limit
	if asked&wantDeadline != 0 {
		due = c.due
	}
	var unsent []byte
	if c.out != nil {
		unsent = c.out.AppendTo(nil)
	}
	files := len(x.files)
	c.mu.Unlock()
	if asked&(wantClose|wantAbort|gone) != 0 || asked&wantFIN != 0 && !c.is(finSent) || files > 0 {
		return nil, ErrBusy
	}
	if changed {
		return nil, errChanged
	}
	e := parts.Begin(nil, recordVersion)
	e.Bytes(partState, state)
	unread := x.held.AppendTo(nil)
	if unread = append(unread, l.engine.has.Moves.Unread(z.sock)...); len(unread) > 0 {
		e.Bytes(partUnread, unread)
	}
	if len(unsent) > 0 {
		e.Bytes(partUnsent, unsent)
	}
	if due != 0 {
		e.Uint(partTimer, min(1+uint64(max(0, due-l.now)), maxRemaining))
	}
	e.Uint(partAge, uint64(ageOf(z.born, l.now)))
	e.Bool(partPaused, c.is(paused))
	e.Bool(partEnded, c.is(peerEnded) && !x.endHeld)
	e.Bool(partFIN, c.is(finSent))
	if limit != l.engine.writeLimit() {
		e.Uint(partLimit, uint64(limit))
	}
	if local, remote := c.toldAddrs(); remote.IsValid() {
		e.String(partLocal, local.String())
		e.String(partRemote, remote.String())
	}
	e.Bool(partNotified, asked&wantNotify != 0)
	e.Bool(partRoom, asked&wantRoom != 0)
	e.Bool(partEmpty, asked&wantEmpty != 0)
	p := e.End()
	if len(p) > parts.MaxState {
		return nil, fmt.Errorf("myriad: a connection has %d bytes to move with, at most %d can move", len(p),
			parts.MaxState)
	}
	return p, nil
}

// frozenState is z's record with its protocol's state. Both are of one moment: what another
// goroutine writes or asks for in between has the protocol write its state down anew.
func (k *callbacks) frozenState(z *frozenConn) (record []byte, err error) {
	for range stateTries {
		z.conn.mu.Lock()
		since := z.conn.mark()
		z.conn.mu.Unlock()
		state, err := k.protocolState(z.conn)
		if err != nil {
			return nil, err
		}
		if record, err = z.record(state, since); err != errChanged {
			return record, err
		}
	}
	return nil, errChanged
}

// protocolState calls the handler's Freeze.
func (k *callbacks) protocolState(c *Conn) (state []byte, err error) {
	call := k.begin(c)
	defer k.returned(c, &call)
	err = ErrBusy // if Freeze panics
	state, err = c.handler.(Freezer).Freeze(c, nil)
	call.returned = true
	return state, err
}

// atRest calls the handler's AtRest.
func (k *callbacks) atRest(c *Conn, h Freezer) (ok bool) {
	call := k.begin(c)
	defer k.returned(c, &call)
	ok = h.AtRest(c)
	call.returned = true
	return ok
}

// moved is the last call for a connection that another engine has.
func (k *callbacks) moved(c *Conn) {
	call := k.begin(c)
	defer k.returned(c, &call)
	c.handler.(Freezer).Moved(c)
	call.returned = true
}

// Add makes frozen connections of records. After an error the set is incomplete: some records of
// this call may be in it, and the sockets of the others are closed. Call Drop, which lets go of all
// that is in the set. It fails with ErrTooMany at
// Config.MaxConns, with ErrClosed after Shutdown has begun, with the errors of Thawer.Thaw, and
// with one that names the part of a record that cannot be read.
func (f *Frozen) Add(records []Record) error {
	e := f.engine
	reserved := 0
	for reserved < len(records) && e.admission.quota.reserve() {
		reserved++
	}
	if reserved < len(records) {
		e.admission.hits.tooMany.Add(1)
		for range reserved {
			e.admission.quota.release()
		}
		return errors.Join(fmt.Errorf("myriad: Add of %d frozen connections: %w", len(records), ErrTooMany),
			closeSockets(records))
	}
	shares := make([][]Record, len(e.loops))
	for _, r := range records {
		i := e.admission.nextLoop().index
		shares[i] = append(shares[i], r)
	}
	failures := make([]error, len(e.loops))
	taken := make([]bool, len(e.loops))
	e.onLoops(func(l *Loop) {
		taken[l.index] = true
		failures[l.index] = f.thawAll(l, shares[l.index])
	})
	for i, ok := range taken {
		if !ok && len(shares[i]) > 0 { // the loop has ended
			failures[i] = errors.Join(errShutDown, closeSockets(shares[i]))
			for range shares[i] {
				e.admission.quota.release()
			}
		}
	}
	return errors.Join(failures...)
}

func closeSockets(records []Record) (err error) {
	for _, r := range records {
		err = errors.Join(err, r.Socket.Close())
	}
	return err
}

// thawAll makes frozen connections on their loop. After a failure the rest are closed.
func (f *Frozen) thawAll(l *Loop, records []Record) (failure error) {
	for i := range records {
		r := &records[i]
		if failure == nil && l.stopping {
			failure = errShutDown
		}
		if failure == nil {
			if failure = f.thaw(l, r); failure == nil {
				continue
			}
		}
		_ = r.Socket.Close()
		l.engine.admission.quota.release()
	}
	return failure
}

// thaw makes one frozen connection.
func (f *Frozen) thaw(l *Loop, r *Record) error {
	c := newConn(l, unthawed{})
	c.remote, c.local = r.Socket.Remote(), l.locals.Of(r.Socket.Local())
	z := &frozenConn{conn: c, set: f, sock: r.Socket, born: bornAgo(0, l.now)}
	c.ownCold().frozen = z
	c.advance(frozen)
	state, err := z.restore(r.State)
	if err == nil {
		err = l.calls.thaw(c, r, state)
	}
	if err != nil {
		c.bury()
		return fmt.Errorf("myriad: thaw a connection from %v (%s): %w", c.RemoteAddr(), r.Format, err)
	}
	f.add(l, z)
	return nil
}

// restore gives the conn what the engine has written down, and returns the protocol's state.
func (z *frozenConn) restore(record []byte) (state []byte, err error) {
	c, l := z.conn, z.conn.loop
	x := c.cold.Load()
	d, err := parts.Parse(record, recordVersion)
	if err != nil {
		return nil, err
	}
	state = d.Need(partState, parts.MaxState)
	unread := d.Bytes(partUnread, parts.MaxState)
	unsent := d.Bytes(partUnsent, parts.MaxState)
	timer := d.Uint(partTimer, maxRemaining)
	age := int64(d.Uint(partAge, maxRemaining))
	isPaused, ended, fin := d.Bool(partPaused), d.Bool(partEnded), d.Bool(partFIN)
	limit := d.Uint(partLimit, maxWriteLimit)
	local := d.String(partLocal, maxAddrText)
	remote := d.String(partRemote, maxAddrText)
	notified, room, empty := d.Bool(partNotified), d.Bool(partRoom), d.Bool(partEmpty)
	if err = d.Err(); err != nil {
		return nil, err
	}
	if remote != "" {
		ap := addrPort(remote)
		if !ap.IsValid() {
			return nil, fmt.Errorf("%w: %q is no address: %q", parts.ErrValue, partRemote, remote)
		}
		c.SetAddrs(addrPort(local), ap)
	}
	z.born = bornAgo(age, l.now)
	if timer != 0 {
		z.due = max(1, l.now+int64(timer)-1)
	}
	if isPaused {
		c.status |= paused
	}
	if ended {
		c.status |= peerEnded
	}
	if fin {
		c.status |= finSent
		c.asked |= wantFIN
	}
	if notified { // GoOn revisits the conn
		c.asked |= wantNotify
	}
	if room {
		c.asked |= wantRoom
	}
	if empty {
		c.asked |= wantEmpty
	}
	if limit != 0 {
		c.limit = int32(limit)
	}
	x.held.Append(unread)
	if len(unsent) > 0 {
		c.mu.Lock()
		c.output().Append(unsent)
		c.queued.Add(int64(len(unsent)))
		c.mu.Unlock()
	}
	return state, nil
}

// thaw calls Thawer.Thaw.
func (k *callbacks) thaw(c *Conn, r *Record, state []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic in %T: %v", r.Thawer, v)
		}
	}()
	h, err := r.Thawer.Thaw(c, r.Format, state)
	if err != nil {
		return err
	}
	k.loop.engine.bind(h)
	c.handler, c.can = h, abilitiesOf(h)
	return nil
}

// unthawed stands in for the handler of a conn while that is made.
type unthawed struct{}

func (unthawed) Opened(*Conn)           {}
func (unthawed) Received(*Conn, []byte) {}
func (unthawed) Closed(*Conn, error)    {}

// Sockets are the means by which the engine's sockets go to another process, for package handover.
// Nil: there are none, and Freeze fails.
func (e *Engine) Sockets() *driver.Moves { return e.has.Moves }
