package resp

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/outbox"
	written "github.com/myriad-go/myriad/internal/parts"
)

// This file is how connections of a Server move to another process: package handover and
// docs/adr/0035.

// frozenFormat is what Freeze writes, and Thaw reads.
const frozenFormat = "resp/1"

// frozenVersion is that of its parts.
const frozenVersion = 1

// The parts of a frozen connection. What is missing has its zero value.
const (
	partValue       = "value" // what Server.FreezeValue has appended
	partNumber      = "number"
	partAuthed      = "authed" // AUTH or HELLO has succeeded
	partUser        = "user"   // with that name
	partRESP3       = "resp3"
	partReplyOff    = "replyOff"
	partSkip        = "skip"
	partSkipping    = "skipping"
	partSubscribed  = "subscribed"
	partTransaction = "transaction"
	partName        = "name"
	partLibrary     = "library"
	partLibraryVer  = "libraryVersion"
	partOverflow    = "overflow" // SetOverflow's policy, plus 1
	partLimit       = "limit"    // SetOverflow's, in bytes
	partInput       = "input"    // a part of a command
	partTimed       = "timed"    // Server.IdleTimeout was set
)

// maxText bounds what peers call themselves and their libraries, and the name that they
// authenticate with, in bytes. Limits.Bulk of the other process may be larger than that of this
// one.
const maxText = 1 << 20

// errNotAtRest keeps a connection here that something has been asked of since AtRest.
var errNotAtRest = fmt.Errorf("resp: the connection is not at rest any more: %w", myriad.ErrBusy)

// Thawer is what package handover gives a name: connections of this Server move if FreezeValue and
// ThawValue are set. A connection over TLS does not. Nor does one whose commands run, or whose
// pushed messages wait for room: it moves when that is over. What moves is what the connection's
// own commands have set (HELLO, AUTH, CLIENT), its ID, what SetSubscribed, SetTransaction and
// SetOverflow were told, and a command of which a part has come. Functions of OnEnd do not:
// ThawValue gives them anew. The server serves from then on, as after Listen.
func (s *Server) Thawer() (myriad.Thawer, error) {
	if s.FreezeValue == nil || s.ThawValue == nil {
		return nil, errors.New("resp: Server.Thawer: FreezeValue and ThawValue must be set, or connections have no " +
			"state to move with")
	}
	l, err := s.start()
	if err != nil {
		return nil, err
	}
	return (*thawer)(l), nil
}

// A thawer is a server as the engine sees it.
type thawer live

// Formats implements myriad.Thawer.
func (*thawer) Formats() []string { return []string{frozenFormat} }

// Thaw implements myriad.Thawer.
func (t *thawer) Thaw(nc *myriad.Conn, _ string, state []byte) (myriad.Handler, error) {
	l := (*live)(t)
	ln := l.laneOf(nc)
	if ln == nil {
		return nil, errors.New("resp: the connection is on another engine than Server.Engine")
	}
	if ln.drained {
		return nil, ErrServerClosed
	}
	c := &Conn{nc: nc, lane: ln}
	value, timed, err := c.restore(state)
	if err != nil {
		return nil, err
	}
	l.number(c.number)
	nc.SetWriteLimit(c.limit())
	if idle := l.s.IdleTimeout; idle == 0 || !timed {
		nc.SetTimer(idle)
	}
	l.conns.add()
	if err = l.s.ThawValue(c, value); err != nil {
		c.vanish()
		c.runEnds()
		l.conns.gone()
		return nil, err
	}
	return (*handler)(c), nil
}

// laneOf is the lane of a conn's loop, or nil.
func (l *live) laneOf(nc *myriad.Conn) *lane {
	if i := nc.Loop().Index(); i < len(l.lanes) && l.lanes[i].loop == nc.Loop() {
		return l.lanes[i]
	}
	return nil
}

// number has new connections get numbers behind that of one that has moved.
func (l *live) number(n uint32) {
	for last := l.numbers.Load(); last < n && !l.numbers.CompareAndSwap(last, n); last = l.numbers.Load() {
	}
}

