package sim

import "time"

// Options say how unkind the world is. The zero value has every fault on. A probability is from 0
// to 1; zero means the default that is given with it, and a negative value switches the fault off.
type Options struct {
	Split      float64 // that an amount of bytes is cut short, at any byte, wherever bytes move: 0.5
	ShortSend  float64 // that a send is taken only in part, or not at all, although there is room: 0.3
	Reset      float64 // that a connection is reset, some time in its life: 0.02
	SlowPeer   float64 // that a peer reads slowly: 0.1
	LateFIN    float64 // that a FIN travels long after the last data instead of with it: 0.3
	Accept     float64 // that accepting fails with EMFILE instead of yielding the next connection: 0.02
	Dial       float64 // that a dial is refused or times out although the address has a listener: 0.02
	Spurious   float64 // that a Poll returns early for no reason: 0.02
	Reorder    float64 // that the events of one Poll are shuffled across connections: 0.5
	InFlight   float64 // that a receive is under way when Pause is called, and still delivered: 0.3
	DropUnread float64 // that a reset takes with it what has arrived and is not read: 0.3
	LateClose  float64 // that a last event comes some time after Close, Abort or Detach: 0.3
	Overstay   float64 // that a goroutine which calls Linger is held up: 0.05
	EarlySlot  float64 // that a slot is free already when its last event is emitted, not only after: 0.5

	// SmallBuffers is the probability that a socket buffer has only a few bytes, or a few hundred:
	// 0.2. Like a kernel's, buffers that are in use grow, up to MaxBuffer (64 KiB; negative: no
	// buffer grows or varies, all have 64 KiB).
	SmallBuffers float64
	MaxBuffer    int

	// MaxDelay bounds how long bytes are under way: 200 ms. Most take less than 100 µs. Negative:
	// no delay.
	MaxDelay time.Duration

	// Workers is how many tasks of the Executor run at a time, Queue how many more wait for one: 64
	// and 256. A negative Queue is none. With OwnPools each Executor has so many, else all share
	// them.
	Workers, Queue int
	OwnPools       bool

	// Backlog is how many connections wait on a listener: 128. Others try again every second, and
	// time out in the end.
	Backlog int
	// Accepts is how many connections one Poll accepts from a listener at most: 1.
	Accepts int

	// MaxConns is how many slots a driver has: 65,536. ErrFull above.
	MaxConns int

	// Costs make the processor slow: see World.SetCosts.
	Costs Costs

	Pairs       bool // Facilities.Pair is there, so that an engine adopts any net.Conn
	NoDetach    bool // Detach fails with driver.ErrUnsupported
	ThreadBound bool // drivers panic if a call comes from another goroutine or thread than the first

	MaxSteps   int           // of one Run, RunFor, RunUntil or Settle, which panics above: 5,000,000
	TraceLines int           // kept for Trace; the hash covers all: 4,096
	Stall      time.Duration // real time after which an actor is declared stuck: 30 s
}

// Costs are how much fake time the world's one processor takes for what runs on it. With the zero
// value only steps take time, and every program is fast enough. Peers run on machines of their own:
// what they do costs nothing.
type Costs struct {
	Event  time.Duration // of each event that a driver emits, with its callback; accepts have their own
	Accept time.Duration // of each connection that a driver accepts
	Send   time.Duration // of each call of Send and SendFile
	Task   time.Duration // of each task of an Executor: a handler on a pool, a step of a handshake
}

// SetCosts changes what the processor takes. When more costs come than time passes, work gathers,
// as on a machine that is too small; RunFor then ends in the middle of it.
func (w *World) SetCosts(c Costs) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.o.Costs, w.costly = c, true
}

// Work has the processor work for d: a handler that computes, or a machine that stands still. Any
// goroutine may call it, but no callback of a peer.
func (w *World) Work(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spend(d)
}

// Spent is how long the processor has worked.
func (w *World) Spent() time.Duration { return locked(w, func() time.Duration { return w.spent }) }

// spend lets the processor work for d. The lock is held.
func (w *World) spend(d time.Duration) {
	if d > 0 {
		w.now = w.now.Add(d)
		w.spent += d
	}
}

// Calm switches every fault off: no loss, no delay, whole buffers. Goroutines are still picked by
// seed.
func Calm() Options {
	return Options{
		Split: -1, ShortSend: -1, Reset: -1, SlowPeer: -1, LateFIN: -1, Accept: -1, Dial: -1, Spurious: -1, Reorder: -1,
		InFlight: -1, DropUnread: -1, Overstay: -1, LateClose: -1, EarlySlot: -1, SmallBuffers: -1, MaxBuffer: -1,
		MaxDelay: -1,
	}
}

// Lossless is the default world without the faults that end a connection or refuse one: bytes must
// all arrive.
func Lossless() Options { return Options{Reset: -1, Accept: -1, Dial: -1} }

func (o Options) withDefaults() Options {
	for _, p := range []struct {
		field *float64
		value float64
	}{
		{&o.Split, 0.5}, {&o.ShortSend, 0.3}, {&o.Reset, 0.02}, {&o.SlowPeer, 0.1}, {&o.LateFIN, 0.3},
		{&o.Accept, 0.02},
		{&o.Dial, 0.02}, {&o.Spurious, 0.02}, {&o.Reorder, 0.5}, {&o.InFlight, 0.3}, {&o.LateClose, 0.3},
		{&o.DropUnread, 0.3},
		{&o.EarlySlot, 0.5}, {&o.Overstay, 0.05}, {&o.SmallBuffers, 0.2},
	} {
		orDefault(p.field, p.value)
	}
	orDefault(&o.MaxDelay, 200*time.Millisecond)
	orDefault(&o.Stall, 30*time.Second)
	for _, n := range []struct {
		field *int
		value int
	}{
		{&o.MaxBuffer, wholeBuffer}, {&o.Workers, 64}, {&o.Queue, 256}, {&o.Backlog, 128}, {&o.Accepts, 1},
		{&o.MaxConns, 1 << 16},
		{&o.MaxSteps, 5_000_000}, {&o.TraceLines, 4096},
	} {
		orDefault(n.field, n.value)
	}
	return o
}

func orDefault[T int | float64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}
