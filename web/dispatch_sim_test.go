package web

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file holds DispatchAuto against what docs/adr/0010 promises the neighbours of slow handlers,
// in fake time: how much longer they wait than in the same run without. The world has no faults and
// a handler takes no time but what it sleeps, so nothing else can make them wait.

const (
	crowdConns = 40
	crowdEvery = 100 * time.Microsecond // a request comes, whatever became of those before
	crowdSleep = 5 * time.Millisecond
	// mostHeld is what one slow handler may cost its neighbours: two ticks of the monitor, and how
	// long the world takes to let everybody run.
	mostHeld = 2500 * time.Microsecond
)

// A crowd asks one server with one loop.
type crowd struct {
	world     *sim.World
	clients   []*crowdClient
	delays    []time.Duration // of requests that do not sleep
	onLoop    int             // handlers that ran there
	takeovers int
}

type crowdClient struct {
	peer  *sim.Peer
	busy  bool
	sleep bool // what it waits for does
	asked time.Time
	got   []byte
}

// runCrowd makes n requests, of which the ith is for path(i), and sleeps if sleeps(i) says so.
func runCrowd(t *testing.T, seed uint64, n int, path func(i int) string, sleeps func(i int) bool) *crowd {
	t.Helper()
	o := sim.Calm()
	o.MaxSteps = 1 << 30
	w := newWorld(seed, o)
	engine, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{world: w}
	s := &Server{Engine: engine, Dispatch: DispatchAuto,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if rw.(*exchange.Given).Out.Load().X.Inlined {
				c.onLoop++
			}
			if r.Header.Get("Sleep") != "" {
				w.NewParker().ParkFor(crowdSleep)
			}
			io.WriteString(rw, "ok")
		})}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range crowdConns {
		c.join(w.Dial(ln.Addr()))
	}
	w.RunFor(time.Millisecond)
	for i := range n {
		c.ask(t, path(i), sleeps(i))
		w.RunFor(crowdEvery)
	}
	w.RunFor(10 * crowdSleep)
	c.takeovers = int(engine.Stats().Overstays)
	for _, x := range c.clients {
		if x.busy {
			t.Error("a request was never answered")
		}
	}
	if err := s.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	if err := engine.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	w.Settle()
	w.Check(t)
	slices.Sort(c.delays)
	return c
}

func (c *crowd) join(p *sim.Peer) {
	x := &crowdClient{peer: p}
	p.OnReceived = func(b []byte) {
		if x.got = append(x.got, b...); !strings.HasSuffix(string(x.got), "\r\n\r\nok") {
			return
		}
		if !x.sleep {
			c.delays = append(c.delays, c.world.Now().Sub(x.asked))
		}
		x.busy, x.got = false, nil
	}
	c.clients = append(c.clients, x)
}

