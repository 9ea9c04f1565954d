package handover

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

const frameSize = 4

// quiet logs nothing.
var quiet = slog.New(slog.DiscardHandler)

// An echoServer answers frames of four bytes, which are counted through: a byte that is lost,
// doubled or out of order ends the connection.
type echoServer struct {
	*world
	side string
}

func (s *echoServer) Formats() []string { return []string{"echo/1"} }

func (s *echoServer) Thaw(_ *myriad.Conn, format string, state []byte) (myriad.Handler, error) {
	n, used := binary.Uvarint(state)
	if used != len(state) || format != "echo/1" {
		return nil, fmt.Errorf("state % x", state)
	}
	if s.refusesAt > 0 {
		if s.refusesAt--; s.refusesAt == 0 {
			return nil, errors.New("it has had enough")
		}
	}
	return &echo{server: s, count: n}, nil
}

// An echo is a connection of an echoServer.
type echo struct {
	server *echoServer
	count  uint64 // bytes received
	half   []byte
	moved  bool
}

func (h *echo) Opened(c *myriad.Conn) { c.SetTimer(time.Hour) }

func (h *echo) Received(c *myriad.Conn, p []byte) {
	h.half = append(h.half, p...)
	for len(h.half) >= frameSize {
		for _, b := range h.half[:frameSize] {
			if b != byte(h.count) {
				h.server.wrong("%s: byte %d is %d", h.server.side, h.count, b)
			}
			h.count++
		}
		_, _ = c.Write(h.half[:frameSize])
		h.half = h.half[frameSize:]
	}
}

func (h *echo) Ended(c *myriad.Conn) { _ = c.Close() }

func (h *echo) Closed(*myriad.Conn, error) {
	if h.moved {
		h.server.wrong("%s: Closed after Moved", h.server.side)
	}
}

func (h *echo) Thawer() myriad.Thawer    { return h.server }
func (h *echo) AtRest(*myriad.Conn) bool { return len(h.half) == 0 }
func (h *echo) Moved(*myriad.Conn)       { h.moved = true }
func (h *echo) Freeze(_ *myriad.Conn, dst []byte) ([]byte, error) {
	return binary.AppendUvarint(dst, h.count), nil
}

// A world is two processes and the peers of the first.
type world struct {
	*sim.World
	t         *testing.T
	seed      uint64
	rng       *rand.Rand
	old, new  *process
	peers     []*peer
	refusesAt int           // Thaw fails the so manieth time
	leaving   bool          // peers leave meanwhile
	wait      time.Duration // of MoveRest
	whole     bool          // frames are whole before the wait is over
	happened  bool          // a fault
	timeout   time.Duration // Program.Timeout
	hesitates time.Duration // of the new process, before it goes on
	newcomers int           // peers that are still to come
	addr      net.Addr
	complaint string
}

func (w *world) wrong(format string, args ...any) {
	if w.complaint == "" {
		w.complaint = fmt.Sprintf(format, args...)
	}
}

// A process is an engine, and what its half of the hand-over has come to.
type process struct {
	*world
	name    string
	engine  *myriad.Engine
	server  *echoServer
	state   *note
	channel *simChannel
	err     error
	restErr error  // of MoveRest
	first   Result // of give
	result  Result // of MoveRest
	done    bool
	dead    bool // killed
	said    bool // of the new one: have has been sent
	wentOn  bool // likewise
	alone   int  // likewise: so many connections had come when the old one died; -1: it did not
}

// A note is a State that is one text.
type note struct {
	*world
	text  string
	here  bool // it may change
	calls []string
}

func (n *note) Formats() []string { return []string{"note/1"} }

func (n *note) Freeze(w io.Writer) error {
	n.calls = append(n.calls, "freeze")
	n.here = false
	for p := n.text; len(p) > 0; {
		part := p[:min(len(p), 1000)]
		if _, err := io.WriteString(w, part); err != nil {
			n.calls, n.here = append(n.calls, "failed"), true
			return err
		}
		p = p[len(part):]
	}
	return nil
}

