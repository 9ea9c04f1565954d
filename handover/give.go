package handover

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

// A Result says what has moved so far.
type Result struct {
	Moved int // connections that go on in the new process
	Left  int // connections of the Program's servers that are here still: they were not at rest
}

// Given is a hand-over whose first connections have moved. MoveRest moves those that were not at
// rest.
type Given struct {
	Result
	g *giver
}

// A giver is the old process in one hand-over.
type giver struct {
	*Program
	ch      channel
	thawers []myriad.Thawer // in the order of their names
	number  map[myriad.Thawer]uint64
	frozen  *myriad.Frozen
	states  []State // those that are frozen
	lent    []*myriad.Listener
	said    bool  // all has been sent: have may come
	told    bool  // the other process has been told that this one goes on, or has gone
	broken  error // why no further connections can follow
}

// give hands p's connections over. If it fails, everything goes on here, and nothing has moved.
func give(ch channel, p *Program) (*Given, error) {
	g := &giver{Program: p, ch: ch, number: map[myriad.Thawer]uint64{}}
	result, err := g.giveOnce()
	if err != nil {
		ch.close()
		return nil, err
	}
	return &Given{result, g}, nil
}

// A standing says how far the hand-over of an engine is.
type standing atomic.Uint32

const (
	notGiven uint32 = iota
	beingGiven
	allGiven
)

// standingKey is the engine's key for it.
type standingKey struct{}

// giveOnce is giveFirst, unless another one runs or has moved everything.
func (g *giver) giveOnce() (Result, error) {
	if err := g.check(); err != nil {
		return Result{}, err
	}
	at := (*atomic.Uint32)(g.Engine.Shared(standingKey{}, func() any { return new(standing) }).(*standing))
	if !at.CompareAndSwap(notGiven, beingGiven) {
		err := fmt.Errorf("handover: the engine is handed over already: %w", myriad.ErrBusy)
		return Result{}, g.tell(err)
	}
	result, err := g.giveFirst()
	if err != nil {
		at.Store(notGiven)
		return Result{}, err
	}
	at.Store(allGiven)
	return result, nil
}

