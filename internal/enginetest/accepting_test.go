package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/driver/std"
)

// A doorkeeper is an echo that counts its open connections, over all listeners, and closes when its
// peer ends.
type doorkeeper struct {
	mu       sync.Mutex
	now      func() time.Time
	in, most int
	times    []time.Time // of openings
	names    []string    // of the handlers opened
}

type doorkept struct {
	*doorkeeper
	name string
}

func (k doorkept) Opened(*myriad.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.in++
	k.most = max(k.most, k.in)
	k.names = append(k.names, k.name)
	if k.now != nil {
		k.times = append(k.times, k.now())
	}
}

func (k doorkept) Received(c *myriad.Conn, p []byte) { c.Write(p) }

func (k doorkept) Closed(*myriad.Conn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.in--
}

// visit has n peers say something to a listener, take the answer and go.
func (s *simulation) visit(ln *myriad.Listener, n int) []*sim.Peer {
	peers := make([]*sim.Peer, n)
	for i := range peers {
		p := s.Dial(ln.Addr())
		p.Write([]byte("hello"))
		p.OnReceived = func([]byte) {
			if p.Count() == len("hello") {
				p.CloseWrite()
			}
		}
		peers[i] = p
	}
	return peers
}

func (s *simulation) listen(h myriad.Handler) *myriad.Listener {
	s.t.Helper()
	ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		s.t.Fatal(err)
	}
	return ln
}

func (s *simulation) served(peers []*sim.Peer) {
	s.t.Helper()
	for i, p := range peers {
		if got := string(p.Received()); got != "hello" && !p.Faulted() {
			s.t.Errorf("seed %d: peer %d of %d received %q (%v), and was promised service", s.Seed(), i, len(peers),
				got, p.Err())
		}
	}
}

// No more than MaxConns are open at any time, peers above that wait, and all are served in the end.
func TestMaxConnsSimulated(t *testing.T) {
	lossless := sim.Lossless()
	failing := sim.Lossless()
	failing.Accept = 0.3
	for name, o := range map[string]sim.Options{"lossless": lossless, "failing": failing,
		"hostile": {Reset: 0.3, Accept: 0.1}} {
		t.Run(name, func(t *testing.T) {
			waits := uint64(0)
			for seed := range seeds(t) / 2 {
				limit := 1 + int(seed%7)
				s := simulate(t, seed, o, myriad.Config{MaxConns: limit, LingerTimeout: time.Second})
				k := &doorkeeper{}
				peers := s.visit(s.listen(doorkept{k, "a"}), 25)
				peers = append(peers, s.visit(s.listen(doorkept{k, "b"}), 5)...)
				s.Run()
				s.served(peers)
				l := s.e.Limits()
				waits += l.AtMaxConns
				if k.most > limit || l.Open != 0 {
					t.Errorf("seed %d: %d open at a time, limit %d; %+v", seed, k.most, limit, l)
				}
				if s.finish(); t.Failed() {
					return
				}
			}
			if waits == 0 {
				t.Error("nobody has ever had to wait")
			}
		})
	}
}

// A listener that is stormed does not keep another one's peers out.
func TestListenersTakeTurns(t *testing.T) {
	o := sim.Calm()
	o.Backlog = 1000
	for name, cfg := range map[string]myriad.Config{"MaxConns": {MaxConns: 4}, "AcceptRate": {AcceptRate: 50}} {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds(t) / 5 {
				s := simulate(t, seed, o, cfg)
				k := &doorkeeper{}
				stormed := s.visit(s.listen(doorkept{k, "stormed"}), 300)
				quiet := s.visit(s.listen(doorkept{k, "quiet"}), 10)
				s.Run()
				s.served(append(stormed, quiet...))
				last := len(k.names) - 1
				for last >= 0 && k.names[last] != "quiet" {
					last--
				}
				if last > 3*len(quiet)+10 {
					t.Errorf("seed %d: the last of %d quiet peers was served as number %d", seed, len(quiet), last)
				}
				s.finish()
			}
		})
	}
}