func (n *note) Thaw(_ string, r io.Reader) error {
	n.calls = append(n.calls, "thaw")
	p, err := io.ReadAll(r)
	n.text = string(p)
	return err
}

func (n *note) GoOn()  { n.calls, n.here = append(n.calls, "go on"), true }
func (n *note) Moved() { n.calls, n.here = append(n.calls, "moved"), false }

// A peer sends frames that count through, and checks their echo.
type peer struct {
	*sim.Peer
	sent uint64
	left bool // it has ended its side, or reset
}

func (p *peer) write(n int) {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(p.sent)
		p.sent++
	}
	p.Write(b)
}

// check holds what has come against what was sent.
func (p *peer) check(w *world) {
	got := p.Received()
	for i, b := range got {
		if b != byte(i) {
			w.wrong("peer: byte %d of the answer is %d", i, b)
			return
		}
	}
	if uint64(len(got)) > p.sent {
		w.wrong("peer: %d bytes came for %d", len(got), p.sent)
	}
}

func newWorld(t *testing.T, seed uint64, o sim.Options, peers, room int) *world {
	w := &world{World: sim.New(seed, o), t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 44))}
	w.old, w.new = w.process("old", peers+8), w.process("new", room)
	w.old.channel, w.new.channel = newSimChannels(w.World)
	w.newcomers = 8 - w.rng.IntN(9)
	w.old.state.text, w.old.state.here = string(bytes.Repeat([]byte("state"), w.rng.IntN(100_000))), true
	ln, err := w.old.engine.Listen("tcp", "127.0.0.1:0", opener{w.old.server})
	if err != nil {
		t.Fatal(err)
	}
	w.addr = ln.Addr()
	for range peers {
		w.comes()
	}
	w.RunUntil(func() bool { return w.old.engine.Stats().Conns == peers })
	return w
}

// comes has one more peer connect.
func (w *world) comes() { w.peers = append(w.peers, &peer{Peer: w.Dial(w.addr)}) }

// An opener gives each connection a handler of its own.
type opener struct{ s *echoServer }

func (o opener) Opened(c *myriad.Conn)         { c.SetHandler(&echo{server: o.s}, nil) }
func (o opener) Received(*myriad.Conn, []byte) {}
func (o opener) Closed(*myriad.Conn, error)    {}

func (w *world) process(name string, most int) *process {
	e, err := myriad.Start(myriad.Config{Loops: 1 + w.rng.IntN(3), System: w.World, MaxConns: most,
		Logger: quiet})
	if err != nil {
		w.t.Fatal(err)
	}
	p := &process{world: w, name: name, engine: e, state: &note{world: w}, alone: -1}
	p.server = &echoServer{world: w, side: name}
	return p
}

func (p *process) program() *Program {
	return &Program{Engine: p.engine, Servers: map[string]myriad.Thawer{"echo": p.server},
		States: map[string]State{"note": p.state}, Timeout: p.timeout, piece: len(p.old.state.text)/3 + 1}
}

// A fault happens at a call of send or receive.
type fault struct {
	channel
	p     *process
	calls int
	at    int // the call; -1: none
	how   faultKind
	sure  bool
}

type faultKind int

const (
	failsBefore faultKind = iota
	failsAfter
	diesBefore
	diesAfter
	faultKinds
)

type death struct{}

var errFault = errors.New("a fault")

func (f *fault) call(do func() error) error {
	now := f.calls == f.at
	f.p.happened = f.p.happened || now
	f.calls++
	if now && f.how == diesBefore {
		panic(death{})
	}
	if now && f.how == failsBefore {
		return errFault
	}
	err := do()
	if now && f.how == diesAfter {
		panic(death{})
	}
	if now && f.how == failsAfter && err == nil && !f.sure {
		return errFault
	}
	return err
}

func (f *fault) send(m message) error {
	f.sure = m.kind == have // the kernel does not fail a send that has worked
	return f.call(func() error {
		err := f.channel.send(m)
		if err == nil && m.kind == have {
			f.p.said = true
		}
		return err
	})
}

