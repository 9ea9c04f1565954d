package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

// seedsEnv names the environment variable for the number of worlds in which the whole engine is
// simulated.
const seedsEnv = "MYRIAD_SIM_SEEDS"

// firstSeedEnv names that for the first of them, to repeat one that has failed.
const firstSeedEnv = "MYRIAD_SIM_FIRST"

func number(env string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(env), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// Everything an engine does, at once, in worlds of all kinds: handlers that echo, pump, wait, hand
// over, detach, dial, end their goroutine; peers that send in pieces, stop reading, half close,
// reset; limits that are reached, and descriptors that run out.
func TestSimulatedEngine(t *testing.T) {
	first := number(firstSeedEnv, 0)
	for seed := first; seed < first+number(seedsEnv, soak.Size(t, uint64(60), 500)); seed++ {
		if simulateEngine(t, seed); t.Failed() {
			t.Fatalf("%s=%d %s=1 go test -run %s . repeats it", firstSeedEnv, seed, seedsEnv, t.Name())
		}
	}
}

// A party is one connection of such a run: its peer, and what its handler has seen.
type party struct {
	*rig
	kind    string
	layered bool
	peer    *sim.Peer // of those that were accepted
	in, out xor

	sent      []byte // by the peer, in plain
	over      bool   // the peer sends no more
	left      bool   // nor does it read
	got       []byte // by the handler
	wrote     []byte // by the handler
	opened    int
	ended     int // times Closed, or detached
	ends      int // times Ended
	late      int // calls before Opened or after the last
	full      bool
	switching bool // SetHandler has been called
	closing   bool // the handler has called Close or Abort
	err       error
}

// A rig is a run.
type rig struct {
	*simulation
	rng     *rand.Rand
	echo    net.Addr // of a listener that echoes
	parties []*party
	dials   int // that have not ended
}

var kinds = []string{"echo", "pump", "pausing", "timed", "switch", "detach", "abort", "close", "posted", "mortal",
	"halfclose", "dialer"}

func simulateEngine(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 4))
	o := []sim.Options{sim.Lossless(), {}, {Reset: 0.3, Accept: 0.2, Dial: 0.2},
		{SmallBuffers: 0.9, ShortSend: 0.9, Split: 0.9}}[rng.IntN(4)]
	cfg := myriad.Config{
		Loops: 1 + rng.IntN(3), ReadBuffer: 1 + rng.IntN(3000), WriteLimit: 1 + rng.IntN(5000), MaxWrite: 9000,
		LingerTimeout: time.Duration(1+rng.IntN(5000)) * time.Millisecond, Mailbox: 1 + rng.IntN(50),
	}
	if rng.IntN(3) == 0 {
		cfg.MaxConns = 4 + rng.IntN(20)
	}
	if rng.IntN(4) == 0 {
		cfg.AcceptRate = 20 + rng.IntN(1000)
	}
	r := &rig{simulation: simulate(t, seed, o, cfg), rng: rng}
	ln, err := r.e.Listen("tcp", "127.0.0.1:0", newEchoAll())
	if err != nil {
		t.Fatal(err)
	}
	r.echo = ln.Addr()
	for range 4 + rng.IntN(20) {
		r.invite()
	}
	for range rng.IntN(60) {
		r.RunFor(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
		r.parties[rng.IntN(len(r.parties))].disturb()
	}
	early := rng.IntN(3) == 0 // the engine ends while all of it goes on
	if !early {
		for _, p := range r.parties {
			p.peer.Resume()
			p.peer.CloseWrite()
		}
		r.RunFor(time.Hour)
	}
	r.finish()
	for i, p := range r.parties {
		p.check(i, early)
	}
	if r.dials != 0 {
		t.Errorf("seed %d: %d calls of Dial have not returned", seed, r.dials)
	}
}

