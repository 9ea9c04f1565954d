package websocket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/web"
)

// An endpoint is one side of a connection between two of this package. Several goroutines write to
// it at once, in all ways.
type endpoint struct {
	name    string
	pair    *endpoints
	conn    *Conn
	options Options
	group   Group
	sent    map[string][]string // by writer: what a method has taken
	heard   map[string][]string // by the peer's writer
	writing int
	closed  error // OnClose's
	ends    int
	opens   int
	gone    bool // this side has ended the connection
}

type endpoints struct {
	*world
	rng    *rand.Rand
	seed   uint64
	sides  [2]*endpoint
	how    string // how the connection is to end
	faults []string
}

func (e *endpoint) fails(format string, args ...any) {
	e.pair.faults = append(e.pair.faults, e.name+": "+fmt.Sprintf(format, args...))
}

func (e *endpoint) String() string {
	o := &e.options
	return fmt.Sprint(o.Dispatch, " ", o.Overflow, " of ", o.WriteLimit, ", ", o.Compression, ", pull ", o.Pull)
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// draw draws the options of a side.
func (e *endpoint) draw() {
	r, o := e.pair.rng, &e.options
	o.Dispatch = pick(r, web.DispatchPool, web.DispatchInline, web.DispatchAuto)
	o.Compression = pick(r, Compression{}, Compression{Enabled: true, Threshold: -1},
		Compression{Enabled: true, Threshold: 300, WriteWindowBits: pick(r, 9, 15), ReadWindowBits: pick(r, 9, 15)})
	o.Overflow = pick(r, OverflowBlock, OverflowBlock, OverflowFail, OverflowDropNewest, OverflowDropOldest,
		OverflowLatest)
	o.WriteLimit = pick(r, 0, 4<<10, 64<<10)
	o.WriteTimeout, o.CloseTimeout = time.Hour, time.Minute
	o.PingInterval = pick(r, quiet, quiet, 300*time.Millisecond)
	o.Pull = r.IntN(4) == 0
	o.OnOpen = func(c *Conn) { e.opens++ }
	o.OnClose = func(_ *Conn, err error) { e.closed = err; e.ends++ }
	if !o.Pull {
		o.OnMessage = e.hears
	}
}

// hears notes a message, and waits a moment for some.
func (e *endpoint) hears(c *Conn, op Op, p []byte) {
	if e.ends > 0 && !e.options.Pull {
		e.fails("a message behind OnClose")
	}
	writer, _, ok := strings.Cut(string(p), " ")
	if !ok {
		e.fails("a message of no writer: %.40q", p)
	}
	e.heard[writer] = append(e.heard[writer], string(p))
	if e.gone && e.pair.how == "callback" {
		_ = c.Close(4000, "enough")
	}
	if e.pair.rng.IntN(50) == 0 {
		_ = c.SetOverflow(e.options.Overflow, pick(e.pair.rng, 0, 4<<10, 100_000))
	}
	if e.options.Dispatch != web.DispatchInline && e.pair.rng.IntN(10) == 0 {
		e.pair.NewParker().ParkFor(time.Duration(1+e.pair.rng.IntN(20)) * time.Millisecond)
	}
	if e.pair.rng.IntN(8) == 0 && e.options.Overflow == OverflowFail {
		e.write("echo", OpText, []byte("echo "+string(p)))
	}
}

// write sends a message in some way, and notes it if it was taken.
func (e *endpoint) write(writer string, op Op, p []byte) error {
	c, r := e.conn, e.pair.rng
	var err error
	way := r.IntN(5)
	if writer == "group" {
		way = 3
	}
	switch {
	case writer == "echo" || way == 0:
		err = c.Write(op, p)
	case way == 1:
		err = c.WriteContext(context.Background(), op, p)
	case way == 2:
		var m *Prepared
		if m, err = Prepare(op, p); err == nil {
			err = c.WritePrepared(m)
			m.Release()
		}
	case way == 3 && writer == "group":
		err = e.group.Send(op, p)
	default:
		var w io.WriteCloser
		if w, err = c.NextWriter(op); err != nil {
			break
		}
		for rest := p; len(rest) > 0 && err == nil; {
			n := min(len(rest), 1+r.IntN(5000))
			_, err = w.Write(rest[:n])
			rest = rest[n:]
		}
		if closing := w.Close(); err == nil {
			err = closing
		}
	}
	if err == nil {
		e.sent[writer] = append(e.sent[writer], string(p))
	}
	return err
}

// speak is a goroutine that writes.
func (e *endpoint) speak(writer string, messages int) {
	defer func() { e.writing-- }()
	r := e.pair.rng
	for i := range messages {
		p := fmt.Appendf(nil, "%s %d ", writer, i)
		size := pick(r, 0, 10, 500, 3000, 30_000)
		for len(p) < size {
			p = append(p, pick(r, "the same again ", string(rune('a'+r.IntN(26))))...)
		}
		switch err := e.write(writer, pick(r, OpText, OpBinary), p); {
		case err == nil:
		case errors.Is(err, myriad.ErrFull) && e.options.Overflow == OverflowFail && CloseStatus(err) == 0:
		case e.pair.how != "in order" && errors.Is(err, net.ErrClosed), e.options.Overflow == OverflowFail:
			return
		default:
			e.fails("%s: %v", writer, err)
			return
		}
		if r.IntN(4) == 0 {
			e.pair.NewParker().ParkFor(time.Duration(1+r.IntN(30)) * time.Millisecond)
		}
		if r.IntN(10) == 0 {
			_ = e.conn.Ping([]byte("?"))
		}
	}
}

// read is the goroutine of a side that pulls.
func (e *endpoint) read() {
	for {
		op, p, err := e.conn.Read(context.Background())
		if err != nil {
			return
		}
		e.hears(e.conn, op, p)
	}
}

// end ends the connection from this side.
func (e *endpoint) end() {
	e.gone = true
	switch e.pair.how {
	case "Abort":
		e.conn.Abort(nil)
	case "Group.Close":
		e.group.Close(4000, "enough")
	case "callback": // hears does
	default:
		_ = e.conn.Close(4000, "enough")
	}
}

// check compares what a side has heard with what the other one's methods have taken. Where those
// may be dropped, some are missing.
func (e *endpoint) check(peer *endpoint) {
	drops := peer.options.Overflow != OverflowBlock && peer.options.Overflow != OverflowFail
	for writer, got := range e.heard {
		rest := peer.sent[writer]
		for _, text := range got {
			at := slices.Index(rest, text)
			if at < 0 && writer == "echo" { // it was under way when the connection ended
				continue
			}
			if at < 0 || at > 0 && !drops {
				e.fails("%s: %.30q is not what follows, of %d left", writer, text, len(rest))
				break
			}
			rest = rest[at+1:]
		}
		whole := e.pair.how == "in order" || e.pair.how == "Close" && peer.gone && writer != "group"
		if len(rest) > 0 && whole && !drops {
			e.fails("%d of the %d messages of %s are missing", len(rest), len(peer.sent[writer]), writer)
		}
	}
	if e.opens != 1 || e.ends != 1 {
		e.fails("%d calls of OnOpen, %d of OnClose (%v)", e.opens, e.ends, e.closed)
	}
	if e.pair.how == "in order" && CloseStatus(e.closed) != 4000 {
		e.fails("ended by %v", e.closed)
	}
}

// All ways to write, read, limit, compress and end at once. What a method has taken comes once, in
// the order of its writer, and before a close frame.
func TestEverythingTogether(t *testing.T) {
	for seed := range soak.Size(t, uint64(100), 5000) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runTogether(t, seed) })
	}
}

