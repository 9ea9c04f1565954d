package push_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/doors/redis"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/membus"
	"github.com/myriad-go/myriad/web"
)

// This file is a world of a push server, its clients and its operators. A seed draws the options of
// the server and what clients and programs do. The network is simulated and time is fake. The world
// knows only what users know: the Go API, the HTTP API, and the protocols of the doors.
// worldclient_test.go and worldothers_test.go have its clients, worldjudge_test.go has what is
// checked when the world is quiet.

// TestWorlds draws worlds. MYRIAD_PUSH_SEED names the first one, and MYRIAD_PUSH_SEEDS says how
// many there are.
func TestWorlds(t *testing.T) {
	first, count := uint64(0), soak.Size(t, uint64(100), uint64(5000))
	if testing.Short() {
		count = 20
	}
	for name, number := range map[string]*uint64{"MYRIAD_PUSH_SEED": &first, "MYRIAD_PUSH_SEEDS": &count} {
		if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			*number = n
		}
	}
	quiet, restless := 0, 0
	for seed := first; seed < first+count; seed++ {
		w := runWorld(t, seed)
		quiet, restless = quiet+w.quiet, restless+w.restless
		if t.Failed() {
			t.Fatalf("seed %d; its world: %s", seed, describeWorld(t, seed))
		}
	}
	if restless > quiet/20 {
		t.Errorf("worlds came to rest %d times, and did not %d times", quiet, restless)
	}
}

// A world is a server with its clients.
type world struct {
	*sim.World
	t      *testing.T
	seed   uint64
	random *rand.Rand // of what clients and programs do; the test's goroutine alone uses it
	o      worldOptions

	clock  *worldClock
	bus    *worldBus
	server *push.Server
	seam   *servertest.Seam // of server
	web    *web.Server
	engine *myriad.Engine
	addr   *web.Listener
	redis  *resp.Server
	redisA myriadAddr
	other  *worldNode // a second node; nil: there is none, or it has been shut down
	shut   bool       // it has been shut down, or is about to be

	hooks   worldHooks
	clients []*socketClient
	readers []*eventClient
	resps   []*redisClient
	calls   []*httpCall

	pushes    int            // that clients have received
	quiet     int            // how often the world came to rest
	restless  int            // how often it did not
	lastID    int            // of publications
	accepted  map[int]string // the channels of publications that the server has accepted, by id
	refused   map[int]string // likewise for those that it must not have made
	forgotten map[string]int // by channel: how much of its log RemoveHistory has dropped
	stopping  bool
	trace     []string // what has happened, for a failed test
}

// A worldNode is a second node on the same bus.
type worldNode struct {
	server *push.Server
	seam   *servertest.Seam // of server
	web    *web.Server
	addr   *web.Listener
}

// api returns one of the nodes: they answer the same.
func (w *world) api() *push.Server {
	if w.other != nil && w.random.IntN(2) == 0 {
		return w.other.server
	}
	return w.server
}

// node returns the address of one of the nodes.
func (w *world) node() myriadAddr {
	if w.other != nil && !w.shut && w.random.IntN(2) == 0 {
		return w.other.addr.Addr()
	}
	return w.addr.Addr()
}

// myriadAddr is the address of a listener.
type myriadAddr interface {
	Network() string
	String() string
}

// worldOptions are what a seed draws.
type worldOptions struct {
	faults    sim.Options
	config    push.Config
	tokens    bool
	tokenLife time.Duration
	steps     int
	sockets   int
	events    int
	redis     int
	slowHooks bool
	badHooks  bool // hooks refuse
	panics    bool
	reload    bool
	two       bool // there are two nodes
}

const worldSecret = "a secret that is long enough for HS256"

