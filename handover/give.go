package handover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

// A Result says what Give has moved.
type Result struct {
	Moved int // connections that go on in the new process
	Left  int // connections of the Program's servers that go on here: they were not at rest
	// Pause is for how long neither process read from those that have moved.
	Pause time.Duration
}

// A giver is the old process in one hand-over.
type giver struct {
	*Program
	ch     channel
	frozen *myriad.Frozen
	states []State // those that are frozen
	number map[myriad.Thawer]uint64
	began  time.Time // when connections were frozen first
	lent   []*myriad.Listener
	said   bool // all has been sent: have may come
}

// give hands p's connections over. If it fails, everything goes on here, and nothing has moved.
func give(ch channel, p *Program) (Result, error) {
	g := &giver{Program: p, ch: ch, number: map[myriad.Thawer]uint64{}}
	defer ch.close()
	if err := p.check(); err != nil {
		return Result{}, err
	}
	if err := g.agree(); err != nil {
		return Result{}, g.tell(err)
	}
	moved, err := g.hand()
	if err != nil && !g.taken(err) {
		for _, s := range g.states {
			s.GoOn()
		}
		for _, ln := range g.lent {
			ln.GoOn()
		}
		if g.frozen != nil {
			g.frozen.GoOn()
		}
		return Result{}, g.tell(err) // behind that, because it may take its time
	}
	ch.setDeadline(p.within())
	_ = ch.send(message{kind: goOn}) // without it the end of the channel says the same
	pause := p.Engine.System().Now().Sub(g.began)
	g.frozen.Moved() // first, so that there is room for the peers that listeners keep waiting
	for _, ln := range g.lent {
		_ = ln.Moved() // it fails if the program has closed it meanwhile
	}
	for _, s := range g.states {
		s.Moved()
	}
	return Result{Moved: moved, Left: g.frozen.Left(), Pause: pause}, nil
}

// tell has the other process know why this one does not go on, and returns the error.
func (g *giver) tell(err error) error {
	if !errors.Is(err, ErrRefused) {
		g.ch.setDeadline(g.within())
		_ = g.ch.send(refusal(err))
	}
	return err
}

func refusal(err error) message {
	reason := err.Error()
	return message{kind: refuse, body: []byte(reason[:min(len(reason), maxReason)])}
}

// agree asks whether the new process understands what this one writes. Nothing has moved yet.
func (g *giver) agree() error {
	if err := g.send(message{kind: hello, body: appendItems(g.items())}); err != nil {
		return err
	}
	return g.await(accept)
}

func (g *giver) send(m message) error {
	g.ch.setDeadline(g.within())
	if err := g.ch.send(m); err != nil {
		if refusal := g.refusal(); refusal != nil {
			return refusal
		}
		return fmt.Errorf("handover: send %v: %w", m.kind, err)
	}
	return nil
}

// refusal is why the new process has closed the channel, if it has said so, or nil. It may have
// refused while much was still to come.
func (g *giver) refusal() error {
	if g.said {
		return nil // what comes may be have
	}
	if m, err := g.ch.receive(); err == nil && m.kind == refuse {
		return m.expect(accept)
	} else if err == nil {
		m.drop()
	}
	return nil
}

// await receives a message of that kind.
func (g *giver) await(want kind) error {
	g.ch.setDeadline(g.within())
	m, err := g.ch.receive()
	if err != nil {
		return fmt.Errorf("handover: wait for %v: %w", want, noEOF(err))
	}
	return m.expect(want)
}

// noEOF is for the end of the channel where a message has to come.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// expect fails unless m is of that kind, without sockets.
func (m *message) expect(want kind) error {
	m.drop()
	switch {
	case m.kind == refuse && want != refuse:
		return fmt.Errorf("handover: %w: %s", ErrRefused, m.body[:min(len(m.body), maxReason)])
	case m.kind != want || len(m.sockets) > 0:
		return fmt.Errorf("handover: %w: %v with %d sockets came, and not %v", ErrProtocol, m.kind, len(m.sockets),
			want)
	}
	return nil
}

