package enginetest

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

// Everything that can be called, at every place where it can be called, in an order that chance
// makes: from each callback, from tasks whose loop may have been handed off, from functions on the
// loop, from other goroutines; callbacks that panic and that end their goroutine; connections that
// hibernate. Whatever comes of that, no callback comes twice or too late, bytes keep their order,
// what was asked for has happened when the world is at rest, and nothing is left.
func TestSimulatedCalls(t *testing.T) {
	first := number(firstSeedEnv, 0)
	file := tempFile(t, pattern(3000))
	for seed := first; seed < first+number(seedsEnv, soak.Size(t, uint64(60), 500)); seed++ {
		if simulateCalls(t, seed, file); t.Failed() {
			t.Fatalf("%s=%d %s=1 go test -run %s . repeats it", firstSeedEnv, seed, seedsEnv, t.Name())
		}
	}
}

// A crowdOf souls is one run.
type crowdOf struct {
	*simulation
	rng   *rand.Rand
	file  *os.File
	souls []*soul
	at    map[string]*soul // by the peer's address
	waker *soulWaker
	quiet bool // the world comes to rest: nothing new is begun
}

// A soul is one connection, its handler, and what is known of it. One Waker serves all of them.
type soul struct {
	*crowdOf
	i       int
	layered bool
	peer    *sim.Peer
	out     xor
	c       *myriad.Conn // nil: it is not open, or hibernates

	sent, got, wrote []byte
	left             bool // the peer has reset, or closed: it need not have had anything
	opened, ended    int
	switching        bool
	closing          bool // Close, Abort or a failure: only Closed may follow
	detaching        bool
	paused           bool
	finished         bool // CloseWrite
	heardEnd         bool
	calledAgain      bool // of that end, which has come before it was set: Ended is pending
	notes, full      bool // Notified, Drained are pending
	armed            bool // Expired is
	tasks            int
	elsewhere        int // goroutines that may know c
	err              error
	wrong            []string
}

func simulateCalls(t *testing.T, seed uint64, file *os.File) {
	rng := rand.New(rand.NewPCG(seed, 11))
	o := []sim.Options{sim.Lossless(), {}, {Reset: 0.3, Accept: 0.2, Overstay: 0.3},
		{SmallBuffers: 0.9, ShortSend: 0.9, Split: 0.9, Overstay: 0.2}}[rng.IntN(4)]
	o.NoDetach = rng.IntN(5) == 0
	cfg := myriad.Config{
		Loops: 1 + rng.IntN(2), ReadBuffer: 1 + rng.IntN(3000), WriteLimit: 1 + rng.IntN(5000), MaxWrite: 9000,
		LingerTimeout: time.Duration(1+rng.IntN(5000)) * time.Millisecond,
	}
	if rng.IntN(3) == 0 {
		cfg.MaxConns = 2 + rng.IntN(10)
	}
	if rng.IntN(3) == 0 {
		cfg.AcceptRate = 20 + rng.IntN(1000)
	}
	k := &crowdOf{simulation: simulate(t, seed, o, cfg), rng: rng, file: file, at: map[string]*soul{}}
	k.waker = &soulWaker{k}
	for i := range 3 + rng.IntN(15) {
		k.join(i)
	}
	for range rng.IntN(60) {
		k.RunFor(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
		s := k.souls[rng.IntN(len(k.souls))]
		if s.disturb(); rng.IntN(3) == 0 {
			s.Go(s.fromElsewhere)
		}
	}
	if rng.IntN(4) > 0 {
		k.rest()
	}
	k.quiet = true
	k.finish()
	if st, open := k.e.Stats(), k.e.Limits().Open; st.Conns != 0 || st.Hibernating != 0 || st.Queued != 0 || open != 0 {
		t.Errorf("seed %d: in the end %d conns, %d that hibernate, %d bytes, %d open", seed, st.Conns, st.Hibernating,
			st.Queued, open)
	}
	for _, s := range k.souls {
		s.check()
	}
}

// join listens for one connection, and has a peer dial.
func (k *crowdOf) join(i int) {
	s := &soul{crowdOf: k, i: i, layered: k.rng.IntN(4) == 0}
	var h myriad.Handler = s
	if s.layered {
		h = withXOR(s)
	}
	ln, err := k.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		k.t.Fatal(err)
	}
	s.peer = k.Dial(ln.Addr())
	s.send()
	k.souls = append(k.souls, s)
}