// AcceptRate holds in every window, and is used up.
func TestAcceptRateSimulated(t *testing.T) {
	const rate, burst = 100, 5 // 50 ms worth
	o := sim.Lossless()
	o.Backlog = 1000
	for seed := range seeds(t) / 5 {
		s := simulate(t, seed, o, myriad.Config{AcceptRate: rate})
		k := &doorkeeper{now: s.Now}
		peers := append(s.visit(s.listen(doorkept{k, "a"}), 200), s.visit(s.listen(doorkept{k, "b"}), 100)...)
		s.Run()
		s.served(peers)
		slices.SortFunc(k.times, time.Time.Compare)
		for from := range k.times {
			for to := from + 1; to < len(k.times); to++ {
				took := k.times[to].Sub(k.times[from]) + 30*time.Millisecond // a tick, and what hand-over takes
				if most := burst + 2 + int(took*rate/time.Second); to-from+1 > most {
					t.Fatalf("seed %d: %d were accepted in %v, at most %d may", seed, to-from+1, took, most)
				}
			}
		}
		if took := k.times[len(k.times)-1].Sub(sim.Epoch); took > 5*time.Second {
			t.Errorf("seed %d: 300 peers at %d a second took %v", seed, rate, took)
		}
		if s.e.Limits().AtAcceptRate == 0 {
			t.Errorf("seed %d: %+v", seed, s.e.Limits())
		}
		s.finish()
	}
}

// Without descriptors no connection is accepted, connected clients are served, the loops sleep, and
// it ends by itself.
func TestNoFilesSimulated(t *testing.T) {
	for seed := range seeds(t) / 5 {
		s := simulate(t, seed, sim.Lossless(), myriad.Config{})
		k := &doorkeeper{}
		ln := s.listen(doorkept{k, "a"})
		held := s.Dial(ln.Addr())
		s.RunFor(time.Second)
		s.ExhaustFiles(true)
		peers := s.visit(ln, 40)
		s.RunFor(time.Second)
		before, failed := s.e.Stats().Sleeps, s.e.Limits().NoFiles
		s.RunFor(10 * time.Second)
		sleeps, failures := s.e.Stats().Sleeps-before, s.e.Limits().NoFiles-failed
		if failures < 100 || failures > 201 || sleeps > 3*failures {
			t.Errorf("seed %d: in 10 s without descriptors %d failures and %d sleeps", seed, failures, sleeps)
		}
		held.Write([]byte("still there"))
		if !s.RunUntil(func() bool { return string(held.Received()) == "still there" }) || k.in != 1 {
			t.Errorf("seed %d: the held peer received %q; %d are in", seed, held.Received(), k.in)
		}
		s.ExhaustFiles(false)
		s.RunFor(time.Minute)
		s.served(peers)
		held.Close()
		s.finish()
	}
}

// files is a world whose processes have descriptors: when others have used them up, the spare is
// the only one left.
type files struct {
	*sim.World
	gone  bool // by others than the engine
	spare int  // held
	taken int  // connections that were let in with it
}

// A filer is a handler that uses descriptors.
type filer struct {
	doorkept
	f *files
}

func (h filer) Opened(c *myriad.Conn) {
	if h.f.gone {
		h.f.taken++
		h.f.ExhaustFiles(true)
	}
	h.doorkept.Opened(c)
}

func (h filer) Closed(c *myriad.Conn, err error) {
	h.f.taken = 0
	h.doorkept.Closed(c, err)
}

func (f *files) exhaust(on bool) {
	f.gone = on
	f.ExhaustFiles(on)
}

func (f *files) Facilities() driver.Facilities {
	has := f.World.Facilities()
	has.Spare = f.Spare
	return has
}

func (f *files) Spare() (io.Closer, error) {
	if f.gone && f.taken > 0 {
		return nil, syscall.EMFILE
	}
	f.spare++
	f.ExhaustFiles(f.gone)
	return f, nil
}

func (f *files) Close() error {
	f.spare--
	f.ExhaustFiles(false)
	return nil
}