// drawWorld draws the options of a world.
func drawWorld(r *rand.Rand) (o worldOptions) {
	chance := func(percent int) bool { return r.IntN(100) < percent }
	switch {
	case chance(40):
		o.faults = sim.Calm()
	case chance(50):
		o.faults = sim.Lossless()
	}
	o.faults.MaxSteps = 1 << 30
	// Clients are slow as the seed says: a network that takes minutes does not come to rest.
	o.faults.SlowPeer, o.faults.Dial = -1, -1
	o.steps = 30 + r.IntN(60)
	o.sockets, o.events, o.redis = 1+r.IntN(6), r.IntN(4), r.IntN(3)
	o.tokens, o.reload = chance(40), chance(30)
	o.tokenLife = time.Duration(6+r.IntN(60)) * time.Second
	c := &o.config
	if o.tokens {
		c.TokenSecret = worldSecret
	}
	c.DisableConsole = chance(50)
	c.DenyClientPublish = chance(10)
	c.Limits = push.Limits{Queue: 8<<10 + r.IntN(96<<10), Publication: 4 << 10}
	if chance(20) {
		c.Limits.Channels = 6 + r.IntN(3) // personal channels and those of tokens are six
	}
	if chance(20) {
		c.Limits.Recovered = 1 + r.IntN(20)
	}
	if chance(15) {
		c.Limits.HistoryChannels = 1 + r.IntN(3)
	}
	if chance(15) {
		c.Limits.HistoryBytes = 4<<10 + r.IntN(16<<10)
	}
	if chance(15) {
		c.Limits.Present = 1 + r.IntN(3)
	}
	if chance(10) {
		c.Limits.Commands = 1 + r.IntN(4)
	}
	c.Timing = push.Timing{Ping: time.Duration(2+r.IntN(30)) * time.Second,
		Refresh: time.Duration(1+r.IntN(10)) * time.Second,
		Connect: time.Minute}
	if chance(20) {
		c.Timing.Spread = time.Duration(r.IntN(3000)) * time.Millisecond
	}
	if chance(15) {
		rate := func() push.Rate {
			if chance(50) {
				return push.Rate{}
			}
			return push.Rate{Count: 1 + r.IntN(10), Per: time.Duration(1+r.IntN(5)) * time.Second}
		}
		c.Rates = push.Rates{UserConnections: rate(), AddressConnections: rate(), UserSubscriptions: rate(),
			AddressSubscriptions: rate(), UserPublications: rate(), AddressPublications: rate(), UserCommands: rate(),
			AddressCommands: rate(), AddressCalls: rate()}
	}
	o.two = chance(30)
	o.slowHooks, o.badHooks, o.panics = chance(30), chance(40), chance(30)
	if o.tokens || chance(60) {
		o.slowHooks, o.badHooks, o.panics = false, false, false
	}
	for _, name := range []string{"", "a", "b", "c"} {
		if chance(80) {
			c.Namespaces = append(c.Namespaces, drawNamespace(r, name, o.tokens, o.hooked()))
		}
	}
	return o
}

func (o *worldOptions) hooked() bool { return o.slowHooks || o.badHooks || o.panics }

// drawNamespace draws the rules of a namespace.
func drawNamespace(r *rand.Rand, name string, tokens, hooked bool) (ns push.Namespace) {
	chance := func(percent int) bool { return r.IntN(100) < percent }
	ns.Name = name
	if chance(60) {
		ns.HistorySize = 1 + r.IntN(40)
		ns.Recovery = chance(80)
		if chance(50) {
			ns.HistoryAge = time.Duration(1+r.IntN(60)) * time.Second
		}
	}
	ns.Presence, ns.JoinLeave = chance(60), chance(40)
	ns.PushJoinLeave = ns.JoinLeave && chance(50)
	ns.Publish = []push.PublishRule{"", "", push.PublishClients, push.PublishSubscribers, push.PublishNobody}[r.IntN(5)]
	ns.Slow = []push.SlowPolicy{"", push.SlowDisconnect, push.SlowDropOldest, push.SlowLatestOnly}[r.IntN(4)]
	if ns.Slow == push.SlowDropOldest && chance(50) {
		ns.SlowQueue = 1 + r.IntN(16<<10)
	}
	if tokens {
		ns.SubscribeToken = chance(25)
		if chance(20) {
			ns.Publish = push.PublishToken
		}
		ns.Personal = chance(25)
		ns.UserLimited = chance(10)
	}
	if hooked {
		ns.SubscribeHook, ns.PublishHook = chance(40), chance(40)
		ns.SubRefreshHook = ns.SubscribeHook && chance(50)
	}
	if chance(10) {
		ns.ChannelRegex = "^[1-3].*$"
	}
	return ns
}

