package client_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/client"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

// A world is one run of a Transport with all of its options drawn by chance, on the simulator.
// Requests of all kinds go to hosts that hang, reset, drain, refuse, answer early, late, half or
// not at all; then the faults stop. The files say what is drawn:
//
//   - world_options_test.go: the network, the engine, the Transport
//   - world_requests_test.go: requests, bodies, contexts, callers
//   - world_peers_test.go: hosts, and connections below HTTP
//   - world_answers_test.go: answers, and HTTP/1
//   - world_h2_test.go: HTTP/2
//   - world_web_test.go: web.Server as a host
//   - world_judge_test.go: what must hold
type world struct {
	*sim.World
	t        testing.TB
	seed     uint64
	rng      *rand.Rand
	o        *options
	engine   *myriad.Engine // the client's
	dials    *myriad.Engine // of DialContext
	far      *myriad.Engine // of web.Server
	webs     []*webHost
	hosts    []*host
	requests []*request
	peers    int        // goroutines of TLS peers
	chains   sync.Mutex // of requests, where a callback adds one
	judge    judge
	stopped  bool      // the faults
	ended    time.Time // the connections were broken off
	over     bool
}

var epoch = sim.Epoch

var (
	worldFailures = flag.Int("world.failures", 5, "after so many seeds that fail, TestWorlds stops")
	worldSeeds    = flag.Uint64("world.seeds", 0, "how many seeds TestWorlds runs; 0: the usual number")
	worldFrom     = flag.Uint64("world.from", 0, "the first of them")
	worldAll      = flag.Bool("world.all", false, "TestWorlds prints the history of every request of a seed that fails")
	worldBrief    = flag.Bool("world.brief", false, "TestWorlds prints one line for each breach")
)

// TestWorlds runs a world for each seed.
func TestWorlds(t *testing.T) {
	seeds := soak.Size(t, uint64(200), 10_000)
	if *worldSeeds > 0 {
		seeds = *worldSeeds
	}
	results, failures := map[string]int{}, 0
	for seed := *worldFrom; seed < *worldFrom+seeds && failures < *worldFailures; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if !runWorld(t, seed, results) {
				failures++
			}
		})
	}
	t.Log(results)
	if failures > 0 || seeds < 200 {
		return
	}
	for _, kind := range kinds {
		if results[kind] == 0 {
			t.Errorf("%q has not occurred", kind)
		}
	}
}

// kinds are what has to occur in 200 worlds.
var kinds = []string{
	"h1 ok", "h1 ended by its caller", "h1 closed early", "h1 own body", "h1 peer's deed", "h1 queue full",
	"h1 header timeout", "h1 head too large", "h1 dial or lost connection",
	"h2 ok", "h2 ended by its caller", "h2 closed early", "h2 own body", "h2 peer's deed", "h2 queue full",
	"h2 header timeout", "h2 head too large", "h2 dial or lost connection",
	"net calm", "net split", "net faulty", "dials by stream", "dials by detached", "dials by tls", "web.Server",
	"proxy http", "proxy https", "proxy socks5",
	"fate mute", "fate stall", "fate reset", "fate fin", "fate goaway", "fate goaway low", "fate goaway early",
	"fate die", "fate no settings", "cut hang", "cut reset", "cut fin", "cut rst", "cut short",
	"refused", "no SYN", "connection refused",
}

// count notes what the world has had.
func (w *world) count(results map[string]int) {
	results["net "+w.o.net]++
	results["dials by "+w.o.dialer]++
	for _, h := range w.hosts {
		results["proxy "+h.proxy]++
		if h.served {
			results["web.Server"]++
		}
		if h.wasSilent {
			results["no SYN"]++
		}
		if h.up > 0 {
			results["connection refused"]++
		}
		for _, c := range h.conns {
			results["fate "+c.fate]++
		}
	}
	for _, x := range w.requests {
		for _, a := range x.attempts {
			results["cut "+a.plan.cut]++
			if a.notProcessed {
				results["refused"]++
			}
		}
	}
}

func runWorld(t *testing.T, seed uint64, results map[string]int) bool {
	r := rand.New(rand.NewPCG(seed, 39))
	o := drawOptions(r, seed)
	w := &world{World: sim.New(seed, o.sim), t: t, seed: seed, rng: r, o: o}
	w.judge.w = w
	w.begin()
	w.RunFor(o.stop)
	w.stopFaults()
	w.recover()
	kept := w.end()
	for _, x := range w.requests {
		results[w.judge.verdict(x)]++
	}
	w.count(results)
	for _, s := range kept {
		w.judge.broke(nil, "left", "%s", s)
	}
	return w.report(t)
}