// When descriptors have been lacking for 2 s, peers are closed by means of the spare one, at a
// bounded pace.
func TestShedding(t *testing.T) {
	for seed := range seeds(t) / 5 {
		o := sim.Lossless()
		o.Backlog = 1000
		w := newWorld(seed, o)
		f := &files{World: w}
		e, err := myriad.Start(myriad.Config{System: f, Logger: quiet, Loops: 2})
		if err != nil {
			t.Fatal(err)
		}
		s := &simulation{w, t, e}
		k := &doorkeeper{}
		ln, other := s.listen(filer{doorkept{k, "a"}, f}), s.listen(filer{doorkept{k, "b"}, f})
		f.exhaust(true)
		few := s.visit(other, 5)
		peers := append(s.visit(ln, 900), few...)
		s.RunFor(1900 * time.Millisecond)
		if l := e.Limits(); l.Shed != 0 || l.NoFiles == 0 {
			t.Errorf("seed %d: at once %+v", seed, l)
		}
		s.RunFor(350 * time.Millisecond) // at most seven pauses
		if l := e.Limits(); l.Shed == 0 || l.Shed > 8*64 {
			t.Errorf("seed %d: after 2 s %+v", seed, l)
		}
		s.RunFor(100 * time.Millisecond)
		for i, p := range few {
			if !p.Ended() && p.Err() == nil && len(k.names) == 0 { // an accepted client resets the patience
				t.Errorf("seed %d: peer %d of the other listener is not shed in its turn", seed, i)
			}
		}
		s.RunFor(10 * time.Second)
		for i, p := range peers {
			if !p.Ended() && p.Err() == nil {
				t.Errorf("seed %d: peer %d was neither shed nor served", seed, i)
			}
		}
		// A listener that tries in earnest may come upon the descriptor that another one has just
		// freed.
		shed := e.Limits().Shed
		if in := len(k.names); int(shed)+in != len(peers) || in > 4 {
			t.Errorf("seed %d: %d of %d were shed and %d let in", seed, shed, len(peers), in)
		}
		f.exhaust(false)
		s.RunFor(time.Second)
		late := s.visit(ln, 5)
		s.RunFor(time.Minute)
		s.served(late)
		f.exhaust(true)
		s.visit(ln, 5)
		s.RunFor(1900 * time.Millisecond)
		if l := e.Limits(); l.Shed != shed {
			t.Errorf("seed %d: a second shortage is not waited for: %+v", seed, l)
		}
		f.exhaust(false)
		s.RunFor(time.Minute)
		if s.finish(); f.spare != 0 {
			t.Errorf("seed %d: %d spare descriptors after Shutdown", seed, f.spare)
		}
	}
}

// A listener that is closed, or an engine shut down, while peers wait leaves nothing behind, and
// its room goes to others.
func TestEndWhilePeersWait(t *testing.T) {
	for seed := range seeds(t) {
		cfg := myriad.Config{MaxConns: 3, LingerTimeout: time.Second}
		if seed%2 == 1 {
			cfg.AcceptRate = 20
		}
		s := simulate(t, seed, sim.Lossless(), cfg)
		k := &doorkeeper{}
		ln, other := s.listen(doorkept{k, "a"}), s.listen(doorkept{k, "b"})
		s.visit(ln, 20)
		peers := s.visit(other, 20)
		s.RunFor(time.Duration(seed*seed%300) * time.Millisecond)
		if seed%4 < 2 {
			ln.Close()
			s.Run()
			s.served(peers)
			if n := s.e.Limits().Open; n != 0 {
				t.Errorf("seed %d: %d are counted as open", seed, n)
			}
		}
		if s.finish(); t.Failed() {
			return
		}
	}
}

// inert is a connection that costs nothing; no driver takes it.
type inert struct{ net.Conn }

func (inert) LocalAddr() net.Addr  { return &net.UnixAddr{} }
func (inert) RemoteAddr() net.Addr { return &net.UnixAddr{} }
func (inert) Close() error         { return nil }

// inertImports is a world that imports those.
type inertImports struct{ *sim.World }

func (inertImports) Import(nc net.Conn) (driver.Socket, error) { return inertSocket{nc.(inert)}, nil }

// inertSocket is what Import makes of it.
type inertSocket struct{ nc inert }

func (inertSocket) Local() (a driver.Addr)    { return a }
func (inertSocket) Remote() (a driver.Addr)   { return a }
func (s inertSocket) Conn() (net.Conn, error) { return s.nc, nil }
func (inertSocket) Close() error              { return nil }

// Adopt is busy only when every loop is, and counts what it takes.
func TestAdoptBusy(t *testing.T) {
	w := newWorld(1, sim.Calm())
	e, err := myriad.Start(myriad.Config{System: inertImports{w}, Logger: quiet, Loops: 3, MaxConns: 3000})
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{w, t, e}
	h := newProbe()
	h.opens, h.closes = make(chan *myriad.Conn, 5000), make(chan error, 5000)
	for i := range 3000 { // the test does not step the world: what goes into an intake stays there
		if _, err := e.Adopt(inert{}, nil, h); err != nil {
			t.Fatalf("Adopt %d: %v", i, err)
		}
	}
	if _, err := e.Adopt(inert{}, nil, h); !errors.Is(err, myriad.ErrTooMany) {
		t.Errorf("Adopt at MaxConns: %v", err)
	}
	s.Run()
	if h.closing.Load() != 3000 || e.Limits().Open != 0 {
		t.Errorf("%d of 3000 were told that no driver takes them; %+v", h.closing.Load(), e.Limits())
	}
	s.finish()
	if _, err := e.Adopt(inert{}, nil, h); !errors.Is(err, myriad.ErrClosed) {
		t.Errorf("Adopt after Shutdown: %v", err)
	}
}