// runWorld runs the world of a seed.
func runWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := newWorld(t, seed)
	w.populate()
	for step := range w.o.steps {
		w.act()
		w.pass(time.Duration(w.random.IntN(400)) * time.Millisecond)
		if step%20 == 19 {
			w.judge()
		}
		if t.Failed() {
			w.report()
			return w
		}
	}
	w.judge()
	if !t.Failed() {
		w.end()
	}
	if t.Failed() {
		w.report()
	}
	return w
}

// describeWorld returns the options of a seed's world.
func describeWorld(t *testing.T, seed uint64) string {
	o := drawWorld(rand.New(rand.NewPCG(seed, 1)))
	o.config.Hooks = push.Hooks{}
	return fmt.Sprintf("%+v", o)
}

// report logs what has happened.
func (w *world) report() {
	trace := w.trace
	if len(trace) > 150 {
		trace = trace[len(trace)-150:]
	}
	w.t.Logf("seed %d:\n%s", w.seed, strings.Join(trace, "\n"))
}

func (w *world) note(format string, args ...any) {
	if len(w.trace) > 4000 {
		w.trace = append(w.trace[:0], w.trace[2000:]...)
	}
	w.trace = append(w.trace, fmt.Sprintf("%8.3fs ", w.Now().Sub(sim.Epoch).Seconds())+fmt.Sprintf(format, args...))
}

// fail reports a broken promise.
func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.note("FAILED: "+format, args...)
	w.t.Errorf("seed %d: "+format, append([]any{w.seed}, args...)...)
}

// newWorld returns the world of a seed, without clients.
func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	return openWorld(t, seed, drawWorld(rand.New(rand.NewPCG(seed, 1))))
}

