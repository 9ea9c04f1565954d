package handover

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/myriad-go/myriad"
)

// Taken is what has come of another process and does not run yet. Its methods are for one goroutine
// at a time.
type Taken struct {
	*Program
	ch      channel
	frozen  *myriad.Frozen
	conns   int
	states  []State  // those that are thawed
	formats []string // of all states, in their order
	over    bool

	inherited bool // listeners have come
	unclaimed []string
	stalled   time.Duration // the longest time for which nothing was received
	alone     bool          // the other process has died before it had sent everything
}

// take receives all that the other process has. What it returns is not running: GoOn or Drop is to
// be called.
func take(ch channel, p *Program) (*Taken, error) {
	t := &Taken{Program: p, ch: ch}
	err := t.agree()
	if err == nil {
		err = t.receiveAll()
	}
	if err != nil {
		t.Drop(err)
		return nil, err
	}
	return t, nil
}

// agree hears what the other process has, and accepts it, or refuses.
func (t *Taken) agree() error {
	if err := t.check(); err != nil {
		return err
	}
	m, err := t.receive()
	if err != nil {
		return err
	}
	if err = m.expect(hello); err != nil {
		return err
	}
	list, err := parseItems(m.body)
	if err != nil {
		return err
	}
	if err = t.understand(list); err != nil {
		return err
	}
	// What the other process numbers by name must have the same number here.
	servers, states := 0, 0
	for _, it := range list {
		switch it.what {
		case "server":
			servers++
		case "state":
			states++
			t.formats = append(t.formats, it.format)
		}
	}
	if servers != len(t.Servers) || states != len(t.States) {
		return fmt.Errorf("handover: %w: the other process has %d servers and %d states, this one %d and %d", ErrFormat,
			servers, states, len(t.Servers), len(t.States))
	}
	if t.frozen, err = t.Engine.Thaw(); err != nil {
		return err
	}
	return t.send(message{kind: accept})
}

// send fails with what the other process has said last, if that has refused.
func (t *Taken) send(m message) error {
	t.ch.setDeadline(t.within())
	if err := t.ch.send(m); err != nil {
		return fmt.Errorf("handover: send %v: %w", m.kind, whyEnded(t.ch, err))
	}
	return nil
}

func (t *Taken) receive() (message, error) {
	t.ch.setDeadline(t.within())
	m, err := t.ch.receive()
	if err != nil {
		return m, fmt.Errorf("handover: wait for the other process: %w", noEOF(err))
	}
	return m, nil
}

// receiveAll thaws what comes, until all has come.
func (t *Taken) receiveAll() error {
	for last := t.Engine.System().Now(); ; {
		m, err := t.receive()
		now := t.Engine.System().Now()
		t.stalled, last = max(t.stalled, now.Sub(last)), now
		if err != nil {
			if t.alone = t.isLeftBehind(err); t.alone {
				return nil
			}
			return err
		}
		if over, err := t.thawNext(&m); over || err != nil {
			return err
		}
	}
}

// isLeftBehind reports whether this process goes on with what has come, because the other one has
// died while it sent connections. Those go on that have come, and the others have ended with it.
func (t *Taken) isLeftBehind(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) && len(t.states) == len(t.States) && t.isOrphaned()
}

// isOrphaned reports whether the other process has died with all that it had, after the channel has
// ended without a word.
//
// The end of the channel is no proof of that. The other process closes the channel when it goes on,
// too, and its refusal may find no room there, if this one has received nothing for Timeout. It may
// die later, when what has come is out of date. So this one gives up if it has stood still for half
// of Timeout.
func (t *Taken) isOrphaned() bool { return t.stalled < t.patience()/2 && t.ch.otherEnded() }

// Alone reports whether the other process has died before it had sent everything. Conns are those
// that had come, and the others have ended.
func (t *Taken) Alone() bool { return t.alone }

// thawNext thaws what a message has. over: it was the last.
func (t *Taken) thawNext(m *message) (over bool, err error) {
	switch m.kind {
	case conns:
		return false, t.thawConns(m)
	case listener:
		return false, t.inherit(m)
	case state:
		if err = m.expect(state); err == nil {
			err = t.thawState(m)
		}
		return false, err
	}
	if err = m.expect(all); err == nil {
		err = t.checkAll(m.body)
	}
	return true, err
}

// inherit keeps a listener for the Listen that asks for its address.
func (t *Taken) inherit(m *message) error {
	r := &reader{p: m.body}
	network, addr := string(r.bytes(maxName)), string(r.bytes(maxAddr))
	paused := r.uint(1) == 1
	if r.err == nil && (t.over || m.listener == nil || len(m.sockets) > 0) {
		r.err = fmt.Errorf("%d sockets, listener %v", len(m.sockets), m.listener != nil)
	}
	if err := r.end(listener); err != nil {
		m.drop()
		return err
	}
	t.inherited = true
	t.Engine.Inherit(network, addr, paused, m.listener)
	return nil
}

// checkAll compares what has come with what was sent.
func (t *Taken) checkAll(body []byte) error {
	r := &reader{p: body}
	n := r.uint(1 << 40)
	if err := r.end(all); err != nil {
		return err
	}
	if uint64(t.conns) != n || len(t.states) != len(t.States) {
		return fmt.Errorf("handover: %w: %d of %d connections and %d of %d states have come", ErrProtocol, t.conns, n,
			len(t.states), len(t.States))
	}
	return nil
}

