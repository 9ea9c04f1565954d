package resp

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

// A client whose options are drawn at random, in a world whose server refuses, hangs, resets,
// answers early, late, half or not at all. Then the server is cured. In all of it:
//
//   - each command ends exactly once, and not later than its context by a millisecond;
//   - replies belong to their commands, and come in the order of these on one connection;
//   - no command waits while a connection has room;
//   - an attempt to connect, with all of its setup, ends within DialTimeout;
//   - a subscription gets every message that is published after it was confirmed, in order, or is
//     told that it has lost some;
//   - nothing of an ended command is kept, and no goroutine is left;
//   - in the cured world all commands end, and new ones succeed, in bounded time.
func TestClientLiveness(t *testing.T) {
	usual := uint64(200)
	if raceEnabled {
		usual = 50 // they take ten times as long
	}
	for seed := range soak.Size(t, usual, 10_000) {
		l := runLiveness(seed, false)
		for _, problem := range l.problems {
			t.Errorf("seed %d: %s", seed, problem)
		}
		if len(l.problems) > 0 {
			t.Logf("seed %d ends with:\n%s", seed, strings.Join(lastNotes(runLiveness(seed, true)), "\n"))
		}
	}
}

// lastNotes are those before the first problem.
func lastNotes(l *livenessWorld) []string {
	first := slices.IndexFunc(l.notes, func(n string) bool { return strings.Contains(n, "WRONG") })
	return l.notes[max(0, first-60):max(0, min(first+1, len(l.notes)))]
}

// A livenessWorld is one run. All of it runs one goroutine at a time: the world sees to that.
type livenessWorld struct {
	w      *sim.World
	r      *mathrand.Rand
	server *sickServer
	client *Client

	// What was drawn:
	calm    bool          // no bytes are under way at all
	fast    bool          // none are for long: timeouts may be short
	largest int           // the longest string that Limits permit
	huge    int           // so many commands may be longer than what a connection takes at once
	burst   time.Duration // how long these may keep all goroutines busy
	silence time.Duration // 0: for ever
	sick    time.Duration // how long faults happen
	bound   time.Duration // how long behind that everything has ended

	cured  time.Time // the end of sick
	well   bool      // bound is over: what begins succeeds
	closed time.Time // Client.Close was called; zero: not yet

	calls          []*livenessCall
	order, orderOf int // the last command of Start that ended, with one connection, and its connection
	subs           []*livenessSub
	lost           map[*Subscription]int // how often each was told of losses
	pushes         map[int]int           // the last push message of each connection
	stuck          int                   // probes in a row that have found commands waiting

	problems []string
	verbose  bool
	notes    []string
}

func (l *livenessWorld) now() time.Duration { return l.w.Now().Sub(sim.Epoch) }

func (l *livenessWorld) note(format string, args ...any) {
	if l.verbose {
		l.notes = append(l.notes, fmt.Sprintf("%12v ", l.now())+fmt.Sprintf(format, args...))
	}
}

// wrong notes a violation of a kind.
func (l *livenessWorld) wrong(kind, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.note("WRONG %s: %s", kind, text)
	if len(l.problems) < 20 {
		l.problems = append(l.problems, fmt.Sprintf("[%s] at %v: %s", kind, l.now(), text))
	}
}

// Errorf and Helper are for World.Check.
func (l *livenessWorld) Errorf(format string, args ...any) { l.wrong("leak", format, args...) }
func (*livenessWorld) Helper()                             {}

// runLiveness is the run of a seed. verbose has it noted what happens.
func runLiveness(seed uint64, verbose bool) (l *livenessWorld) {
	goroutines := runtime.NumGoroutine()
	l = &livenessWorld{r: mathrand.New(mathrand.NewPCG(seed, 0x6c6976)), pushes: map[int]int{},
		lost: map[*Subscription]int{}, verbose: verbose}
	l.w = sim.New(seed, l.drawWorld())
	defer func() {
		if v := recover(); v != nil {
			l.wrong("panic", "%.3000s", v)
			func() { defer func() { _ = recover() }(); l.w.Kill() }()
		}
	}()
	server, client := l.engine(), l.engine()
	l.drawServer(server)
	l.drawClient(client)
	l.begin()
	l.w.RunFor(l.sick + time.Millisecond)
	l.note("cured")
	l.server.cure()
	l.w.RunFor(l.bound)
	l.checkEnded()
	l.checkKept()
	if l.well = true; l.closed.IsZero() {
		l.checkWell()
	}
	if seed%8 == 0 {
		l.checkCollected()
	}
	if l.closed.IsZero() {
		l.closeClient()
	}
	l.end(server, client)
	l.checkGoroutines(goroutines)
	return l
}

// drawWorld draws how bytes travel.
func (l *livenessWorld) drawWorld() sim.Options {
	o := sim.Lossless()
	l.fast = l.r.IntN(2) == 0
	l.calm = l.fast && l.r.IntN(2) == 0
	switch {
	case l.calm:
		o = sim.Calm()
	case l.fast:
		o.MaxDelay, o.SmallBuffers, o.SlowPeer, o.LateFIN, o.Overstay = 100*time.Microsecond, -1, -1, -1, -1
	}
	o.Backlog = 2
	return o
}