func (s *soul) send() {
	piece := pattern(1 + s.rng.IntN(2000))
	s.sent = append(s.sent, piece...)
	if s.layered {
		piece = s.out.apply(piece)
	}
	s.peer.Write(piece)
}

func (s *soul) disturb() {
	switch s.rng.IntN(20) {
	case 0:
		s.left = true
		s.peer.Reset()
	case 1:
		s.left = true
		s.peer.Close()
	case 2, 3:
		s.peer.StopReading()
	case 4, 5:
		s.peer.Resume()
	default:
		if !s.left {
			s.send()
		}
	}
}

// rest lets everything come to an end that will, and looks for what was forgotten.
func (k *crowdOf) rest() {
	k.quiet = true
	k.RunFor(time.Minute)
	for _, s := range k.souls {
		s.peer.Resume()
		if s.c != nil {
			_ = s.c.Loop().Do(func() {
				if s.c != nil {
					s.paused = false
					s.c.Resume()
				}
			})
		}
	}
	k.RunFor(time.Minute)
	for _, s := range k.souls {
		switch {
		case s.tasks != 0:
			s.fault("%d tasks have not returned", s.tasks)
		case s.opened == 0 || s.ended > 0:
		case s.closing:
			s.fault("it is closing still")
		case s.notes || s.armed || s.switching || s.calledAgain && !s.paused && !s.detaching:
			s.fault("notes %v, armed %v, switching %v, to hear of the end again %v", s.notes, s.armed, s.switching,
				s.calledAgain)
		case s.peer.Faulted() || s.left || s.c == nil:
		case s.full || s.c.Queued() > 0 || s.detaching:
			s.fault("full %v, queued %d, detaching %v", s.full, s.c.Queued(), s.detaching)
		case len(s.received()) != len(s.wrote) || len(s.got) != len(s.sent):
			s.fault("%d of %d bytes sent, %d of %d heard", len(s.received()), len(s.wrote), len(s.got), len(s.sent))
		}
	}
}

func (s *soul) received() []byte {
	if s.layered {
		return new(xor).apply(s.peer.Received())
	}
	return s.peer.Received()
}