// openWorld returns a world with these options, without clients.
func openWorld(t *testing.T, seed uint64, o worldOptions) *world {
	t.Helper()
	buf.CheckLeaks(t)
	w := &world{World: sim.New(seed, o.faults), t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 2)), o: o,
		accepted: map[int]string{}, refused: map[int]string{}, forgotten: map[string]int{}}
	log := slog.New(slog.NewTextHandler(worldLog{w}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	if w.engine, err = myriad.Start(myriad.Config{Loops: 2, System: w.World, Logger: log}); err != nil {
		t.Fatal(err)
	}
	w.clock = &worldClock{w: w.World}
	w.bus = &worldBus{w: w, logs: map[string]*channelLog{}, receivers: map[receiverKey]*worldReceiver{}}
	c := o.config
	w.bus.Bus = membus.New(membus.Config{Clock: w.clock, Random: rand.NewChaCha8([32]byte{1}),
		HistoryBytes: c.Limits.HistoryBytes, HistoryChannels: c.Limits.HistoryChannels})
	w.bus.Tap(w.bus.published)
	c.Clock, c.Random, c.Logger, c.Bus = w.clock, rand.NewChaCha8([32]byte{2}), log, w.bus
	c.Engine = w.engine
	w.seam = new(servertest.Seam)
	c.Doors = append(doors.All(doors.Config{Mercure: mercure.Config{Anonymous: true}}), w.seam)
	w.hooks = worldHooks{w: w, random: rand.New(rand.NewPCG(seed, 3))}
	if o.hooked() {
		c.Hooks = w.hooks.all(o)
	}
	c.RPC = w.hooks.rpc
	c.Message = func(context.Context, push.Caller, []byte) {}
	w.o.config = c
	if w.server, err = push.New(c); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	w.web = &web.Server{Handler: w.server, Engine: w.engine, ErrorLog: slog.NewLogLogger(log.Handler(),
		slog.LevelError)}
	if w.addr, err = w.web.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if o.two {
		w.other = w.openOther(c, log)
	}
	w.redis = redis.Listener(w.server, w.engine)
	l, err := w.redis.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.redisA = l.Addr()
	return w
}

// openOther opens the second node.
func (w *world) openOther(c push.Config, log *slog.Logger) *worldNode {
	w.t.Helper()
	c.Node, c.Random = "other", rand.NewChaCha8([32]byte{3})
	n := &worldNode{seam: new(servertest.Seam)}
	c.Doors = append(doors.All(doors.Config{Mercure: mercure.Config{Anonymous: true}}), n.seam)
	var err error
	if n.server, err = push.New(c); err != nil {
		w.t.Fatal(err)
	}
	n.web = &web.Server{Handler: n.server, Engine: w.engine, ErrorLog: w.web.ErrorLog}
	if n.addr, err = n.web.Listen("tcp", "127.0.0.1:0"); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// shutOther shuts the second node down. Its clients go to the first one.
func (w *world) shutOther() {
	w.note("the other node shuts down")
	w.shut = true
	n := w.other
	ctx := context.Background()
	if err := w.await(func() error { return n.server.Shutdown(ctx) }); err != nil {
		w.fail("the other node: %v", err)
	}
	w.other = nil
	if err := n.web.Shutdown(ctx); err != nil {
		w.fail("the other node: %v", err)
	}
}

// worldLog writes the server's log into the world's trace.
type worldLog struct{ w *world }

var worldLogMu sync.Mutex

func (l worldLog) Write(p []byte) (int, error) {
	worldLogMu.Lock()
	defer worldLogMu.Unlock()
	text := string(p)
	if i := strings.Index(text, "level="); i >= 0 {
		text = text[i:]
	}
	if len(text) > 300 && !strings.Contains(text, "panic") {
		text = text[:300]
	}
	l.w.hooks.mu.Lock()
	l.w.hooks.logged = append(l.w.hooks.logged, strings.TrimSpace(text))
	l.w.hooks.mu.Unlock()
	return len(p), nil
}

// A worldClock has the time of the simulated world. Its timers fire on the test's goroutine,
// between steps of the world.
type worldClock struct {
	w      *sim.World
	mu     sync.Mutex
	timers []*worldTimer
}

type worldTimer struct {
	at time.Time
	f  func()
}

func (c *worldClock) Now() time.Time { return c.w.Now() }

func (c *worldClock) AfterFunc(d time.Duration, f func()) func() bool {
	timer := &worldTimer{c.w.Now().Add(d), f}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers = append(c.timers, timer)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.timers, timer)
		if i >= 0 {
			c.timers = slices.Delete(c.timers, i, i+1)
		}
		return i >= 0
	}
}

// fire runs the timers that are due.
func (c *worldClock) fire() {
	for {
		c.mu.Lock()
		now, next := c.w.Now(), -1
		for i, timer := range c.timers {
			if !timer.at.After(now) && (next < 0 || timer.at.Before(c.timers[next].at)) {
				next = i
			}
		}
		if next < 0 {
			c.mu.Unlock()
			return
		}
		f := c.timers[next].f
		c.timers = slices.Delete(c.timers, next, next+1)
		c.mu.Unlock()
		f()
	}
}

// tick is how far the network runs between two looks at timers and clients.
const tick = 50 * time.Millisecond

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	for ; d > 0; d -= tick {
		w.RunFor(min(d, tick))
		w.awaitWorkers()
		w.clock.fire()
		for _, c := range w.clients {
			c.step()
		}
		for _, r := range w.readers {
			r.step()
		}
		for _, r := range w.resps {
			r.step()
		}
		w.calls = slices.DeleteFunc(w.calls, (*httpCall).step)
		w.takeLog()
		w.checkMemory()
	}
}

func (w *world) takeLog() {
	w.hooks.mu.Lock()
	logged := w.hooks.logged
	w.hooks.logged = nil
	w.hooks.mu.Unlock()
	for _, line := range logged {
		w.note("log: %s", line)
		if strings.Contains(line, "panic") && !strings.Contains(line, hookPanic) {
			w.fail("the server has panicked: %s", line)
		}
	}
}