// restore reads what Freeze has written. value is a view of state.
func (c *Conn) restore(state []byte) (value []byte, timed bool, err error) {
	d, err := written.Parse(state, frozenVersion)
	if err != nil {
		return nil, false, err
	}
	value = d.Need(partValue, written.MaxState)
	c.number = uint32(d.Uint(partNumber, 1<<32-1))
	c.set(stateAuthed, d.Bool(partAuthed) || c.lane.live.rules.open)
	for _, bit := range movedBits {
		c.set(bit.state, d.Bool(bit.part))
	}
	all := c.read()
	all.user, all.name = d.String(partUser, maxText), d.String(partName, maxText)
	all.library = [2]string{d.String(partLibrary, maxText), d.String(partLibraryVer, maxText)}
	if policy := d.Uint(partOverflow, uint64(outbox.Policies)); policy > 0 {
		all.overflow, all.limit = Overflow(policy-1), int(d.Uint(partLimit, maxLimit))
		all.limit = cmp.Or(all.limit, c.lane.live.rules.limit)
	}
	input := d.Bytes(partInput, buf.MaxBlock/4)
	timed = d.Bool(partTimed)
	if err = d.Err(); err != nil {
		return nil, false, err
	}
	if all.hasSettings(c) {
		c.cold = &all
	}
	if len(input) > 0 {
		c.newWork().runner.cur = buf.From(input)
	}
	return value, timed, nil
}

// maxLimit bounds what SetOverflow is told, in bytes: the engine's own bound.
const maxLimit = 1 << 30

// hasSettings reports whether all differs from what a connection has by itself.
func (all *cold) hasSettings(c *Conn) bool {
	s := c.lane.live
	return all.user != "" || all.name != "" || all.library != [2]string{} ||
		all.overflow != s.s.Overflow || all.limit != s.rules.limit
}

// movedBits are the bits of Conn.state that move as they are.
var movedBits = []struct {
	part  string
	state uint32
}{
	{partRESP3, stateRESP3}, {partReplyOff, stateReplyOff}, {partSkip, stateSkip}, {partSkipping, stateSkipping},
	{partSubscribed, stateSubscribed}, {partTransaction, stateTransaction},
}

var _ myriad.Freezer = (*handler)(nil)

// Thawer implements myriad.Freezer.
func (h *handler) Thawer() myriad.Thawer {
	if s := h.lane.live.s; s.FreezeValue == nil || s.ThawValue == nil {
		return nil
	}
	return (*thawer)(h.lane.live)
}

// AtRest implements myriad.Freezer.
func (h *handler) AtRest(*myriad.Conn) bool {
	c := (*Conn)(h)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rests()
}

// rests reports whether Freeze can write down all that there is of the connection. It is called
// under mu.
func (c *Conn) rests() bool {
	if c.is(stateClosing | stateDraining) {
		return false
	}
	if o := c.read().outbox; !o.Empty() || o.Waiters() > 0 {
		return false
	}
	w := c.work
	return w == nil || w.inbox.phase == idle && !w.inbox.stalled && !w.inbox.paused && w.inbox.in == nil
}

// Freeze implements myriad.Freezer.
func (h *handler) Freeze(_ *myriad.Conn, dst []byte) ([]byte, error) {
	c, l := (*Conn)(h), h.lane.live
	value, err := l.s.FreezeValue(c, nil) // which may write
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.rests() { // any goroutine may have closed it, or pushed a message
		return nil, errNotAtRest
	}
	all := c.read()
	if len(all.user) > maxText {
		return nil, fmt.Errorf("resp: the peer has authenticated with a name of %d bytes, at most %d can move: %w",
			len(all.user), maxText, myriad.ErrBusy)
	}
	e := written.Begin(dst, frozenVersion)
	e.Bytes(partValue, value)
	e.Uint(partNumber, uint64(c.number))
	e.Bool(partAuthed, c.is(stateAuthed) && (!l.rules.open || all.user != ""))
	for _, bit := range movedBits {
		e.Bool(bit.part, c.is(bit.state))
	}
	for _, t := range [...]struct{ part, text string }{{partUser, all.user}, {partName, all.name},
		{partLibrary, all.library[0]}, {partLibraryVer, all.library[1]}} {
		if t.text != "" {
			e.String(t.part, t.text)
		}
	}
	if all.overflow != l.s.Overflow || all.limit != l.rules.limit {
		e.Uint(partOverflow, uint64(all.overflow)+1)
		e.Uint(partLimit, uint64(min(all.limit, maxLimit)))
	}
	if c.work != nil && c.work.runner.cur != nil {
		e.Bytes(partInput, c.work.runner.cur.Bytes()[c.work.runner.pos:])
	}
	e.Bool(partTimed, l.s.IdleTimeout > 0)
	return e.End(), nil
}

// Moved implements myriad.Freezer.
func (h *handler) Moved(*myriad.Conn) {
	c, l := (*Conn)(h), h.lane.live
	c.vanish()
	if f := l.s.OnMoved; f != nil {
		f(c)
	}
	c.runEnds()
	l.conns.gone()
}

// vanish ends the connection for this process. No command of it runs.
func (c *Conn) vanish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(stateClosing|stateClosed, true)
	if c.work != nil {
		c.forget()
	}
	c.endPushes()
}