// A call that finds every intake full is counted, once, and the room that it had taken is given
// back.
func TestAdoptBusyIsCounted(t *testing.T) {
	w := newWorld(1, sim.Calm())
	e, err := myriad.Start(myriad.Config{System: inertImports{w}, Logger: quiet, Loops: 2, MaxConns: 5000})
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{w, t, e}
	taken := 0
	for ; err == nil; taken++ { // the test does not step the world
		_, err = e.Adopt(inert{}, nil, silent{})
	}
	_, again := e.Adopt(inert{}, nil, silent{})
	if taken--; !errors.Is(err, myriad.ErrBusy) || !errors.Is(again, myriad.ErrBusy) || taken != 2*1024 {
		t.Errorf("after %d of 2048: %v, then %v", taken, err, again)
	}
	if st, l := e.Stats(), e.Limits(); st.Busy != 2 || l.Open != taken || l.TooMany != 0 {
		t.Errorf("%d ErrBusy of 2 are counted; %d open of %d", st.Busy, l.Open, taken)
	}
	s.finish()
}

// Where Adopt is busy AdoptWait waits, and loses nothing of what it is given.
func TestAdoptWait(t *testing.T) {
	w := newWorld(1, sim.Calm())
	e, err := myriad.Start(myriad.Config{System: inertImports{w}, Logger: quiet, Loops: 2, MaxConns: 9500})
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{w, t, e}
	h := newProbe()
	h.opens, h.closes = make(chan *myriad.Conn, 9500), make(chan error, 9500)
	taken := 0
	w.Go(func() { // it lets the loops run only while it waits
		for ; err == nil && taken < 9500; taken++ {
			_, err = e.AdoptWait(inert{}, nil, h)
		}
	})
	s.Run()
	if err != nil || taken != 9500 || h.closing.Load() != 9500 {
		t.Errorf("%d of 9500 taken, %d told that no driver takes them: %v", taken, h.closing.Load(), err)
	}
	if busy := e.Stats().Busy; busy != 0 {
		t.Errorf("%d ErrBusy are counted", busy)
	}
	s.finish()
	if _, err := e.AdoptWait(inert{}, nil, h); !errors.Is(err, myriad.ErrClosed) {
		t.Errorf("AdoptWait after Shutdown: %v", err)
	}
}

// One loop that does not run fills its intake; the others go on taking.
func TestAdoptPastABlockedLoop(t *testing.T) {
	e, err := myriad.Start(myriad.Config{System: inertReal{std.System{}}, Logger: quiet, Loops: 2})
	if err != nil {
		t.Fatal(err)
	}
	blocked, release := make(chan struct{}), make(chan struct{})
	stuck := e.Loops()[0]
	if err := stuck.Do(func() { close(blocked); <-release }); err != nil {
		t.Fatal(err)
	}
	await(t, "the loop to block", blocked)
	counts := map[*myriad.Loop]int{}
	for began := time.Now(); counts[stuck] < 1024; {
		c, err := e.Adopt(inert{}, nil, silent{})
		switch {
		case err == nil:
			counts[c.Loop()]++
		case errors.Is(err, myriad.ErrBusy): // the other one is behind, too
			if time.Since(began) > patience {
				t.Fatal("busy for ever")
			}
			runtime.Gosched()
		default:
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	if err := e.Loops()[1].Do(func() { close(done) }); err != nil {
		t.Fatal(err)
	}
	await(t, "the other loop to catch up", done)
	for range 100 {
		c, err := e.Adopt(inert{}, nil, silent{})
		if err != nil || c.Loop() == stuck {
			t.Fatalf("Adopt beside a full loop: %v", err)
		}
	}
	close(release)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

type inertReal struct{ driver.System }

func (inertReal) Import(nc net.Conn) (driver.Socket, error) { return inertSocket{nc.(inert)}, nil }

type silent struct{}

func (silent) Opened(*myriad.Conn)           {}
func (silent) Received(*myriad.Conn, []byte) {}
func (silent) Closed(*myriad.Conn, error)    {}

func TestLimitsOfConfig(t *testing.T) {
	for _, cfg := range []myriad.Config{{MaxConns: -1}, {AcceptRate: -1}, {DialTimeout: -time.Second}} {
		if e, err := myriad.Start(cfg); err == nil {
			e.Shutdown(t.Context())
			t.Errorf("Start took %s", fmt.Sprintf("%+v", cfg))
		}
	}
}