func (l *livenessWorld) engine() *myriad.Engine {
	e, err := myriad.Start(myriad.Config{Loops: 1 + l.r.IntN(2), System: l.w, Logger: quiet()})
	if err != nil {
		panic(err)
	}
	return e
}

func (l *livenessWorld) drawServer(e *myriad.Engine) {
	r := l.r
	s := &sickServer{t: l, w: l.w, r: r, e: e, sick: true, network: "tcp", addr: "127.0.0.1:7000",
		published: map[string]int{}, helloUnknown: r.IntN(6) == 0}
	if r.IntN(3) == 0 {
		s.network, s.addr = "unix", "/sim/redis"
	}
	if r.IntN(3) == 0 {
		pair, _ := simPair()
		s.tls = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	if r.IntN(2) == 0 {
		s.user, s.password = draw(r, "", "me"), "secret"
	}
	l.server = s
}

// draw is one of these.
func draw[T any](r *mathrand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (l *livenessWorld) drawClient(e *myriad.Engine) {
	r, s := l.r, l.server
	c := &Client{Engine: e, Logger: quiet(), Network: s.network, Addr: s.addr, Username: s.user, Password: s.password,
		DB: draw(r, 0, 0, 3), Name: draw(r, "", "me"), Protocol: draw(r, 0, RESP2, RESP3), Conns: r.IntN(4),
		MaxPending: draw(r, 0, 0, 0, 1, 3, 20), Silence: draw(r, 0, -1, 5*time.Second),
		DialTimeout: draw(r, 0, 8*time.Second, 15*time.Second), OnLost: l.onLost}
	if l.fast {
		c.Silence = draw(r, c.Silence, 300*time.Millisecond, time.Second)
		c.DialTimeout = draw(r, c.DialTimeout, 100*time.Millisecond, 700*time.Millisecond)
	}
	if s.tls != nil {
		_, pool := simPair()
		c.TLSConfig = &tls.Config{ServerName: "redis.test", RootCAs: pool}
		if !l.fast {
			c.DialTimeout = 25 * time.Second // through buffers of a few bytes
		}
	}
	c.Limits = draw(r, Limits{Bulk: 200_000}, Limits{Args: 50, Bulk: 20_000, Bytes: 30_000, Depth: 6})
	l.largest = c.Limits.Bulk
	pause := mostBackoff
	if r.IntN(2) == 0 {
		pause = time.Duration(1 + r.Int64N(int64(2*time.Second)))
		c.Backoff = func(failed int) time.Duration {
			if failed < 1 {
				l.wrong("backoff", "Backoff(%d)", failed)
			}
			return min(pause, time.Duration(failed)*50*time.Millisecond+1)
		}
	}
	if r.IntN(2) == 0 {
		c.Jitter = r.Float64
	}
	if r.IntN(2) == 0 {
		c.OnPush = l.onPush
	}
	if l.fast && r.IntN(6) == 0 {
		l.huge, l.burst = 2, 20*time.Millisecond
	}
	l.client = c
	l.silence = max(0, cmp.Or(c.Silence, DefaultSilence))
	l.bound = cmp.Or(c.DialTimeout, DefaultDialTimeout) + 3*l.silence + pause + 20*time.Second
}

// begin starts all that happens while the server is sick.
func (l *livenessWorld) begin() {
	r, w := l.r, l.w
	l.sick = time.Duration(r.Int64N(int64(30 * time.Second)))
	if r.IntN(8) == 0 {
		l.sick = 1
	}
	l.cured = w.Now().Add(l.sick)
	w.Go(func() { l.server.keepAddress(l.cured) })
	w.Go(l.publish)
	for range 1 + r.IntN(6) {
		l.goCaller()
	}
	for range r.IntN(4) {
		l.goSubscriber()
	}
	if r.IntN(6) == 0 {
		w.AfterFunc(time.Duration(r.Int64N(int64(l.sick)+1)), l.closeClient)
	}
	l.probe()
}

// publish publishes at random times, until everything has ended.
func (l *livenessWorld) publish() {
	p := l.w.NewParker()
	rest := int64(2*time.Second) >> l.r.IntN(8)
	for l.w.Now().Before(l.cured.Add(l.bound - time.Second)) {
		l.server.publish(draw(l.r, channelNames...))
		p.ParkFor(time.Duration(1 + l.r.Int64N(rest)))
	}
}

// end ends the world.
func (l *livenessWorld) end(engines ...*myriad.Engine) {
	l.w.RunFor(20 * time.Second)
	for _, c := range slices.Clone(l.server.conns) {
		l.wrong("leak", "connection %d outlives the client", c.number)
		c.abort()
	}
	for _, e := range engines {
		l.w.Go(func() {
			if err := e.Shutdown(context.Background()); err != nil {
				l.wrong("leak", "shutdown: %v", err)
			}
		})
	}
	l.w.Run()
	l.w.Check(l)
}