// invite listens for one connection, and has a peer dial.
func (r *rig) invite() {
	p := &party{rig: r, kind: kinds[r.rng.IntN(len(kinds))], layered: r.rng.IntN(3) == 0}
	var h myriad.Handler = p
	if p.layered {
		h = withXOR(p)
	}
	ln, err := r.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		r.t.Fatal(err)
	}
	p.peer = r.Dial(ln.Addr())
	p.send()
	r.parties = append(r.parties, p)
}

func (p *party) send() {
	piece := pattern(1 + p.rng.IntN(4000))
	p.sent = append(p.sent, piece...)
	if p.layered {
		piece = p.out.apply(piece)
	}
	p.peer.Write(piece)
}

// disturb is what a peer does now and then.
func (p *party) disturb() {
	switch p.rng.IntN(12) {
	case 0:
		p.over, p.left = true, true
		p.peer.Reset()
	case 1:
		p.over, p.left = true, true
		p.peer.Close()
	case 2:
		p.over = true
		p.peer.CloseWrite()
	case 3, 4:
		p.peer.StopReading()
	case 5, 6:
		p.peer.Resume()
	default:
		if !p.over {
			p.send()
		}
	}
}

func (p *party) note(c *myriad.Conn) {
	if p.opened == 0 || p.ended > 0 || p.closing {
		p.late++
	}
	if c.Loop().Engine() != p.e {
		p.late++
	}
}

func (p *party) Opened(c *myriad.Conn) {
	if p.switching {
		p.switching = false
		return
	}
	p.opened++
	switch p.kind {
	case "timed":
		c.SetTimer(time.Duration(1+p.rng.IntN(300)) * time.Millisecond)
	case "pump":
		p.pump(c)
	case "posted":
		p.Go(func() {
			for range 5 {
				p.write(c, pattern(1+p.rng.IntN(300)))
			}
			c.Notify()
		})
	case "dialer":
		p.dial()
	}
}

// dial connects to the echo from a goroutine of the world, and talks to it blocking.
func (p *party) dial() {
	p.dials++
	p.Go(func() {
		defer func() { p.dials-- }()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		h, nc := myriad.Stream(1 + p.rng.IntN(500))
		if _, err := p.e.Dial(ctx, "tcp", p.echo.String(), h); err != nil {
			return
		}
		msg := pattern(1 + p.rng.IntN(3000))
		p.Go(func() {
			_, _ = nc.Write(msg)
			_ = nc.(interface{ CloseWrite() error }).CloseWrite()
		})
		got, err := io.ReadAll(nc)
		if !bytes.HasPrefix(msg, got) {
			p.t.Errorf("seed %d: a stream read %d bytes that it had not sent, %v", p.Seed(), len(got), err)
		}
		_ = nc.Close()
	})
}

// write notes what the conn has taken.
func (p *party) write(c *myriad.Conn, b []byte) {
	n, err := c.Write(b)
	p.wrote = append(p.wrote, b[:n]...)
	switch {
	case err == nil && n == len(b), n == 0 && errors.Is(err, myriad.ErrClosed),
		n == 0 && errors.Is(err, myriad.ErrTooLarge):
	case n == 0 && errors.Is(err, myriad.ErrFull):
		p.full = true
	default:
		p.t.Errorf("seed %d: Write of %d bytes took %d: %v", p.Seed(), len(b), n, err)
	}
}

func (p *party) pump(c *myriad.Conn) {
	for p.full = false; !p.full && len(p.wrote) < 20_000; {
		p.write(c, pattern(1+p.rng.IntN(2000)))
		if c.Queued() > max(9000, 5000)*2 {
			p.t.Errorf("seed %d: %d bytes are queued", p.Seed(), c.Queued())
		}
	}
	if !p.full {
		p.end(c, (*myriad.Conn).Close)
	}
}

func (p *party) end(c *myriad.Conn, how func(c *myriad.Conn) error) {
	p.closing = true
	_ = how(c)
}