func (w *world) start(loops int) *myriad.Engine {
	cfg := w.o.config
	cfg.System = w.World
	if loops > 0 {
		cfg.Loops, cfg.ReadBuffer, cfg.WriteLimit = loops, 0, 0
	}
	e, err := myriad.Start(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// begin plans all that happens until the faults stop.
func (w *world) begin() {
	w.engine = w.start(0)
	if w.o.dialer != "engine" {
		w.dials = w.start(1)
	}
	for i := range 1 + w.rng.IntN(w.o.hosts) {
		w.hosts = append(w.hosts, w.newHost(i))
	}
	w.connect()
	n := 1 + w.rng.IntN(w.o.requests)
	if w.o.crowd {
		n = 105 + w.rng.IntN(60)
	}
	for range n {
		h := pick(w.rng, w.hosts...)
		at := between(w.rng, 0, w.o.issue)
		if chance(w.rng, 0.3) {
			at = w.o.issue / 2 // at once with others
		}
		w.ask(h, at, w.drawAsking(h))
	}
	if chance(w.rng, 0.3) {
		w.AfterFunc(between(w.rng, 0, w.o.stop), w.o.tr.CloseIdleConnections)
	}
	w.AfterFunc(tick, w.judge.watch)
}

// stopFaults lets every host be good to new connections.
func (w *world) stopFaults() {
	w.stopped = true
	for _, h := range w.hosts {
		if h.h2.raise == 0 && h.h2.streams == 0 {
			h.h2.streams = 1
		}
		for _, c := range h.conns { // what has not gone wrong by now stays well
			if !c.dead {
				c.quota = -1
			}
		}
	}
}

// bound is how long after the end of the faults requests may still fail.
func (w *world) bound() time.Duration {
	t := w.o.tr
	d := recovery + max(t.TLSHandshakeTimeout, w.o.config.DialTimeout, t.ResponseHeaderTimeout)
	if t.HTTP2.SendPingTimeout > 0 {
		d += t.HTTP2.SendPingTimeout + t.HTTP2.PingTimeout
	}
	return d
}

// recover sends requests to each host, until some that began after the bound must have succeeded.
func (w *world) recover() {
	var last []*request
	for _, h := range w.hosts {
		end := w.bound()
		for at := between(w.rng, 0, 500*ms); at < end+time.Second; at += between(w.rng, 200*ms, 800*ms) {
			a := plain()
			a.method, a.by = pick(w.rng, "GET", "GET", "POST"), pick(w.rng, "RoundTrip", "Do and OnBody")
			a.deadline = max(pick(w.rng, 100*ms, 500*ms, 1000*ms), 10*w.o.slack)
			if a.method == "POST" {
				a.kind, a.size, a.length, a.replay = "memory", 100, true, true
			}
			x := w.ask(h, at, a)
			x.probe = true
			if at >= end {
				last = append(last, x)
			}
		}
	}
	w.RunFor(w.bound() + 3*time.Second)
	for _, h := range w.hosts {
		w.recovered(h, last)
	}
	for _, x := range w.requests {
		if !x.isOver() && (x.deadline == 0 || w.Now().After(x.born.Add(x.deadline))) && !x.mayHang() {
			w.judge.broke(x, "never ended", "it has not ended %v after the faults had stopped, and does not sit on "+
				"a peer that hangs", w.bound())
		}
	}
}

// recovered judges the last requests to a host. All have to succeed, or one, where the network goes
// on with its faults or is too slow for some limit.
func (w *world) recovered(h *host, last []*request) {
	var failed *request
	succeeded := false
	for _, x := range last {
		switch {
		case x.host != h || x.blocked:
		case x.err == nil:
			succeeded = true
		default:
			failed = x
		}
	}
	if failed != nil && errors.Is(failed.err, client.ErrQueueFull) &&
		(w.lasting() >= w.o.tr.MaxQueued || slices.ContainsFunc(w.hosts, w.blocked)) {
		return // by requests that wait for ever, perhaps for another host
	}
	if failed != nil && w.o.net == "faulty" && !errors.Is(failed.err, context.DeadlineExceeded) {
		return // by the network, which goes on with its faults
	}
	calm := w.o.net == "calm"
	if failed != nil && !w.blocked(h) && (calm || !succeeded && !contains(failed.err, "handshake")) {
		w.judge.broke(failed, "recovery", "it failed %v after the faults had stopped: %v", w.bound(), failed.err)
	}
}

// lasting is how many requests wait for a connection that have no deadline.
func (w *world) lasting() (n int) {
	for _, x := range w.requests {
		if !x.isOver() && x.deadline == 0 && !x.born.IsZero() && x.comesAgain() {
			n++
		}
	}
	return n
}

// blocked reports whether requests that have no deadline, and hang, take all the room of a host.
func (w *world) blocked(h *host) bool {
	if h.served { // by an upload that never ends
		return slices.ContainsFunc(w.requests, func(x *request) bool {
			return x.host == h && x.hangAt >= 0 && !x.isOver()
		})
	}
	taken, dials, owners, draining, lone := 0, 0, 0, 0, false
	for _, c := range h.conns {
		over := c.dead || !c.spent.IsZero()
		if over && c.gone.IsZero() && (c.unread || c.mux != nil && c.mux.carries()) {
			draining++
		}
		switch {
		case !c.gone.IsZero():
		case !c.spent.IsZero():
			if c.mux != nil && c.mux.lone() {
				taken++
			}
		case c.ready.IsZero() && c.mux != nil && c.mux.carries():
			taken++
		case c.ready.IsZero():
			dials++
		case c.h1 != nil && c.h1.a != nil:
			taken++
		case c.h2 && c.mux.full():
			return true
		}
	}
	for _, x := range w.requests {
		if x.host == h && !x.isOver() && !x.born.IsZero() && x.comesAgain() && x.deadline == 0 && x.cancel == 0 {
			owners++
			lone = lone || x.close || w.o.tr.DisableKeepAlives
		}
	}
	if lone && h.hasDead() { // one that no other request may use
		taken++
	}
	most := w.o.tr.MaxConnsPerHost
	return most > 0 && (taken+min(dials, owners) >= most || draining > most) // as many may drain as may be open
}

func (s *h2Script) full() bool {
	most := s.allowed()
	return most >= 0 && len(s.streams) >= most
}

// comesAgain reports whether no peer has a request, or can answer it.
func (x *request) comesAgain() bool {
	return len(x.attempts) == 0 || x.attempts[len(x.attempts)-1].lost()
}

// mayHang reports whether a request without an end of its own sits on a peer that hangs, or waits
// for one that does.
func (x *request) mayHang() bool {
	if x.hangAt >= 0 || x.w.blocked(x.host) && x.comesAgain() {
		return true
	}
	if x.comesAgain() {
		return slices.ContainsFunc(x.host.conns, func(c *peerConn) bool {
			moves := x.w.o.crowd && c.born.After(x.w.Now().Add(-time.Second)) // the queue is long
			return c.gone.IsZero() && (c.dead || c.fate != "") || moves
		})
	}
	a := x.attempts[len(x.attempts)-1]
	if a.at.After(x.w.Now().Add(-time.Second)) {
		return true // it has only just come
	}
	return a.c == nil || a.c.gone.IsZero() && (a.c.dead || a.deed != "" || a.plan.stops)
}

// end ends what still hangs, closes everything, and lists what remains.
func (w *world) end() (left []string) {
	for _, x := range w.requests {
		if !x.isOver() {
			x.endContext(context.Canceled)
		}
	}
	for _, h := range w.hosts {
		for _, c := range h.conns {
			if c.dead && c.gone.IsZero() {
				c.end("the world has ended")
				c.base.Reset()
			}
		}
	}
	w.RunFor(2 * time.Second)
	for _, x := range w.requests {
		if !x.isOver() && x.deadline == 0 && x.cancel == 0 && x.callCancel == 0 {
			for _, c := range x.host.conns { // what has no end of its own
				c.end("the world has ended")
				c.base.Reset()
			}
			if w.ended.IsZero() {
				w.ended = w.Now()
			}
			if x.host.served {
				w.closeWebs()
			}
		}
	}
	w.RunFor(2 * time.Second)
	if w.seed%7 == 0 {
		left = w.garbage()
	}
	w.over = true
	w.o.tr.CloseIdleConnections()
	w.RunFor(10 * time.Second)
	if slices.ContainsFunc(w.requests, func(x *request) bool { return !x.isOver() && !x.born.IsZero() }) {
		w.closeWebs()
		w.RunFor(10 * time.Second)
		return append(left, "requests that have not ended, so that nothing can be shut down")
	}
	for _, h := range w.hosts {
		for _, c := range h.conns {
			c.base.Close()
		}
	}
	left = append(left, client.Leftovers(w.o.tr)...)
	w.closeWebs()
	for _, e := range []*myriad.Engine{w.engine, w.dials, w.far} {
		if e != nil {
			if err := e.Shutdown(context.Background()); err != nil {
				left = append(left, fmt.Sprint("Shutdown: ", err))
			}
		}
	}
	w.Run()
	w.Check(tb{w, &left})
	if w.peers > 0 {
		left = append(left, fmt.Sprintf("%d goroutines of TLS peers", w.peers))
	}
	return left
}

// garbage lists the requests that are over and still in memory.
func (w *world) garbage() (left []string) {
	for range 3 {
		runtime.GC()
	}
	for _, x := range w.requests {
		if !x.isOver() {
			continue
		}
		for _, kept := range []struct {
			name string
			is   bool
		}{{"request", x.keptRequest.Value() != nil}, {"context", x.keptContext.Value() != nil},
			{"body", x.keptBody.Value() != nil}} {
			if kept.is {
				left = append(left, fmt.Sprintf("the %s of request %d to %s, which is over, is still in memory",
					kept.name, x.id, x.host.url))
			}
		}
	}
	return left
}

// A tb takes what sim.World.Check finds.
type tb struct {
	w    *world
	left *[]string
}

func (tb) Helper() {}
func (b tb) Errorf(format string, args ...any) {
	*b.left = append(*b.left, fmt.Sprintf(format, args...))
}

// report prints the first breach of each kind, with the history of its request.
func (w *world) report(t *testing.T) bool {
	all := w.judge.breaches
	if len(all) == 0 {
		return true
	}
	if *worldBrief {
		for _, b := range all {
			t.Errorf("BREACH seed %d (%s, %s): %s: %s", w.seed, w.o.name, w.o.net, b.kind, b.text)
		}
		return false
	}
	t.Errorf("seed %d, %d breaches; %v", w.seed, len(all), w.o)
	seen := map[string]bool{}
	for _, b := range all {
		if seen[b.kind] {
			continue
		}
		seen[b.kind] = true
		t.Logf("%s: %s", b.kind, b.text)
		if b.x != nil {
			t.Logf("request %d to %v:\n%s\n%s", b.x.id, b.x.host, strings.Join(b.x.log, "\n"),
				b.x.host.around(b.x, b.at))
		}
	}
	if *worldAll {
		t.Log(w.history())
	}
	return false
}

// around lists the host's connections, and what they did, from just before a request until its
// breach.
func (h *host) around(x *request, until time.Time) string {
	var lines []string
	from := x.born.Add(-time.Second)
	for _, d := range h.deeds {
		if d.at.After(from) && !d.at.After(until) {
			lines = append(lines, fmt.Sprintf("%12v %s", d.at.Sub(epoch).Round(time.Microsecond), d.what))
		}
	}
	for _, c := range h.conns {
		if !c.born.After(until) && (c.gone.IsZero() || c.gone.After(from)) {
			lines = append(lines, c.String())
		}
	}
	return strings.Join(lines[:min(len(lines), 40)], "\n")
}

// history is all that has happened.
func (w *world) history() string {
	var lines []string
	for _, x := range w.requests {
		for _, line := range x.log {
			lines = append(lines, fmt.Sprintf("%s %s %d: %s", line[:12], x.host.url, x.id, line[13:]))
		}
	}
	for _, h := range w.hosts {
		for _, d := range h.deeds {
			lines = append(lines, fmt.Sprintf("%12v %s: %s", d.at.Sub(epoch).Round(time.Microsecond), h.url, d.what))
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(duration(a), duration(b)) })
	for _, h := range w.hosts {
		lines = append(lines, h.String())
		for _, c := range h.conns {
			lines = append(lines, c.String())
		}
	}
	return "all:\n" + strings.Join(lines, "\n")
}

// duration is the time that a line of a history begins with.
func duration(line string) time.Duration {
	d, _ := time.ParseDuration(strings.TrimSpace(line[:12]))
	return d
}
