// Package sim is a driver with no kernel: a world of its own with seeded chance, fake time, and a
// network that delivers short, late and out of step. The whole stack runs on it with the code that
// runs on sockets, and the same seed gives the same trace, byte for byte.
//
// # One goroutine at a time
//
// The goroutines of the world (those started by [World.Go], and the tasks of [World.Executor]) run
// one at a time. The one that runs holds the world's token and hands it back where it waits: in a
// Parker's Park, in a driver's Poll (Poll(0) too: it is a turn like any other), in a blocking call
// of a connection that has been detached, and at its end. The seed chooses which goes on next. Such
// a goroutine must wait in no other way: on a channel, a mutex that another one holds while it
// waits, or a sleep. If the token does not come back within Options.Stall of real time, the world
// panics and names the holder.
//
// # Driving
//
// The test's own goroutine is not part of the world; it drives: [World.Step], [World.Run],
// [World.RunFor], [World.RunUntil], [World.Settle]. When it calls something that waits (a Park, a
// Poll, a Read of a detached connection), the call drives the world meanwhile, until what it waits
// for has happened. So a test may own a bare driver, or call an engine's blocking Shutdown. If the
// world has fallen quiet and nothing outside arrives within Options.Stall, the call panics: it
// would have waited for ever. Several goroutines outside may wait at once; they take turns at
// driving, and then the operating system's scheduler has a say in the order. A reproducible run has
// one.
//
// # Time
//
// [World.Now] begins at [Epoch]. Every step takes some microseconds; when no actor can run, time
// jumps to the next delivery or deadline.
package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/myriad-go/myriad/buf"
)

// Epoch is the instant at which every world begins.
var Epoch = time.Date(2001, time.February, 3, 4, 5, 6, 0, time.UTC)

// A World is a driver.System together with its network, its clock, its goroutines and the chance
// that moves them. Its methods may be called from any goroutine, except that only goroutines
// outside may drive.
type World struct {
	seed uint64
	o    Options

	mu   sync.Mutex
	cond *sync.Cond // for goroutines outside: something happened
	rng  *rand.Rand

	now    time.Time
	costly bool          // SetCosts was called, or Options.Costs are set
	spent  time.Duration // see Spent
	queue  timeline
	trace  trace

	// the token
	runnable []*actor
	actors   []*actor // all that live, in order of birth
	born     int
	current  *actor
	stepping bool
	stepper  uint64 // the goroutine that made the last step
	back     chan *actor
	outside  int // goroutines outside that wait
	watchdog *time.Timer
	tasks    taskQueue

	// the network
	links     int
	addresses []*address
	dials     []*dial // under way
	drivers   []*Driver
	sockets   map[*end]string // ends that belong to no driver, and their holders
	nextPort  int
	noFiles   bool // see ExhaustFiles
	blocks    int  // buf.InUse at birth
}

// New makes a world. The same seed and options give the same run, as long as what runs in it is
// deterministic itself.
func New(seed uint64, o Options) *World {
	w := &World{
		seed: seed, o: o.withDefaults(), now: Epoch,
		rng:     rand.New(rand.NewPCG(seed, 0x6d797269)),
		back:    make(chan *actor, 1), // room for one that comes too late
		sockets: map[*end]string{}, nextPort: firstPort,
		blocks: buf.InUse(),
	}
	w.costly = o.Costs != Costs{}
	w.cond = sync.NewCond(&w.mu)
	w.trace.init(w.o.TraceLines)
	return w
}

// Seed is what the world was made with.
func (w *World) Seed() uint64 { return w.seed }

// Now is fake time. It implements driver.System.
func (w *World) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// fail panics with the seed in front, for readers of a failed run's log. The lock may be held.
func (w *World) fail(format string, args ...any) {
	panic(fmt.Sprintf("sim: seed %d: %s", w.seed, fmt.Sprintf(format, args...)))
}

// chance is true with probability p.
func (w *World) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// portion is a seeded amount from 1 to n, often all of it, for n > 0.
func (w *World) portion(n int) int {
	if n <= 1 || !w.chance(w.o.Split) {
		return n
	}
	if w.chance(0.3) {
		return 1 + w.rng.IntN(min(n, 4))
	}
	return 1 + w.rng.IntN(n)
}

// latency is how long something is under way.
func (w *World) latency() time.Duration {
	most := int64(w.o.MaxDelay)
	if most <= 0 {
		return 0
	}
	switch r := w.rng.Float64(); {
	case r < 0.6:
		most = min(most, int64(100*time.Microsecond))
	case r < 0.95:
		most = min(most, int64(5*time.Millisecond))
	}
	return time.Duration(w.rng.Int64N(most + 1))
}