func (c *crowd) ask(t *testing.T, path string, sleeps bool) {
	for _, x := range c.clients {
		if x.busy {
			continue
		}
		x.busy, x.sleep, x.asked = true, sleeps, c.world.Now()
		head := ""
		if sleeps {
			head = "Sleep: yes\r\n"
		}
		fmt.Fprintf(writerFunc(x.peer.Write), "GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", path, head)
		return
	}
	t.Fatalf("%d requests wait for their answers", crowdConns)
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// at is the delay that so many of a hundred quick requests had at most.
func (c *crowd) at(percent int) time.Duration {
	return c.delays[min(len(c.delays)*percent/100, len(c.delays)-1)]
}

func (c *crowd) String() string {
	return fmt.Sprintf("p50 %v, p99 %v, worst %v, %d on the loop, %d takeovers", c.at(50), c.at(99), c.at(100),
		c.onLoop, c.takeovers)
}

// Slow handlers cost their neighbours a moment each when they come as a surprise, and nothing once
// they are known.
func TestAutoKeepsNeighbours(t *testing.T) {
	one := func(int) string { return "/" }
	for _, tt := range []struct {
		name   string
		path   func(i int) string
		sleeps func(r *rand.Rand, path string, i int) bool
		taken  int // takeovers, at most
		onLoop int // of a hundred handlers, at least
	}{
		{"first call", newRoutes, func(_ *rand.Rand, _ string, i int) bool { return i%40 == 0 }, 0, 15},
		{"1 % of a route", one, func(r *rand.Rand, _ string, _ int) bool { return r.IntN(100) == 0 }, 2, 0},
		{"10 % of a route", one, func(r *rand.Rand, _ string, _ int) bool { return r.IntN(10) == 0 }, 2, 0},
		{"1 % by another route", slowRoute(100), isSlowRoute, 0, 95},
		{"10 % by another route", slowRoute(10), isSlowRoute, 0, 85},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range soak.Size(t, uint64(1), 3) {
				const requests = 4000
				r := rand.New(rand.NewPCG(seed, 7))
				alone := runCrowd(t, seed, requests, tt.path, func(int) bool { return false })
				slow := runCrowd(t, seed, requests, tt.path, func(i int) bool { return tt.sleeps(r, tt.path(i), i) })
				t.Logf("seed %d: %v; alone %v", seed, slow, alone)
				if slow.at(99)-alone.at(99) > crowdEvery || slow.at(100)-alone.at(100) > min(mostHeld,
					time.Duration(tt.taken)*mostHeld+crowdEvery) {
					t.Errorf("seed %d: %v; without slow ones %v", seed, slow, alone)
				}
				if slow.takeovers > tt.taken || slow.onLoop < requests*tt.onLoop/100 {
					t.Errorf("seed %d: %v; want at most %d takeovers, and %d %% of %d on the loop", seed, slow,
						tt.taken, tt.onLoop, requests)
				}
			}
		})
	}
}

// newRoutes is asked for each route forty times, and then for another one.
func newRoutes(i int) string { return fmt.Sprintf("/%c/%c", 'a'+i/40%10, 'a'+i/400%10) }

// slowRoute is asked for once in so many times.
func slowRoute(every int) func(i int) string {
	return func(i int) string {
		if i%every == 3 {
			return "/slow"
		}
		return "/quick"
	}
}

func isSlowRoute(_ *rand.Rand, path string, _ int) bool { return path == "/slow" }

// Requests that come together teach as much as those that come alone: the second batch of as many
// as it takes runs on the loop.
func TestAutoLearnsFromChains(t *testing.T) {
	w := newWorld(1, sim.Calm())
	engine, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	onLoop := 0
	s := &Server{Engine: engine, Dispatch: DispatchAuto,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if rw.(*exchange.Given).Out.Load().X.Inlined {
				onLoop++
			}
		})}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := w.Dial(ln.Addr())
	for _, want := range []int{0, dispatch.QuickRow} {
		p.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\nHost: h\r\n\r\n", dispatch.QuickRow)))
		w.RunFor(10 * time.Millisecond)
		if onLoop != want {
			t.Errorf("%d on the loop, want %d", onLoop, want)
		}
	}
	p.Close()
	if err := s.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	if err := engine.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	w.Settle()
	w.Check(t)
}

// Of a thousand routes, at full size, every one comes to the loop after its first calls, and those
// that differ only in an id as one.
func TestAutoThousandRoutes(t *testing.T) {
	const rounds = 40
	kinds := soak.Size(t, 200, 1000)
	learned := kinds/2 + 1 // all users are one
	c := runCrowd(t, 1, kinds*rounds, func(i int) string {
		if i %= kinds; i%2 == 0 {
			return fmt.Sprintf("/users/%d/posts", i)
		}
		return fmt.Sprintf("/pages/%c%c%c", 'a'+i%10, 'a'+i/10%10, 'a'+i/100%10)
	}, func(int) bool { return false })
	if want := kinds*rounds - learned*dispatch.QuickRow; c.onLoop < want*99/100 || c.onLoop > want {
		t.Errorf("%v; want %d on the loop: all but the first %d of %d kinds", c, want, dispatch.QuickRow, learned)
	}
}