// hand freezes all and sends it, and waits for the word of the new process.
func (g *giver) hand() (moved int, err error) {
	thawers := make([]myriad.Thawer, 0, len(g.Servers))
	for i, name := range g.serverNames() {
		g.number[g.Servers[name]] = uint64(i)
		thawers = append(thawers, g.Servers[name])
	}
	if err = g.sendListeners(); err != nil {
		return 0, err
	}
	g.began = g.Engine.System().Now()
	if g.frozen, err = g.Engine.Freeze(g.restWait(), thawers...); err != nil {
		return 0, err
	}
	for i, name := range g.stateNames() {
		if err = g.freezeState(uint64(i), name); err != nil {
			return 0, err
		}
	}
	records := g.frozen.Records()
	if err = g.sendRecords(records); err != nil {
		return 0, err
	}
	// From here on have may come, whether the send is known to have worked or not.
	g.said = true
	if err = g.send(message{kind: all, body: binary.AppendUvarint(nil, uint64(len(records)))}); err != nil {
		return len(records), err
	}
	return len(records), g.await(have)
}

// taken decides whether the new process has said have, after an error that came in its place. It
// can say nothing any more when stopReceiving has returned.
func (g *giver) taken(err error) bool {
	if !g.said || errors.Is(err, ErrRefused) {
		return false
	}
	g.ch.stopReceiving()
	for {
		g.ch.setDeadline(g.within())
		m, err := g.ch.receive()
		if err != nil {
			return false
		}
		if m.expect(have) == nil {
			return true
		}
	}
}

// sendListeners lends the listeners of the engine, and sends a duplicate of each: peers wait in the
// kernel until one of the processes accepts again.
func (g *giver) sendListeners() error {
	if m := g.Engine.Sockets(); m == nil || m.Listener == nil {
		return nil
	}
	for _, ln := range g.Engine.Listeners() {
		f, paused, err := ln.Lend()
		if err != nil {
			return fmt.Errorf("handover: listener on %v: %w", ln.Addr(), err)
		}
		g.lent = append(g.lent, ln)
		err = g.send(message{kind: listener, body: appendListener(ln, paused), file: f})
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func appendListener(ln *myriad.Listener, paused bool) []byte {
	network, addr := ln.Asked()
	body := appendString(appendString(nil, network), addr)
	if paused {
		return append(body, 1)
	}
	return append(body, 0)
}

// freezeState sends one of the program's states, in pieces. An empty piece is the last one.
func (g *giver) freezeState(number uint64, name string) error {
	s := g.States[name]
	p, err := s.Freeze()
	if err != nil {
		return fmt.Errorf("handover: freeze the state %q: %w", name, err)
	}
	g.states = append(g.states, s)
	if len(p) > MaxState {
		return fmt.Errorf("handover: the state %q has %d bytes, at most %d can move", name, len(p), MaxState)
	}
	for {
		n := min(len(p), statePiece)
		if err := g.send(message{kind: state, body: append(binary.AppendUvarint(nil, number), p[:n]...)}); err != nil {
			return err
		}
		if p = p[n:]; n == 0 {
			return nil
		}
	}
}

// sendRecords sends the connections in batches.
func (g *giver) sendRecords(records []myriad.Record) error {
	for len(records) > 0 {
		var body []byte
		var sockets []driver.Socket
		for len(records) > 0 && len(sockets) < maxRecords && (len(sockets) == 0 || len(body) < maxBatch) {
			r := &records[0]
			body = binary.AppendUvarint(body, g.number[r.Thawer])
			body = append(binary.AppendUvarint(body, uint64(len(r.Format))), r.Format...)
			body = append(binary.AppendUvarint(body, uint64(len(r.State))), r.State...)
			sockets = append(sockets, r.Socket)
			records = records[1:]
		}
		if err := g.send(message{kind: conns, body: body, sockets: sockets}); err != nil {
			return err
		}
	}
	return nil
}
