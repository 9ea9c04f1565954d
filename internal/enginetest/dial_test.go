package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A directory is a system whose names have the given addresses.
type directory struct {
	driver.System
	addrs   []net.Addr
	unparks atomic.Int64 // calls of its parkers
}

func (d *directory) Resolve(context.Context, string, string) ([]net.Addr, error) { return d.addrs, nil }

func (d *directory) NewParker() driver.Parker { return countedParker{d.System.NewParker(), d} }

type countedParker struct {
	driver.Parker
	d *directory
}

func (p countedParker) Unpark() {
	p.Parker.Unpark()
	p.d.unparks.Add(1)
}

// A manual context ends when the world says so. Package context tells of it on a goroutine of its
// own, which is waited for, so that the seed and not the operating system decides when.
type manual struct {
	context.Context
	d    *directory
	err  atomic.Pointer[error]
	mu   sync.Mutex
	call func()
}

func (m *manual) Err() error {
	if err := m.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Done makes package context ask AfterFunc.
func (m *manual) Done() <-chan struct{} { return make(chan struct{}) }

// AfterFunc is what package context looks for in a context that it does not know. There is one call
// of it in a Dial.
func (m *manual) AfterFunc(f func()) func() bool {
	m.set(f)
	return func() bool { m.set(nil); return true }
}

func (m *manual) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.call = f
}

func (m *manual) cancel() {
	err := context.Canceled
	m.err.Store(&err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.call == nil {
		return
	}
	before := m.d.unparks.Load()
	for m.call(); m.d.unparks.Load() == before; {
		runtime.Gosched()
	}
}

// blackhole is an address in the world that answers no connect for 5 s.
func blackhole(t *testing.T, w *sim.World, addr string) net.Addr {
	t.Helper()
	ln, err := w.Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	w.Dial(ln.Addr()) // the listener does not accept: with a backlog of one, this is all it takes
	w.Settle()
	return ln.Addr()
}

// simulateNames is simulate with an engine whose names have the addresses that the test puts into
// the directory.
func simulateNames(t *testing.T, seed uint64, o sim.Options, cfg myriad.Config) (*simulation, *directory) {
	t.Helper()
	w := newWorld(seed, o)
	names := &directory{System: w}
	cfg.System, cfg.Logger, cfg.Loops = names, quiet, 2
	e, err := myriad.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &simulation{w, t, e}, names
}

func (s *simulation) peerAt(addr string) (net.Addr, *[]*sim.Peer) {
	s.t.Helper()
	var peers []*sim.Peer
	ln, err := s.ListenPeer("tcp", addr, func(p *sim.Peer) { peers = append(peers, p) })
	if err != nil {
		s.t.Fatal(err)
	}
	return ln.Addr(), &peers
}

// outcome is what a Dial in the world came to, and how long it took.
type outcome struct {
	done bool
	c    *myriad.Conn
	err  error
	took time.Duration
}

func (s *simulation) dial(ctx context.Context, h myriad.Handler) *outcome {
	o := new(outcome)
	s.Go(func() {
		from := s.Now()
		o.c, o.err = s.e.Dial(ctx, "tcp", "name:80", h)
		o.took = s.Now().Sub(from)
		o.done = true
	})
	return o
}

// oneBacklog is a world without faults in which one connection fills a backlog.
func oneBacklog() sim.Options {
	o := sim.Calm()
	o.Backlog = 1
	return o
}

// An address that does not answer costs 250 ms, not its timeout, and its attempt is not heard of
// again.
func TestDialAroundBlackholes(t *testing.T) {
	for holes := range 4 {
		s, names := simulateNames(t, uint64(holes), oneBacklog(), myriad.Config{})
		for i := range holes {
			names.addrs = append(names.addrs, blackhole(t, s.World, fmt.Sprintf("[::1]:%d", 81+i)))
		}
		good, peers := s.peerAt("127.0.0.1:80")
		names.addrs = append(names.addrs, good)
		h := newProbe()
		h.expired = func(*myriad.Conn) { t.Error("the timer of the attempt has outlived it") }
		o := s.dial(t.Context(), h)
		// the peer may see the connection later than the client
		if !s.RunUntil(func() bool { return o.done && (o.err != nil || len(*peers) > 0) }) || o.err != nil {
			t.Fatalf("%d holes: Dial: %v", holes, o.err)
		}
		// With one address of the other family, it is the second to be tried.
		least := time.Duration(min(holes, 1)) * 250 * time.Millisecond
		if o.took < least || o.took > least+50*time.Millisecond {
			t.Errorf("%d holes: Dial took %v, want %v", holes, o.took, least)
		}
		if h.openings.Load() != 1 || len(*peers) != 1 || o.c.RemoteAddr().String() != good.String() {
			t.Errorf("%d holes: opened %d times, %d connections, remote %v", holes, h.openings.Load(), len(*peers),
				o.c.RemoteAddr())
		}
		s.RunFor(time.Minute)
		if s.e.Limits().Open != 1 || s.e.Stats().Conns != 1 {
			t.Errorf("%d holes: %d connections are open: the losers were not closed", holes, s.e.Limits().Open)
		}
		o.c.Close()
		s.finish()
	}
}

// Families alternate, and the resolver's first address says which begins.
func TestDialOrder(t *testing.T) {
	six := []string{"[::1]:81", "[::1]:82", "[::1]:83"}
	four := []string{"127.0.0.1:81", "127.0.0.1:82"}
	for _, tc := range []struct{ given, want []string }{
		{append(append([]string{}, six...), four...), []string{six[0], four[0], six[1], four[1], six[2]}},
		{append(append([]string{}, four...), six...), []string{four[0], six[0], four[1], six[1], six[2]}},
		{[]string{six[0], four[0], four[1]}, []string{six[0], four[0], four[1]}},
		{four, four},
	} {
		s, names := simulateNames(t, 1, sim.Calm(), myriad.Config{})
		for _, a := range tc.given {
			names.addrs = append(names.addrs, tcpAddr(a)) // no process listens: all are refused, in order
		}
		h := newProbe()
		_, err := s.e.Dial(t.Context(), "tcp", "name:80", h)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("Dial: %v", err)
		}
		at := 0
		for _, a := range tc.want {
			i := strings.Index(err.Error()[at:], a)
			if i < 0 {
				t.Errorf("tried %v; want %v in this order, in %q", tc.given, tc.want, err)
				break
			}
			at += i
		}
		if took := s.Now().Sub(sim.Epoch); took > 100*time.Millisecond {
			t.Errorf("five refusals took %v: the next address was not tried at once", took)
		}
		if h.openings.Load()+h.closing.Load() != 0 {
			t.Error("a failed Dial has called the handler")
		}
		s.finish()
	}
}