func runTogether(t *testing.T, seed uint64) {
	p := &endpoints{rng: rand.New(rand.NewPCG(seed, 9)), seed: seed}
	for i, name := range []string{"server", "client"} {
		p.sides[i] = &endpoint{name: name, pair: p, sent: map[string][]string{}, heard: map[string][]string{}}
		p.sides[i].draw()
	}
	server, client := p.sides[0], p.sides[1]
	opened := server.options.OnOpen
	server.options.OnOpen = func(c *Conn) {
		server.conn = c
		opened(c)
		if _, err := server.group.Join(c); err != nil {
			server.fails("%v", err)
		}
	}
	faults := sim.Lossless()
	faults.SlowPeer = -1
	p.world = newWorld(t, seed, faults, myriad.Config{WriteLimit: 32 << 10}, Handler(&server.options))
	p.how = pick(p.rng, "in order", "in order", "Close", "both", "Abort", "callback", "Group.Close")
	o := &DialOptions{Random: seeded(seed)}
	copyOptions(&o.Options, &client.options)
	o.Engine = p.e
	var err error
	if client.conn, _, err = Dial(context.Background(), "ws://"+p.ln.Addr().String(), o); err != nil {
		t.Fatal(err)
	}
	if !p.RunUntil(func() bool { return server.conn != nil && client.opens > 0 }) {
		t.Fatal("not opened")
	}
	for _, e := range p.sides {
		if e.options.Pull {
			p.Go(e.read)
		}
		if e == server && e.options.Overflow != OverflowFail && p.rng.IntN(2) == 0 {
			e.writing++
			p.Go(func() { e.speak("group", 20) })
		}
		for i := range 1 + p.rng.IntN(3) {
			e.writing++
			p.Go(func() { e.speak(fmt.Sprint(e.name, i), 5+p.rng.IntN(30)) })
		}
	}
	silent := func() bool { return server.writing+client.writing == 0 }
	if p.how != "in order" {
		p.RunFor(time.Duration(p.rng.IntN(500)) * time.Millisecond)
	} else if !p.RunUntil(silent) {
		t.Fatalf("seed %d: the writers wait for ever", seed)
	} else {
		p.RunFor(10 * time.Second)
	}
	ender := p.sides[p.rng.IntN(2)]
	if p.how == "Group.Close" {
		ender = server
	}
	p.Go(ender.end)
	if p.how == "both" {
		for _, e := range p.sides {
			if e != ender {
				p.Go(e.end)
			}
		}
	}
	p.RunFor(3 * time.Minute)
	if p.how == "callback" { // no message may have come
		p.Go(func() { _ = ender.conn.Close(4000, "") })
		p.RunFor(3 * time.Minute)
	}
	if !silent() {
		t.Errorf("seed %d: writers wait behind the end", seed)
	}
	server.check(client)
	client.check(server)
	if n := p.e.Stats().Conns; n != 0 {
		t.Errorf("seed %d: %d connections are left", seed, n)
	}
	slices.Sort(p.faults)
	for _, f := range slices.Compact(p.faults) {
		t.Errorf("seed %d, %s by the %s; server %v; client %v: %s", seed, p.how, ender.name, server, client, f)
	}
	p.stop()
}

// copyOptions copies what draw has set.
func copyOptions(to, from *Options) {
	to.Dispatch, to.Compression, to.Pull = from.Dispatch, from.Compression, from.Pull
	to.Overflow, to.WriteLimit, to.WriteTimeout = from.Overflow, from.WriteLimit, from.WriteTimeout
	to.CloseTimeout, to.PingInterval = from.CloseTimeout, from.PingInterval
	to.OnOpen, to.OnClose, to.OnMessage = from.OnOpen, from.OnClose, from.OnMessage
}