func (f *fault) receive() (m message, err error) {
	var got message
	said := f.p.said
	returned := false
	defer func() {
		if !returned { // it dies with them in its hands
			got.drop()
		}
	}()
	f.sure = said // nor a receive that has worked: what the old process has decided would be lost
	err = f.call(func() (err error) { got, err = f.channel.receive(); return err })
	returned = true
	if err != nil { // a process that fails closes what it has received
		got.drop()
		return message{}, err
	}
	return got, nil
}

// run has the process play its part, until it has, or is dead.
func (p *process) run(part func(ch channel) error, at int, how faultKind) {
	p.Go(func() {
		defer func() {
			p.done = true
			switch v := recover().(type) {
			case nil:
			case death:
				p.die()
			default:
				panic(v)
			}
		}()
		p.err = part(&fault{channel: p.channel, p: p, at: at, how: how})
	})
}

// die does what the kernel does with a process that is killed.
func (p *process) die() {
	p.dead, p.channel.dead = true, true
	p.channel.close()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.engine.Shutdown(over)
	p.engine.Disinherit()
}

func (p *process) give(ch channel) error {
	given, err := give(ch, p.program())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.AfterFunc(p.wait, cancel)
	p.first, p.result = given.Result, given.Result
	p.result, p.restErr = given.MoveRest(ctx)
	return nil
}

func (p *process) take(ch channel) error {
	t, err := take(ch, p.program())
	if err != nil {
		return err
	}
	if p.hesitates > 0 {
		p.NewParker().ParkFor(p.hesitates)
	}
	if _, err = p.engine.Listen("tcp", "127.0.0.1:0", opener{p.server}); err != nil {
		t.Drop(err)
		return err
	}
	if t.Alone() {
		p.alone = t.Conns()
	}
	if err = t.goOn(); err == nil {
		p.wentOn = true
		t.follow()
	}
	return err
}

// traffic has the peers write meanwhile.
func (w *world) traffic(rounds int) {
	for range rounds {
		if w.newcomers > 0 && w.rng.IntN(8) == 0 {
			w.newcomers--
			w.comes()
		}
		p := w.peers[w.rng.IntN(len(w.peers))]
		if p.left {
			continue
		}
		p.write(1 + w.rng.IntN(20))
		if w.leaving && w.rng.IntN(10) == 0 {
			p.left = true
			[]func(){p.CloseWrite, p.Close, p.Reset}[w.rng.IntN(3)]()
		}
		w.RunFor(time.Duration(w.rng.Int64N(int64(3 * time.Millisecond))))
	}
}

func (w *world) handOver(oldAt int, oldHow faultKind, newAt int, newHow faultKind) {
	w.traffic(20)
	w.new.run(w.new.take, newAt, newHow)
	w.old.run(w.old.give, oldAt, oldHow)
	w.traffic(w.rng.IntN(40))
	if w.whole {
		w.wholeFrames()
	}
	w.RunUntil(func() bool { return w.old.done && w.new.done })
	w.traffic(20)
	w.wholeFrames()
	w.RunFor(time.Minute)
}

func (w *world) wholeFrames() {
	for _, p := range w.peers {
		if !p.left {
			p.write(int(frameSize - p.sent%frameSize))
		}
	}
}