func (s *soul) fault(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

func (s *soul) check() {
	received := s.received()
	switch {
	case s.opened != s.ended || s.opened > 1:
		s.fault("opened %d times, ended %d times", s.opened, s.ended)
	case !bytes.HasPrefix(s.sent, s.got):
		s.fault("the handler was given %d bytes that are no prefix of the %d sent", len(s.got), len(s.sent))
	case !bytes.HasPrefix(s.wrote, received):
		s.fault("the peer has %d bytes that are no prefix of the %d written", len(received), len(s.wrote))
	case s.opened == 1 && s.err == nil && s.peer.Ended() && s.peer.Err() == nil && !s.left && !s.peer.Faulted() &&
		len(received) < len(s.wrote):
		s.fault("the peer has %d of %d bytes and an orderly end", len(received), len(s.wrote))
	case s.tasks != 0:
		s.fault("%d tasks have not returned", s.tasks)
	}
	for _, text := range s.wrong {
		s.t.Errorf("seed %d: conn %d, layered %v: %s", s.Seed(), s.i, s.layered, text)
	}
}

// callback records a callback, and does something in it.
func (s *soul) callback(what string, c *myriad.Conn) {
	if s.opened == 0 || s.ended > 0 || s.closing || s.switching || s.c != c {
		s.fault("%s: opened %d times, ended %d times, closing %v, switching %v, same conn %v", what, s.opened, s.ended,
			s.closing, s.switching, s.c == c)
		return
	}
	s.act(true)
}

// act does something that a handler may do, most often nothing. inside: in a callback of the conn.
func (s *soul) act(inside bool) {
	for !s.quiet && s.c != nil && !s.closing && s.ended == 0 && s.rng.IntN(3) > 0 {
		if s.rng.IntN(4) == 0 {
			s.fromAnywhere()
		} else {
			s.onLoop(inside)
		}
	}
}

// onLoop is one of the calls that the loop alone may make.
func (s *soul) onLoop(inside bool) {
	c, l := s.c, s.c.Loop()
	switch s.rng.IntN(22) {
	case 0:
		if !s.detaching {
			s.paused = true
		}
		c.Pause()
	case 1, 2:
		s.paused = false
		c.Resume()
	case 3:
		s.armed = true
		c.SetTimer(time.Duration(1+s.rng.IntN(300)) * time.Millisecond)
	case 4:
		s.armed = false
		c.SetTimer(0)
	case 5, 6, 7:
		if inside {
			s.tasks++
			c.RunInline(&soulTask{soul: s, c: c})
		}
	case 8:
		l.Later(func() { s.act(false) })
	case 9:
		l.Conns(s.rng.IntN(5), s.rng.IntN(10), func(c *myriad.Conn) { _, _ = c.Age(), c.State() })
	case 10:
		l.WakeAll(func(myriad.Waker) bool { return s.rng.IntN(2) == 0 })
	case 11, 12, 13:
		l.Later(s.hibernate)
	case 14:
		if other := s.souls[s.rng.IntN(len(s.souls))]; other.c != nil && other.c.Loop() == l {
			other.act(false)
		}
	case 15:
		if !s.switching && !s.detaching {
			s.switching = true
			c.SetHandler(s, nil)
		}
	case 16:
		if s.rng.IntN(3) == 0 && !s.detaching && !s.finished {
			s.detach(c)
		}
	case 17:
		if inside && s.rng.IntN(4) == 0 {
			s.closing = true
			if s.rng.IntN(2) == 0 {
				runtime.Goexit()
			}
			panic("on purpose")
		}
	}
}

// fromAnywhere is one of the calls that any goroutine may make.
func (s *soul) fromAnywhere() {
	c := s.c
	switch s.rng.IntN(14) {
	case 0, 1, 2:
		s.write(c, 1+s.rng.IntN(300))
	case 3:
		s.write(c, 1+s.rng.IntN(8000))
	case 4:
		n := 1 + s.rng.IntN(3000)
		if c.WriteFile(s.file, 0, int64(n)) == nil {
			s.wrote = append(s.wrote, pattern(3000)[:n]...)
		}
	case 5, 6:
		s.notes = true
		c.Notify()
	case 7:
		if c.SetDeadline(s.Now().Add(time.Duration(s.rng.IntN(300))*time.Millisecond)) == nil {
			s.armed = true
		}
	case 8:
		c.SetWriteLimit(s.rng.IntN(5000))
	case 9, 10:
		_ = c.Loop().Do(func() { s.act(false) })
	case 11:
		if s.rng.IntN(3) == 0 && c.CloseWrite() == nil {
			s.finished = true
		}
	case 12:
		if s.rng.IntN(3) == 0 {
			s.closing = true
			_ = c.Close()
		}
	case 13:
		if s.rng.IntN(6) == 0 {
			s.closing = true
			c.Abort(errOnPurpose)
		}
	}
}

func (s *soul) write(c *myriad.Conn, n int) {
	p := pattern(n)
	switch _, err := c.Write(p); err {
	case nil:
		s.wrote = append(s.wrote, p...)
	case myriad.ErrFull:
		s.full = true
	}
}

// fromElsewhere is a goroutine that knows the conn.
func (s *soul) fromElsewhere() {
	s.elsewhere++
	defer func() { s.elsewhere-- }()
	for !s.quiet && s.rng.IntN(8) > 0 {
		if s.c != nil && !s.closing && s.ended == 0 {
			s.fromAnywhere()
		}
		s.NewParker().ParkFor(time.Duration(1 + s.rng.IntN(int(5*time.Millisecond))))
	}
}

func (s *soul) hibernate() {
	c := s.c
	if c == nil || s.closing || s.switching || s.tasks > 0 || s.ended > 0 {
		return
	}
	if c.Hibernate(s.waker, s.elsewhere == 0 && s.rng.IntN(2) == 0) {
		s.c = nil
		if s.notes || s.full || s.detaching || s.paused && !s.heardEnd {
			s.fault("it hibernates: notes %v, full %v, detaching %v, paused %v", s.notes, s.full, s.detaching, s.paused)
		}
	}
}

// detach takes the connection out, and ends it there.
func (s *soul) detach(c *myriad.Conn) {
	s.detaching = true
	c.Detach(func(nc net.Conn, unread []byte, err error) {
		if s.detaching = false; err != nil {
			return
		}
		s.ended++
		s.c, s.err = nil, io.ErrClosedPipe
		s.got = append(s.got, unread...)
		s.Go(func() {
			_ = nc.SetDeadline(s.Now().Add(time.Second))
			rest, _ := io.ReadAll(nc)
			s.got = append(s.got, rest...)
			_ = nc.Close()
		})
	})
}

func (s *soul) Opened(c *myriad.Conn) {
	if s.switching {
		s.switching, s.calledAgain = false, s.heardEnd
	} else {
		s.opened++
		s.c, s.at[c.RemoteAddr().String()] = c, s
	}
	s.callback("Opened", c)
}

func (s *soul) Received(c *myriad.Conn, p []byte) {
	s.got = append(s.got, p...)
	if s.heardEnd {
		s.fault("bytes behind the end")
	}
	s.callback("Received", c)
}

func (s *soul) Ended(c *myriad.Conn) {
	if s.heardEnd && !s.calledAgain {
		s.fault("Ended twice")
	}
	s.heardEnd, s.calledAgain = true, false
	s.callback("Ended", c)
	if s.c == c && s.rng.IntN(2) == 0 {
		s.closing = true
		_ = c.Close()
	}
}

func (s *soul) Drained(c *myriad.Conn) { s.full = false; s.callback("Drained", c) }

func (s *soul) Expired(c *myriad.Conn) { s.armed = false; s.callback("Expired", c) }

func (s *soul) Notified(c *myriad.Conn) { s.notes = false; s.callback("Notified", c) }

func (s *soul) Stopping(c *myriad.Conn) {
	s.callback("Stopping", c)
	s.closing = true
	_ = c.Close()
}

func (s *soul) Closed(c *myriad.Conn, err error) {
	if s.opened != 1 || s.ended > 0 || s.c != nil && s.c != c {
		s.fault("Closed: opened %d times, ended %d times", s.opened, s.ended)
	}
	s.ended++
	s.c, s.err = nil, err
}

// A soulWaker is the Waker of all.
type soulWaker struct{ k *crowdOf }

func (w *soulWaker) Wake(c *myriad.Conn, _ myriad.Handler) myriad.Handler {
	s := w.k.at[c.RemoteAddr().String()]
	if s.c != nil {
		s.fault("woken while it is awake")
	}
	s.c = c
	s.callback("Wake", c)
	return s
}

func (w *soulWaker) Opened(*myriad.Conn)               { panic("Opened of a Waker") }
func (w *soulWaker) Received(c *myriad.Conn, _ []byte) { panic("Received of a Waker") }

func (w *soulWaker) Closed(c *myriad.Conn, err error) {
	w.k.at[c.RemoteAddr().String()].Closed(c, err)
}

// A soulTask runs once.
type soulTask struct {
	*soul
	c                      *myriad.Conn
	runs, overtakens, left int
}

func (g *soulTask) Run(h myriad.Handoff) {
	if g.runs++; g.runs > 1 || g.left > 0 {
		g.fault("a task runs %d times, %d of these after it has returned", g.runs, g.left)
	}
	for !g.quiet && g.rng.IntN(3) > 0 {
		switch g.rng.IntN(10) {
		case 0:
			h.HandOff()
		case 1:
			g.NewParker().ParkFor(time.Duration(1 + g.rng.IntN(int(5*time.Millisecond))))
		case 2:
			if g.rng.IntN(5) == 0 && g.soul.c == g.c {
				g.closing = true
				panic("on purpose")
			}
		case 3:
			if g.rng.IntN(5) == 0 {
				runtime.Goexit()
			}
		default:
			if g.soul.c == g.c && !g.closing && g.ended == 0 {
				g.fromAnywhere()
			}
		}
	}
}

func (g *soulTask) Overtaken(bool) {
	if g.overtakens++; g.overtakens > 1 { // before Run, too, if the goroutine was held up there
		g.fault("a task is overtaken %d times in %d runs", g.overtakens, g.runs)
	}
	g.act(g.soul.c == g.c)
}

func (g *soulTask) Returned(kept bool) {
	if g.left++; g.left > 1 || g.runs != 1 || kept && g.overtakens > 0 {
		g.fault("a task returns %d times after %d runs, kept %v, overtaken %d times", g.left, g.runs, kept,
			g.overtakens)
	}
	if g.tasks--; kept {
		g.act(g.soul.c == g.c)
	}
}
