package drivertest

import (
	"bytes"
	"math/rand/v2"
)

var walkCases = []testCase{
	{"RandomWalk", randomWalk},
}

const (
	walks        = 4
	walkSteps    = 600
	walkers      = 6
	walkQueue    = 1 << 20 // bytes queued above which a walker sends no more
	walkMostSend = 20_000
)

// A walker is a connection and what went into it on both sides.
type walker struct {
	p         Peer
	c         *Conn
	fromPeer  []byte
	fromOwner []byte
	peerFIN   bool
	ownerFIN  bool
	broken    bool // it was closed or reset: not everything arrives
}

// Both sides of some connections do what comes to a mind that is not quite made up. Nothing may get
// lost or out of order, and the checker watches the rest.
func randomWalk(b *bed) {
	b.start()
	for seed := range uint64(walks) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ws := make([]*walker, walkers)
		for range walkSteps {
			i := rng.IntN(len(ws))
			if ws[i] == nil || ws[i].c.Over {
				b.judge(ws[i])
				ws[i] = b.newWalker()
			}
			ws[i].step(rng)
			if rng.IntN(3) == 0 {
				b.poll(0)
			}
		}
		for _, w := range ws {
			b.bringHome(w)
		}
	}
}

func (b *bed) newWalker() *walker {
	b.Helper()
	p, c := b.connect()
	return &walker{p: p, c: c}
}

// step does one thing on one side.
func (w *walker) step(rng *rand.Rand) {
	switch rng.IntN(40) {
	case 0:
		w.p.CloseWrite()
		w.peerFIN = true
	case 1:
		w.c.CloseWrite()
		w.ownerFIN = true
	case 2:
		w.p.StopReading()
	case 3, 4:
		w.p.Resume()
	case 5, 6, 7:
		w.c.Pause()
	case 8, 9, 10, 11:
		w.c.Resume()
	case 12:
		w.end(rng.IntN(6))
	default:
		w.write(rng)
	}
}

// end breaks the connection, in three of six cases.
func (w *walker) end(how int) {
	switch how {
	case 0:
		w.broken = true
		w.p.Reset()
	case 1:
		w.broken = true
		w.c.Abort()
	case 2:
		w.broken = true
		w.c.Close()
	}
}

func (w *walker) write(rng *rand.Rand) {
	n := rng.IntN(walkMostSend)
	if rng.IntN(2) == 0 {
		n = rng.IntN(20)
	}
	if rng.IntN(2) == 0 && !w.peerFIN {
		p := pattern(n, byte(len(w.fromPeer)))
		w.fromPeer = append(w.fromPeer, p...)
		w.p.Write(p)
	} else if !w.ownerFIN && w.c.Left() < walkQueue {
		p := pattern(n, byte(len(w.fromOwner)))
		w.fromOwner = append(w.fromOwner, p...)
		w.c.Send(p)
	}
}

// bringHome ends the walk: both sides end in order, unless the connection is broken, and everything
// must have arrived.
func (b *bed) bringHome(w *walker) {
	b.Helper()
	if w == nil {
		return
	}
	w.p.Resume()
	w.c.Resume()
	if !w.broken {
		w.p.CloseWrite()
		w.c.CloseWrite()
		b.until("both sides of a walk have ended",
			func() bool { return w.p.Ended() && w.c.Ended || w.c.Over || w.p.Err() != nil })
	} else {
		w.c.Close()
		w.p.Close()
	}
	b.judge(w)
	if !w.c.Over {
		b.until("everything is reported sent", func() bool { return w.c.Left() == 0 || w.broken })
		w.c.Close()
	}
	b.until("the last event", func() bool { return w.c.Over })
}

func (b *bed) judge(w *walker) {
	b.Helper()
	switch {
	case w == nil:
	case w.broken:
		if !bytes.HasPrefix(w.fromPeer, w.c.In) {
			b.Fatalf("of a broken connection %d bytes were received that are no prefix of the %d sent", len(w.c.In),
				len(w.fromPeer))
		}
		if got := w.p.Received(); !bytes.HasPrefix(w.fromOwner, got) {
			b.Fatalf("the peer of a broken connection received %d bytes that are no prefix of the %d sent", len(got),
				len(w.fromOwner))
		}
	case w.c.Over:
		b.Fatalf("a connection that nobody broke is over: %v", w.c)
	default:
		b.same("received", w.c.In, w.fromPeer)
		b.same("the peer received", w.p.Received(), w.fromOwner)
	}
}