// settle checks what has come of it. survive says whether the connections must have lived.
func (w *world) settle() {
	w.t.Helper()
	survive := true
	newGoesOn := w.new.wentOn && !w.new.dead
	if w.new.alone >= 0 && !w.old.dead {
		w.wrong("the new process goes on alone, and the old one lives")
	}
	switch {
	case w.old.dead && !newGoesOn, w.new.dead && w.new.said && w.old.err == nil:
		survive = false // those that only a dead process had, end
	}
	if w.old.dead && w.new.dead {
		survive = false
	}
	staying := 0
	for _, p := range w.peers {
		if p.check(w); !p.left {
			staying++
		}
	}
	left := 0 // connections that were not at rest have died with the old process
	if w.old.dead && newGoesOn {
		left = staying - w.new.engine.Stats().Conns
	}
	for i, p := range w.peers {
		if p.left {
			continue
		}
		alive := !p.Ended() && p.Err() == nil
		if survive && !alive {
			if left--; left >= 0 {
				continue
			}
			w.wrong("peer %d has lost its connection (ended %v, %v)", i, p.Ended(), p.Err())
		}
		if survive && uint64(p.Count()) != p.sent {
			w.wrong("peer %d has had %d answers for %d bytes", i, p.Count(), p.sent)
		}
	}
	n := 0
	for _, p := range []*process{w.old, w.new} {
		if !p.dead {
			n += p.engine.Stats().Conns
		}
	}
	if survive && left > 0 {
		w.wrong("%d connections live in no engine", left)
	}
	if survive && !(w.old.dead && newGoesOn) && n != staying {
		w.wrong("%d connections of %d are in an engine", n, staying)
	}
	if survive && !w.old.dead && !w.new.dead && w.old.state.here == w.new.state.here {
		w.wrong("the state: old %v, new %v", w.old.state.calls, w.new.state.calls)
	}
	if newGoesOn && w.new.state.text != w.old.state.text {
		w.wrong("the state has %d bytes, and not %d", len(w.new.state.text), len(w.old.state.text))
	}
	for _, p := range w.peers {
		p.Close()
	}
	for _, p := range []*process{w.old, w.new} {
		if !p.dead {
			w.Go(func() { _ = p.engine.Shutdown(context.Background()) })
		}
	}
	w.Run()
	w.Check(w.t)
	if w.complaint != "" {
		w.t.Errorf("seed %d: %s\nold: %v %+v, new: %v", w.seed, w.complaint, w.old.err, w.old.result, w.new.err)
	}
}

// Without a fault all connections move, whatever comes for them meanwhile. Those that are not at
// rest follow if they come to rest within the wait.
func TestConnectionsMove(t *testing.T) {
	followed, accepted := 0, 0
	for seed := range soak.Size(t, uint64(100), 2000) {
		w := newWorld(t, seed, sim.Lossless(), 1+int(seed%20), 40)
		if w.wait = time.Duration(seed%3) * 100 * time.Millisecond; seed%2 == 0 {
			w.whole, w.wait = true, time.Minute // slow peers take seconds
		}
		w.handOver(-1, 0, -1, 0)
		if w.old.err != nil || w.new.err != nil || w.old.restErr != nil {
			w.wrong("%+v, %v", w.old.result, w.old.restErr)
		}
		if w.whole && w.old.result.Left > 0 {
			w.wrong("%+v, although all came to rest", w.old.result)
		}
		followed += w.old.result.Moved - w.old.first.Moved
		old, next := w.old.engine.Stats(), w.new.engine.Stats()
		if w.old.result.Left != old.Conns || w.old.result.Moved+int(next.Accepts) != next.Conns {
			w.wrong("%+v, %d are in the old engine, %d in the new one", w.old.result, old.Conns, next.Conns)
		}
		accepted += int(next.Accepts)
		if w.settle(); t.Failed() {
			return
		}
	}
	if followed == 0 || accepted == 0 {
		t.Errorf("%d connections have moved behind the first ones, %d have come to the new process", followed, accepted)
	}
}

// One side fails, or is killed, at each step. No byte is lost, doubled or out of order. Each
// connection is alive in one engine, unless only a dead process had it.
func TestEveryStepMayFail(t *testing.T) {
	alone := 0
	for seed := range soak.Size(t, uint64(6), 60) {
		for _, old := range []bool{true, false} {
			for how := range faultKinds {
				for at := 0; ; at++ {
					w := newWorld(t, seed, sim.Lossless(), 1+int(seed%5), 20)
					w.whole, w.wait = true, 100*time.Millisecond
					oldAt, newAt := -1, at
					if old {
						oldAt, newAt = at, -1
					}
					w.handOver(oldAt, how, newAt, how)
					if w.settle(); t.Failed() {
						t.Fatalf("seed %d, old %v, fault %d at call %d", seed, old, how, at)
					}
					alone += max(0, w.new.alone)
					if !w.happened {
						break
					}
				}
			}
		}
	}
	if alone == 0 {
		t.Error("no connection went on whose old process had died before it had sent all")
	}
}

