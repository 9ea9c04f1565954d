package handover

import (
	"errors"
	"fmt"
	"io"
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
	return t.ch.send(message{kind: accept})
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
	for {
		m, err := t.receive()
		if err != nil {
			return err
		}
		switch m.kind {
		case conns:
			err = t.thawConns(&m)
		case listener:
			err = t.inherit(&m)
		case state:
			if err = m.expect(state); err == nil {
				err = t.thawState(&m)
			}
		default:
			if err = m.expect(all); err == nil {
				return t.checkAll(m.body)
			}
		}
		if err != nil {
			return err
		}
	}
}

// inherit keeps a listener for the Listen that asks for its address.
func (t *Taken) inherit(m *message) error {
	defer m.drop()
	r := &reader{p: m.body}
	network, addr := string(r.bytes(maxName)), string(r.bytes(maxAddr))
	paused := r.uint(1) == 1
	if r.err == nil && (m.file == nil || len(m.sockets) > 0) {
		r.err = fmt.Errorf("%d sockets, file %v", len(m.sockets), m.file != nil)
	}
	if err := r.end(listener); err != nil {
		return err
	}
	t.inherited = true
	return t.Engine.Inherit(network, addr, paused, m.file)
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
	if err != nil || m.file != nil {
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

// goWait is how long GoOn waits for the last word of the other process.
const goWait = time.Second

// Conns is how many connections have come.
func (t *Taken) Conns() int { return t.conns }

// Unclaimed are the listeners of the other process, as "network address", that no Listen had asked
// for before GoOn: they are closed, and peers are refused there.
func (t *Taken) Unclaimed() []string { return t.unclaimed }

// GoOn tells the other process that this one has all, and goes on with it. If it fails, the other
// process goes on, and everything here is dropped, as by Drop.
func (t *Taken) GoOn() error {
	if t.over {
		return errors.New("handover: GoOn after GoOn or Drop")
	}
	t.ch.setDeadline(t.within())
	if err := t.ch.send(message{kind: have}); err != nil {
		t.Drop(err)
		return fmt.Errorf("handover: tell the other process: %w", err)
	}
	// The other process has the message, or it has died: it does not go on with the connections. If
	// it is stopped, it finds the message when it runs again.
	t.ch.setDeadline(t.Engine.System().Now().Add(goWait))
	if m, err := t.ch.receive(); err == nil {
		m.drop()
		if m.kind == refuse {
			err = m.expect(goOn)
			t.Drop(err)
			return err
		}
	}
	t.over = true
	for _, s := range t.states {
		s.GoOn()
	}
	t.frozen.GoOn()
	t.ch.close()
	if t.inherited {
		t.unclaimed, _ = t.Engine.EndInheritance() // they are closed, whatever the kernel says to it
	}
	return nil
}

// Drop gives up: the other process goes on, and is told why. It does nothing after GoOn.
func (t *Taken) Drop(reason error) {
	if t.over {
		return
	}
	t.over = true
	if reason != nil && !errors.Is(reason, ErrRefused) && !errors.Is(reason, io.ErrUnexpectedEOF) {
		t.ch.setDeadline(t.within())
		_ = t.ch.send(refusal(reason))
	}
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