func (p *party) Received(c *myriad.Conn, b []byte) {
	p.note(c)
	p.got = append(p.got, b...)
	if cap(b) != len(b) || len(b) == 0 {
		p.t.Errorf("seed %d: Received %d bytes with capacity %d", p.Seed(), len(b), cap(b))
	}
	switch p.kind {
	case "pump":
		return
	case "pausing":
		c.Pause()
		c.SetTimer(time.Duration(1+p.rng.IntN(100)) * time.Millisecond)
	case "abort":
		p.end(c, func(c *myriad.Conn) error { c.Abort(errOnPurpose); return nil })
		return
	case "close":
		p.write(c, b)
		p.end(c, (*myriad.Conn).Close)
		return
	case "switch":
		p.kind, p.switching = "echo", true
		half := len(b) / 2
		p.got = p.got[:len(p.got)-len(b)+half]
		c.SetHandler(p, bytes.Clone(b[half:]))
		b = b[:half]
	case "detach":
		p.detach(c)
	case "mortal":
		p.closing = true
		defer runtime.Goexit()
	}
	p.write(c, b)
}

var errOnPurpose = errors.New("on purpose")

// detach takes the connection out, and ends it there.
func (p *party) detach(c *myriad.Conn) {
	p.kind = "detaching"
	c.Detach(func(nc net.Conn, unread []byte, err error) {
		if err != nil {
			return // Closed follows, or it goes on
		}
		p.ended++
		p.got = append(p.got, unread...)
		p.Go(func() {
			_ = nc.SetDeadline(p.Now().Add(time.Minute))
			rest, _ := io.ReadAll(nc)
			p.got = append(p.got, rest...)
			_ = nc.Close()
		})
	})
}

func (p *party) Ended(c *myriad.Conn) {
	p.note(c)
	if p.ends++; p.ends > 1 {
		p.late++
	}
	switch p.kind {
	case "pump":
	case "halfclose":
		p.write(c, []byte("the last word"))
		_ = c.CloseWrite()
	default:
		p.end(c, (*myriad.Conn).Close)
	}
}

func (p *party) Drained(c *myriad.Conn) {
	p.note(c)
	if p.kind == "pump" {
		p.pump(c)
	}
}

func (p *party) Expired(c *myriad.Conn) {
	p.note(c)
	switch p.kind {
	case "pausing":
		c.Resume()
	case "timed":
		p.end(c, (*myriad.Conn).Close)
	}
}

func (p *party) Notified(c *myriad.Conn) { p.note(c) }

func (p *party) Stopping(c *myriad.Conn) {
	p.note(c)
	p.end(c, (*myriad.Conn).Close)
}

func (p *party) Closed(_ *myriad.Conn, err error) {
	if p.opened == 0 || p.ended > 0 {
		p.late++
	}
	p.ended++
	p.err = err
}

func (p *party) check(i int, early bool) {
	who := fmt.Sprintf("seed %d: party %d, %s, layered %v", p.Seed(), i, p.kind, p.layered)
	received := p.peer.Received()
	if p.layered {
		received = p.in.apply(received)
	}
	switch {
	case p.opened > 1 || p.opened != p.ended || p.late > 0:
		p.t.Errorf("%s: opened %d times, closed %d times, %d calls out of turn", who, p.opened, p.ended, p.late)
	case !bytes.HasPrefix(p.sent, p.got):
		p.t.Errorf("%s: the handler was given %d bytes that are no prefix of the %d sent", who, len(p.got), len(p.sent))
	case !bytes.HasPrefix(p.wrote, received):
		p.t.Errorf("%s: the peer received %d bytes that are no prefix of the %d written", who, len(received),
			len(p.wrote))
	case p.opened == 1 && p.err == nil && !early && p.kind == "echo" && !p.full && !p.left && !p.peer.Faulted() &&
		(len(p.got) < len(p.sent) || len(received) < len(p.got)):
		p.t.Errorf("%s: %d bytes sent, %d heard, %d echoed, without a fault", who, len(p.sent), len(p.got),
			len(received))
	case p.opened == 0 && !early && !p.peer.Faulted() && p.peer.Err() == nil && p.e.Limits().Shed == 0 &&
		!p.peer.Closed():
		p.t.Errorf("%s: never accepted", who)
	}
}