// Chance mixes all of that with small buffers, short writes, peers that leave meanwhile, a new
// process that has too little room or refuses, and a lack of descriptors.
func TestHandOverWorlds(t *testing.T) {
	for seed := range soak.Size(t, uint64(300), 5000) {
		rng := rand.New(rand.NewPCG(seed, 45))
		o := []sim.Options{{}, {SmallBuffers: 0.9, ShortSend: 0.9, Split: 0.9}, {LateFIN: 0.5, LateClose: 0.9},
			{Overstay: 0.3, InFlight: 0.9}}[rng.IntN(4)]
		o.Reset, o.Accept, o.Dial = -1, -1, -1
		peers := 1 + rng.IntN(30)
		room := peers + 8
		if rng.IntN(5) == 0 {
			room = 1 + rng.IntN(peers)
		}
		w := newWorld(t, seed, o, peers, room)
		if room < peers+8 { // newcomers would wait
			w.newcomers = 0
		}
		if rng.IntN(4) == 0 {
			w.timeout, w.hesitates = time.Duration(1+rng.Int64N(int64(100*time.Millisecond))),
				time.Duration(rng.Int64N(int64(100*time.Millisecond)))
		}
		w.leaving = rng.IntN(2) == 0
		w.whole, w.wait = rng.IntN(2) == 0, time.Duration(rng.Int64N(int64(200*time.Millisecond)))
		if rng.IntN(5) == 0 {
			w.refusesAt = 1 + rng.IntN(peers)
		}
		if rng.IntN(8) == 0 {
			w.newcomers = 0 // they could not be accepted
			w.AfterFunc(time.Duration(rng.Int64N(int64(100*time.Millisecond))), func() { w.ExhaustFiles(true) })
		}
		at := [2]int{-1, -1}
		at[rng.IntN(2)] = rng.IntN(16) - 6
		w.handOver(at[0], faultKind(rng.IntN(int(faultKinds))), at[1], faultKind(rng.IntN(int(faultKinds))))
		if w.settle(); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// The old process has died without a word before it learned that the new one has all. That goes on,
// unless it has stood still for so long that the old one may have gone on meanwhile, and have died
// later: what the new one has would be out of date.
func TestHaveIsNotReceived(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := newWorld(t, 1, sim.Lossless(), 1, 20)
		w.timeout = time.Second
		var err error
		w.Go(func() {
			var taken *Taken
			if taken, err = take(w.new.channel, w.new.program()); err != nil {
				return
			}
			w.old.die()
			err = taken.goOn()
		})
		w.Go(func() { // the old process, as far as the new one sees
			old := giver{Program: w.old.program(), ch: w.old.channel}
			if err := old.agree(); err != nil {
				w.wrong("agree: %v", err)
			}
			out := old.stateWriter(0)
			_, _ = out.Write([]byte("state"))
			_ = out.end()
			if late {
				w.NewParker().ParkFor(w.timeout * 3 / 4)
			}
			if err := old.offerNothing(); err != nil {
				w.wrong("offer: %v", err)
			}
		})
		w.RunFor(5 * time.Second)
		if w.complaint != "" || (err != nil) != late {
			t.Errorf("late %v: %s, %v", late, w.complaint, err)
		}
		w.new.die()
	}
}

// offerNothing says that no connections were sent.
func (g *giver) offerNothing() error { return g.send(message{kind: all, body: []byte{0}}) }

// A new process that is refused while it accepts says why.
func TestRefusedBeforeAccept(t *testing.T) {
	w := newWorld(t, 1, sim.Lossless(), 1, 20)
	var err error
	w.Go(func() {
		old := w.old.channel
		_ = old.send(message{kind: hello, body: appendItems(w.old.program().items())})
		_ = old.send(refusal(errFault))
		old.close()
		_, err = take(w.new.channel, w.new.program())
	})
	w.RunFor(time.Second)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), errFault.Error()) {
		t.Errorf("the new process says: %v", err)
	}
	w.old.die()
	w.new.die()
}