// awaitWorkers waits for goroutines that are not of the simulated world: the pool's. Those that
// wait in a hook wait for the world's time.
func (w *world) awaitWorkers() {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Microsecond) {
		s := w.seam.Workers().Stats()
		busy := s.Running + s.Queued
		if w.other != nil {
			more := w.other.seam.Workers().Stats()
			busy += more.Running + more.Queued
		}
		if busy <= int(w.hooks.waiting.Load()) {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("seed %d: the pool does not come to rest: %+v", w.seed, s)
		}
	}
}

// checkMemory checks that no client's queue is above its limit.
func (w *world) checkMemory() {
	l := w.seam.Limits()
	each := l.Queue + hub.QueueSlack + l.Publication + 4<<10
	conns := w.engine.Stats().Conns
	if queued := w.engine.Stats().Queued; queued > int64(each)*int64(max(conns, 1)) {
		w.fail("%d bytes are queued for %d connections", queued, conns)
	}
}

// settle lets all clients read, and waits until nothing is under way. It reports false if clients
// come and go all the time, because they are refused or are expired by the options.
func (w *world) settle() (quiet bool) {
	w.note("settle")
	for _, c := range w.clients {
		c.read(true)
	}
	for _, r := range w.readers {
		r.read(true)
	}
	for _, r := range w.resps {
		r.read(true)
	}
	for range 400 {
		if w.pass(100 * time.Millisecond); !w.isQuiet() {
			continue
		}
		// A slow network is still delivering, or a slow client gets what waited for it.
		if before := w.pushes; w.waitQuietly() && w.pushes == before {
			w.quiet++
			return true
		}
	}
	w.restless++
	for _, c := range w.clients {
		if c.peer != nil && w.Now().Sub(c.opened) > 30*time.Second && c.unanswered() {
			w.fail("%s waits for answers to %v since its connection is open", c.name, c.asked)
		}
	}
	return false
}

// waitQuietly lets two seconds pass, and reports whether nothing is under way then.
func (w *world) waitQuietly() bool {
	w.pass(2 * time.Second)
	return w.isQuiet()
}

func (w *world) isQuiet() bool {
	for _, c := range w.clients {
		if !c.isQuiet() {
			return false
		}
	}
	for _, r := range w.readers {
		if !r.isQuiet() {
			return false
		}
	}
	for _, r := range w.resps {
		if !r.isQuiet() {
			return false
		}
	}
	return len(w.calls) == 0 && w.hooks.waiting.Load() == 0
}

// channel draws the name of a channel.
func (w *world) channel() string {
	names := []string{"1", "2", "a:1", "a:2", "b:1", "b:2", "c:1", "c:2", "c:3", "a:x"}
	if w.o.tokens && w.random.IntN(6) == 0 {
		return []string{"a:", "b:", "c:", ""}[w.random.IntN(4)] + "#" + w.user()
	}
	return names[w.random.IntN(len(names))]
}

func (w *world) user() string { return []string{"ann", "bob", "cid"}[w.random.IntN(3)] }

// rules returns the rules of a channel.
func (w *world) rules(channel string) *push.Namespace { return w.seam.Rules(channel) }

// A worldBus is a bus within the process that notes what is published.
type worldBus struct {
	*membus.Bus
	w *world

	mu        sync.Mutex
	logs      map[string]*channelLog
	receivers map[receiverKey]*worldReceiver
}

type receiverKey struct {
	channel string
	r       bus.Receiver
}

// A channelLog has all publications of a channel in the order in which its subscribers get them.
type channelLog struct {
	list  []published
	index map[int]int // by id
}

type published struct {
	id   int
	at   push.Position
	tags map[string]string
	data string
	when time.Time
}