func tcpAddr(s string) net.Addr {
	a, err := net.ResolveTCPAddr("tcp", s)
	if err != nil {
		panic(err)
	}
	return a
}

// No more than the first 16 addresses are tried.
func TestDialManyAddresses(t *testing.T) {
	s, names := simulateNames(t, 1, sim.Calm(), myriad.Config{})
	for i := range 40 {
		names.addrs = append(names.addrs, tcpAddr(fmt.Sprintf("127.0.0.1:%d", 1000+i)))
	}
	_, err := s.e.Dial(t.Context(), "tcp", "name:80", newProbe())
	if n := strings.Count(err.Error(), "refused"); n != 16 {
		t.Errorf("%d addresses were tried, want 16", n)
	}
	s.finish()
}

// An address has 10 s, and all of them Config.DialTimeout.
func TestDialTimeouts(t *testing.T) {
	dead := sim.Options{Dial: 1} // refuses, or times out after 75 s
	for seed := range seeds(t) {
		for _, tc := range []struct{ limit, addresses, most time.Duration }{
			{0, 2, 10*time.Second + 250*time.Millisecond}, {3 * time.Second, 5, 3 * time.Second},
			{100 * time.Millisecond, 3, 100 * time.Millisecond},
		} {
			s, names := simulateNames(t, seed, dead, myriad.Config{DialTimeout: tc.limit})
			for i := range int(tc.addresses) {
				names.addrs = append(names.addrs, tcpAddr(fmt.Sprintf("127.0.0.1:%d", 81+i)))
			}
			h := newProbe()
			o := s.dial(t.Context(), h)
			if !s.RunUntil(func() bool { return o.done }) {
				t.Fatalf("seed %d: Dial does not end", seed)
			}
			if o.err == nil || !errors.Is(o.err, os.ErrDeadlineExceeded) && !errors.Is(o.err, syscall.ECONNREFUSED) {
				t.Errorf("seed %d: Dial: %v", seed, o.err)
			}
			if s.RunFor(time.Second); s.e.Limits().Open != 0 {
				t.Errorf("seed %d: %d attempts have outlived Dial", seed, s.e.Limits().Open)
			}
			if o.took > tc.most+time.Second {
				t.Errorf("seed %d: DialTimeout %v: took %v", seed, tc.limit, o.took)
			}
			if h.openings.Load()+h.closing.Load() != 0 {
				t.Errorf("seed %d: a failed Dial has called the handler", seed)
			}
			s.finish()
		}
	}
}

// Whatever the world does, and whenever the context ends: the handler is opened once if Dial
// succeeds and never if not, and nothing is left.
func TestDialRaces(t *testing.T) {
	results := map[string]int{}
	for seed := range 3 * seeds(t) {
		if dialRace(t, seed, results); t.Failed() {
			return
		}
	}
	for _, kind := range []string{"success", "cancelled", "failure"} {
		if results[kind] == 0 {
			t.Errorf("no dial ended in %s: %v", kind, results)
		}
	}
}