func (g *giver) giveFirst() (Result, error) {
	if err := g.agree(); err != nil {
		return Result{}, g.tell(err)
	}
	moved, err := g.hand()
	if !g.moves(&err) {
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
	g.frozen.Moved() // first, so that there is room for the peers that listeners keep waiting
	for _, ln := range g.lent {
		_ = ln.Moved() // it fails if the program has closed it meanwhile
	}
	for _, s := range g.states {
		s.Moved()
	}
	for _, t := range g.thawers {
		if d, ok := t.(myriad.Leaver); ok {
			d.Leave()
		}
	}
	return Result{Moved: moved, Left: g.frozen.Left()}, nil
}

// restPause is how often MoveRest looks for connections that have come to rest. It grows to
// longestRestPause while there are only some that say so, and then cannot be written down.
const (
	restPause        = 5 * time.Millisecond
	longestRestPause = time.Second
)

// MoveRest moves the connections that Give has left, each when it comes to rest: when its request
// is answered, or its message complete. It returns when none is left or ctx ends, with what has
// moved in all. The other process has gone on by then: its Thawers are called while it runs. If
// that process refuses or ends, MoveRest fails, and the other connections go on here.
//
// It ends the hand-over, and is called once, also if nothing is to follow: with a context that has
// ended. Until then the other process waits for more. Not from a loop.
func (r *Given) MoveRest(ctx context.Context) (Result, error) {
	g := r.g
	defer g.ch.close()
	p := g.Engine.System().NewParker()
	defer context.AfterFunc(ctx, p.Unpark)()
	for pause := restPause; ctx.Err() == nil; {
		if g.broken != nil {
			return r.Result, g.broken
		}
		tried, moved, err := g.round()
		if err != nil {
			return r.Result, err
		}
		switch r.Moved, r.Left = r.Moved+moved, g.frozen.Left(); {
		case r.Left == 0:
			return r.Result, nil
		case moved > 0:
			pause = restPause
		case tried:
			pause = min(2*pause, longestRestPause)
		}
		p.ParkFor(pause)
	}
	return r.Result, nil
}

// round moves what is at rest now. tried says that something was.
func (g *giver) round() (tried bool, moved int, err error) {
	if g.frozen, err = g.Engine.Freeze(0, g.thawers...); err != nil {
		return false, 0, err
	}
	tried = g.frozen.Len() > 0
	records := g.frozen.Records()
	if len(records) == 0 {
		g.frozen.GoOn() // those that have ended meanwhile
		return tried, 0, nil
	}
	g.said = false
	err = g.offer(records)
	if !g.moves(&err) {
		g.frozen.GoOn()
		return tried, 0, g.tell(err)
	}
	g.frozen.Moved()
	return tried, len(records), nil
}

// tell has the other process know why this one does not go on, and returns the error.
func (g *giver) tell(err error) error {
	if !g.told && !errors.Is(err, ErrRefused) {
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
		return fmt.Errorf("handover: send %v: %w", m.kind, whyEnded(g.ch, err))
	}
	return nil
}

// whyEnded is what the other process has said last, if it has refused, after a send has failed with
// err because that process had closed its end.
func whyEnded(ch channel, err error) error {
	if !hasEnded(err) {
		return err
	}
	if m, failed := ch.receive(); failed == nil {
		if refused := m.expect(goOn); errors.Is(refused, ErrRefused) {
			return refused
		}
	}
	return err
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
	for i, name := range g.serverNames() {
		g.number[g.Servers[name]] = uint64(i)
		g.thawers = append(g.thawers, g.Servers[name])
	}
	if err = g.sendListeners(); err != nil {
		return 0, err
	}
	if g.frozen, err = g.Engine.Freeze(g.restWait(), g.thawers...); err != nil {
		return 0, err
	}
	for i, name := range g.stateNames() {
		if err = g.freezeState(uint64(i), name); err != nil {
			return 0, err
		}
	}
	records := g.frozen.Records()
	return len(records), g.offer(records)
}

// offer sends the connections, and waits until the new process has them all.
func (g *giver) offer(records []myriad.Record) error {
	if err := g.sendRecords(records); err != nil {
		return err
	}
	// From here on have may come, whether the send is known to have worked or not.
	g.said = true
	if err := g.send(message{kind: all, body: binary.AppendUvarint(nil, uint64(len(records)))}); err != nil {
		return err
	}
	return g.await(have)
}

// lookTime is how long a process that is to decide looks for a have that may have come.
const lookTime = 10 * time.Millisecond

// moves decides which process goes on, and tells the new one. It returns true if the new one goes
// on. *err is nil after have, or the error that came in place of it; in the end it is the error to
// report, or nil.
//
// The new process waits for the word, and goes on without it only at the end of the channel. So
// this one may go on if it has said so. It may as well if the new one has closed its end, which it
// does without having read go.
func (g *giver) moves(err *error) bool {
	switch {
	case *err == nil:
	case !g.said || errors.Is(*err, ErrRefused):
		return false
	case hasEnded(*err):
		g.told = true
		return false
	case g.hasCome(lookTime):
	default:
		g.ch.setDeadline(g.within())
		failed := g.ch.send(refusal(*err))
		if failed == nil || hasEnded(failed) {
			g.told = true
			return false
		}
		// The new process has not even read what came before. It cannot say have any more, and
		// stopReceiving has decided whether it has.
		g.ch.stopReceiving()
		if g.broken = *err; !g.hasCome(0) {
			return false
		}
	}
	g.ch.setDeadline(g.within())
	switch failed := g.ch.send(message{kind: goOn}); {
	case failed == nil:
	case hasEnded(failed):
		*err = fmt.Errorf("handover: send %v: %w", goOn, failed)
		g.told = true
		return false
	default:
		g.broken = failed
		g.ch.close() // the end of the channel says the same as go
	}
	return true
}

// hasEnded reports whether the other process has closed its end of the channel, or died.
func hasEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ECONNRESET)
}

// hasCome reports whether have is what comes next. It waits that long, or for the end of what has
// been sent.
func (g *giver) hasCome(wait time.Duration) bool {
	g.ch.setDeadline(g.within())
	if wait > 0 {
		g.ch.setDeadline(g.Engine.System().Now().Add(wait))
	}
	m, err := g.ch.receive()
	return err == nil && m.expect(have) == nil
}

// sendListeners lends the listeners of the engine, and sends a duplicate of each: peers wait in the
// kernel until one of the processes accepts again.
func (g *giver) sendListeners() error {
	if m := g.Engine.Sockets(); m == nil || m.ShareListener == nil {
		return nil
	}
	for _, ln := range g.Engine.Listeners() {
		share, paused, err := ln.Lend()
		if err != nil {
			return fmt.Errorf("handover: listener on %v: %w", ln.Addr(), err)
		}
		g.lent = append(g.lent, ln)
		err = g.send(message{kind: listener, body: appendListener(ln, paused), listener: share})
		if err = errors.Join(err, share.Close()); err != nil {
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

// freezeState sends one of the program's states while it is written.
func (g *giver) freezeState(number uint64, name string) error {
	s := g.States[name]
	w := g.stateWriter(number)
	err := s.Freeze(w)
	if err == nil {
		g.states = append(g.states, s)
		return w.end()
	}
	if w.err != nil {
		return w.err // it is the cause, and names it
	}
	return fmt.Errorf("handover: freeze the state %q: %w", name, err)
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