func (b *worldBus) published(channel string, list []push.Publication) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.logs[channel]
	if l == nil {
		l = &channelLog{index: map[int]int{}}
		b.logs[channel] = l
	}
	for _, p := range list {
		id := idIn(string(p.Data))
		if _, twice := l.index[id]; twice {
			b.w.t.Errorf("seed %d: publication %d of %s is made twice", b.w.seed, id, channel)
		}
		l.index[id] = len(l.list)
		l.list = append(l.list, published{id, p.Position, p.Tags, string(p.Data), b.w.Now()})
	}
}

// log returns the log of a channel.
func (b *worldBus) log(channel string) *channelLog {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.logs[channel] == nil {
		b.logs[channel] = &channelLog{index: map[int]int{}}
	}
	return b.logs[channel]
}

// A worldReceiver counts what is subscribed, and can lose publications.
type worldReceiver struct {
	bus.Receiver
}

func (b *worldBus) Subscribe(ctx context.Context, t bus.Topic, r bus.Receiver) error {
	err := b.Bus.Subscribe(ctx, t, r)
	if err == nil {
		b.mu.Lock()
		b.receivers[receiverKey{t.Name, r}] = &worldReceiver{r}
		b.mu.Unlock()
	}
	return err
}

func (b *worldBus) Unsubscribe(channel string, r bus.Receiver) {
	b.Bus.Unsubscribe(channel, r)
	b.mu.Lock()
	delete(b.receivers, receiverKey{channel, r})
	b.mu.Unlock()
}

// loses tells the receivers of a channel that something may be missing.
func (b *worldBus) loses(channel string) {
	b.mu.Lock()
	var told []bus.Receiver
	for key := range b.receivers {
		if key.channel == channel {
			told = append(told, key.r)
		}
	}
	b.mu.Unlock()
	for _, r := range told {
		r.Lost(channel)
	}
}

// subscribed returns the channels that have receivers, without logs of doors.
func (b *worldBus) subscribed() (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.receivers {
		if key.channel[0] != 0 {
			list = append(list, key.channel)
		}
	}
	slices.Sort(list)
	return list
}

// end ends the world in one of two ways, and checks that nothing is left.
func (w *world) end() {
	w.stopping = true
	if w.random.IntN(2) == 0 {
		w.note("everybody leaves")
		for _, c := range w.clients {
			c.leave()
		}
		for _, r := range w.readers {
			r.leave()
		}
		for _, r := range w.resps {
			r.leave()
		}
		w.pass(w.seam.Timing().Close + 12*time.Second)
		w.nothingIsLeft()
	} else {
		w.note("shut down")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := w.await(func() error { return w.redis.Shutdown(ctx) }); err != nil {
		w.fail("redis: %v", err)
	}
	if w.other != nil {
		w.shutOther()
	}
	if w.random.IntN(2) == 0 {
		w.server.Drain()
		if err := w.server.Publish(ctx, "1", []byte("1")); !errors.Is(err, push.ErrDraining) {
			w.fail("Publish behind Drain: %v", err)
		}
	}
	if err := w.await(func() error { return w.server.Shutdown(ctx) }); err != nil {
		w.fail("server: %v", err)
	}
	w.pass(5 * time.Second) // the last bytes are on their way
	for _, c := range w.clients {
		c.checkShutdown()
	}
	for _, end := range []func(context.Context) error{w.web.Shutdown, w.engine.Shutdown} {
		if err := end(ctx); err != nil {
			w.fail("shutdown: %v", err)
		}
	}
	w.Run()
	w.Check(w.t)
	if left := len(w.bus.receivers); left > 0 {
		w.fail("behind the end the bus has %d receivers", left)
	}
	if err := w.bus.Close(); err != nil {
		w.fail("the bus: %v", err)
	}
}

// await runs f on a goroutine of its own while time passes.
func (w *world) await(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	for range 20_000 {
		select {
		case err := <-done:
			return err
		default:
			w.pass(tick)
			time.Sleep(10 * time.Microsecond) // f's goroutine is not of this world, and needs a processor
		}
	}
	return errors.New("it does not end")
}

// describe returns what an error says, or ok.
func describe(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}