func resultOf(err error) string {
	switch {
	case err == nil:
		return "success"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "failure"
}

func dialRace(t *testing.T, seed uint64, results map[string]int) {
	o := sim.Options{Dial: 0.3, Backlog: 1}
	if seed%3 == 0 {
		o.Dial = -1
	}
	s, names := simulateNames(t, seed, o, myriad.Config{})
	for i := range 1 + seed%4 {
		addr := fmt.Sprintf("[::1]:%d", 81+i)
		if i%2 == 1 {
			addr = fmt.Sprintf("127.0.0.1:%d", 81+i)
		}
		switch (seed/4 + i) % 4 {
		case 0:
			names.addrs = append(names.addrs, blackhole(t, s.World, addr))
		case 1:
			names.addrs = append(names.addrs, tcpAddr(addr)) // refuses
		default:
			good, _ := s.peerAt(addr)
			names.addrs = append(names.addrs, good)
		}
	}
	ctx, h := &manual{Context: t.Context(), d: names}, newProbe()
	if seed%5 != 0 { // at any moment: most dials are over within a second
		delay := time.Duration(seed*7919%1000) * time.Millisecond
		s.AfterFunc(delay>>(seed%11), ctx.cancel)
	}
	out := s.dial(ctx, h)
	if !s.RunUntil(func() bool { return out.done }) {
		t.Fatalf("seed %d: Dial does not end", seed)
	}
	switch {
	case (out.c == nil) != (out.err != nil):
		t.Errorf("seed %d: Dial returned %v and %v", seed, out.c, out.err)
	case out.err == nil && h.openings.Load() != 1:
		t.Errorf("seed %d: the handler was opened %d times", seed, h.openings.Load())
	case out.err == nil:
		out.c.Close()
	}
	s.Run()
	results[resultOf(out.err)]++
	if out.err != nil && h.openings.Load()+h.closing.Load() != 0 {
		t.Errorf("seed %d: Dial failed with %v and called the handler", seed, out.err)
	}
	if out.err == nil && h.closing.Load() != 1 {
		t.Errorf("seed %d: the handler was closed %d times", seed, h.closing.Load())
	}
	if n := s.e.Limits().Open; n != 0 {
		t.Errorf("seed %d: %d connections are counted as open", seed, n)
	}
	s.finish()
}

// Shutdown ends a Dial.
func TestDialAndShutdown(t *testing.T) {
	for seed := range seeds(t) / 2 {
		s, names := simulateNames(t, seed, oneBacklog(), myriad.Config{})
		names.addrs = []net.Addr{blackhole(t, s.World, "[::1]:80"), blackhole(t, s.World, "127.0.0.1:80")}
		h := newProbe()
		out := s.dial(t.Context(), h)
		s.RunFor(time.Duration(seed*37%600) * time.Millisecond)
		s.finish()
		if !out.done || !errors.Is(out.err, myriad.ErrClosed) || h.openings.Load()+h.closing.Load() != 0 {
			t.Errorf("seed %d: Dial during Shutdown: done %v, %v", seed, out.done, out.err)
		}
	}
}

// At MaxConns a dial is refused in words, and goes on when there is room.
func TestDialTooMany(t *testing.T) {
	s, names := simulateNames(t, 1, sim.Calm(), myriad.Config{MaxConns: 2})
	addr, _ := s.peerAt("127.0.0.1:80")
	names.addrs = []net.Addr{addr}
	dial := func() (*myriad.Conn, error) { return s.e.Dial(t.Context(), "tcp", "name:80", newProbe()) }
	first, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = dial(); err != nil {
		t.Fatal(err)
	}
	h := newProbe()
	if _, err = s.e.Dial(t.Context(), "tcp", "name:80", h); !errors.Is(err, myriad.ErrTooMany) ||
		h.openings.Load() != 0 {
		t.Errorf("Dial at the limit: %v, want ErrTooMany", err)
	}
	if l := s.e.Limits(); l.TooMany != 1 || l.Open != 2 || l.MaxConns != 2 {
		t.Errorf("limits %+v", l)
	}
	first.Abort(nil)
	s.RunFor(time.Second)
	names.addrs = []net.Addr{&net.IPAddr{IP: net.IPv4zero}}
	if _, err = dial(); !errors.Is(err, myriad.ErrUnsupported) || s.e.Limits().Open != 1 {
		t.Errorf("Dial of what no driver can: %v; %+v", err, s.e.Limits())
	}
	names.addrs = []net.Addr{addr}
	if _, err = dial(); err != nil {
		t.Errorf("Dial below the limit: %v", err)
	}
	s.finish()
}