// thawState reads one of the program's states, of which first is the first piece.
func (t *Taken) thawState(first *message) error {
	names, number := t.stateNames(), len(t.states)
	if number >= len(names) || t.conns > 0 {
		return fmt.Errorf("handover: state: %w: %d states and %d connections have come", ErrProtocol, number, t.conns)
	}
	s, r := t.States[names[number]], &stateReader{t: t, number: uint64(number)}
	r.piece, r.err = r.parse(first)
	err := s.Thaw(t.formats[number], r)
	if err == nil {
		t.states = append(t.states, s)
		return r.skip()
	}
	if failed := r.failure(); failed != nil {
		return failed // it is the cause, and names it
	}
	return fmt.Errorf("handover: thaw the state %q: %w", names[number], err)
}

func (t *Taken) thawConns(m *message) error {
	records, err := t.parseRecords(m)
	if err != nil || m.listener != nil {
		m.drop()
		return errors.Join(err, m.expect(conns))
	}
	t.conns += len(records)
	return t.frozen.Add(records)
}

func (t *Taken) parseRecords(m *message) ([]myriad.Record, error) {
	if len(t.states) != len(t.States) {
		return nil, fmt.Errorf("handover: conns: %w: states are missing", ErrProtocol)
	}
	names := t.serverNames()
	r := &reader{p: m.body}
	records := make([]myriad.Record, 0, len(m.sockets))
	for _, s := range m.sockets {
		number, format, p := r.uint(maxNames), string(r.bytes(maxName)), r.bytes(maxConns)
		if r.err == nil && number >= uint64(len(names)) {
			r.err = fmt.Errorf("server %d of %d", number, len(names))
		}
		if r.err != nil {
			break
		}
		thawer := t.Servers[names[number]]
		if !contains(thawer.Formats(), format) {
			return nil, fmt.Errorf("handover: %w: a connection of %q comes as %q", ErrFormat, names[number], format)
		}
		records = append(records, myriad.Record{Thawer: thawer, Format: format, State: p, Socket: s})
	}
	return records, r.end(conns)
}

// Conns is how many connections have come.
func (t *Taken) Conns() int { return t.conns }

// Unclaimed are the listeners of the other process, as "network address", that no Listen had asked
// for before GoOn: they are closed, and peers are refused there.
func (t *Taken) Unclaimed() []string { return t.unclaimed }

// GoOn tells the other process that this one has all, and goes on with it. If it fails, the other
// process goes on, and everything here is dropped, as by Drop. Connections that come to rest later
// follow, until the other process has no more (Given.MoveRest): they appear here as these do.
//
// It waits for the word of the other process, also while that is stopped. If that dies, this one
// goes on.
func (t *Taken) GoOn() error {
	if err := t.goOn(); err != nil {
		return err
	}
	t.Engine.System().Go(t.follow)
	return nil
}

func (t *Taken) goOn() error {
	if t.over {
		return errors.New("handover: GoOn after GoOn or Drop")
	}
	if err := t.accept(); err != nil {
		t.Drop(err)
		return err
	}
	t.over = true
	for _, s := range t.states {
		s.GoOn()
	}
	t.frozen.GoOn()
	if t.inherited {
		t.unclaimed, _ = t.Engine.EndInheritance() // they are closed, whatever the kernel says to it
	}
	return nil
}

// accept says have, and waits until the other process decides. It fails if that one goes on.
func (t *Taken) accept() error {
	if t.alone {
		return nil
	}
	if err := t.send(message{kind: have}); err != nil {
		if hasEnded(err) && t.isOrphaned() {
			return nil
		}
		return err
	}
	for {
		t.ch.setDeadline(t.within())
		m, err := t.ch.receive()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // it has the message, and may still decide either way
		case err != nil: // it has died, or its go was lost
			return nil
		case m.kind == refuse:
			return m.expect(goOn)
		default:
			m.drop()
			return nil
		}
	}
}

// follow goes on with connections that come to rest later, until the other process has no more.
func (t *Taken) follow() {
	defer t.ch.close()
	for {
		round := &Taken{Program: t.Program, ch: t.ch, states: t.states, over: true}
		if err := round.await(); err != nil {
			if err != io.EOF {
				t.Engine.Logger().Warn("handover: connections that come to rest later stay in the other process",
					"error", err)
			}
			return
		}
		round.frozen.GoOn()
	}
}

// await takes the next connections that have come to rest. It fails if none come any more.
func (t *Taken) await() error {
	m, err := t.ch.receive()
	for errors.Is(err, os.ErrDeadlineExceeded) && t.Engine.Loops()[0].Post(func() {}) { // it has not ended
		t.ch.setDeadline(t.within())
		m, err = t.ch.receive()
	}
	if err != nil {
		return err
	}
	if t.frozen, err = t.Engine.Thaw(); err != nil {
		m.drop()
		return err
	}
	over, err := t.thawNext(&m)
	if err == nil && !over {
		err = t.receiveAll()
	}
	if err == nil {
		err = t.accept()
	}
	if err != nil {
		t.tell(err)
		t.frozen.Drop(nil)
	}
	return err
}

// Drop gives up: the other process goes on, and is told why. It does nothing after GoOn.
func (t *Taken) Drop(reason error) {
	if t.over {
		return
	}
	t.over = true
	t.tell(reason)
	t.ch.close()
	for _, s := range t.states {
		s.Moved()
	}
	if t.frozen != nil {
		t.frozen.Drop(nil)
	}
	if t.inherited {
		t.Engine.Disinherit()
	}
}

// tell has the other process know why this one does not go on.
func (t *Taken) tell(reason error) {
	if reason != nil && !errors.Is(reason, ErrRefused) && !errors.Is(reason, io.ErrUnexpectedEOF) {
		t.ch.setDeadline(t.within())
		_ = t.ch.send(refusal(reason))
	}
}
