// Package hub is one node of a push server without the calls of programs: it holds the sessions of
// clients and the channels that they are subscribed to. All protocols share it, and it names none
// of them: each is a [Door], which is opened with the [Hub].
//
//   - door.go is the contract: Door, [Form], [Transport]. fordoors.go is what a door asks of its Hub,
//     operations.go and subscription.go what it does with the [Session] of a client. A publication
//     is encoded for a client by its door's form, in Form.Publications.
//   - channel.go receives publications from the bus, has them encoded once for each form, and offers
//     the bytes to its sessions by reference; channels.go finds the channel.
//   - session.go is one client over a transport: a WebSocket or a response that does not end
//     (transports.go). The wheel (wheel.go) calls sessions at their deadlines. admission.go says who
//     a client is.
//   - A client that reads too slowly is disconnected by Session.TooSlow, in session.go, or misses
//     publications under a policy that drops, in slow.go. recover.go sends clients that return what
//     they have missed.
package hub

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/myriad-go/myriad/server/push/guard"
	"github.com/myriad-go/myriad/server/push/policy"
	"github.com/myriad-go/myriad/workers"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/token"
)

// ErrQueueFull is returned by Transport.Send when the transport's queue is full.
var ErrQueueFull = errors.New("push: the transport's queue is full")

// publish returns these for an invalid publication. A client is answered "bad request".
var (
	ErrBadVersion = fmt.Errorf("push: the epoch of the version has more than %d bytes: %w", MaxID, answer.ErrBadRequest)
	ErrBadID      = fmt.Errorf("push: the ID has more than %d bytes: %w", MaxID, answer.ErrBadRequest)
	ErrBadData    = fmt.Errorf("push: the data is too large, or not one JSON value in UTF-8: %w",
		answer.ErrBadRequest)
)

// maxID bounds Publication.ID, in bytes.
const MaxID = 256

// A Config configures a Hub. All fields without "nil" or "zero" in their comment must be set.
type Config struct {
	Bus     bus.Bus
	Rules   *policy.Table
	Rates   policy.Rates    // zero: no limits
	Tokens  *token.Verifier // nil: clients need no token
	Keys    *guard.Keys
	Origins guard.Origins
	Limits  Limits // zero: the defaults
	Timing  Timing // zero: the defaults

	Doors   []Door // nil: no protocol
	Hooks   Hooks
	RPC     func(ctx context.Context, client Caller, method string, data []byte) ([]byte, error) // nil: no answer
	Message func(ctx context.Context, client Caller, data []byte)                                // nil: none is taken

	// Late says how late the loops are that carry the connections: see myriad.Engine.Late. nil:
	// they are never late.
	Late func() time.Duration

	Version string // as clients see it
	Clock   Clock
	Random  io.Reader // any goroutine may read it
	// OpenStream begins a response that outlives its handler, for simulation; nil: with
	// web.Detached.
	OpenStream func(w http.ResponseWriter) (ResponseStream, error)
	Logger     *slog.Logger
	// Console says that there is a console, which shows the latest refusals.
	Console bool
}

// A Hub is one node of a push server, without the calls of programs: sessions, channels, bus and
// time.
type Hub struct {
	id       clientID // names the node
	rules    *policy.Table
	bus      bus.Bus
	local    bus.Local // bus, if it is one; else nil
	channels *channels
	wheel    *wheel
	count    *counters
	tokens   *token.Verifier // nil: clients need no token
	limits   Limits
	timing   Timing
	clock    Clock
	log      *slog.Logger
	version  string

	onRPC     func(ctx context.Context, client Caller, method string, data []byte) ([]byte, error)
	onMessage func(ctx context.Context, client Caller, data []byte)
	hooks     Hooks
	remember  bool // hooks want to know their callers
	callers   callers
	regexes   policy.RegexCache // of capabilities
	rates     policy.Limiters

	keys       *guard.Keys
	origins    guard.Origins
	pool       *workers.Pool // for commands
	openStream func(w http.ResponseWriter) (ResponseStream, error)

	console  bool
	slowest  slowLog // disconnected clients
	droppers slowLog // clients that missed publications under a policy that drops
	refusals refusals

	random random

	forms []formEntry // of all doors
	held  held

	// sessionKey makes the ids of sessions that have no other secret.
	sessionKey struct {
		once sync.Once
		key  [32]byte
	}

	timerMu   sync.Mutex
	stopTimer func() bool
	closed    bool

	gate     gate          // each publish runs inside of it; shut: the node drains
	sessions atomic.Int64  // sessions that have not ended, watchers included
	lastGone chan struct{} // closed when the node drains and the last session has ended
	goneOnce sync.Once     // closes lastGone
}

// New returns a hub whose clock stands still. The caller opens the doors with it, and then calls
// StartClock. It returns an error if the doors have more forms than Door allows.
func New(c Config) (*Hub, error) {
	if err := errors.Join(checkForms(c.Doors), c.Rates.Check()); err != nil {
		return nil, err
	}
	h := &Hub{
		rules: c.Rules, bus: c.Bus, count: new(counters), tokens: c.Tokens, limits: c.Limits.WithDefaults(),
		timing: c.Timing.withDefaults(), clock: c.Clock, log: c.Logger, version: c.Version, onRPC: guardedRPC(c.RPC),
		onMessage: guardedMessage(c.Message, c.Logger), hooks: c.Hooks.guarded(), remember: c.Hooks.any() ||
			c.RPC != nil || c.Message != nil,
		keys: c.Keys, origins: c.Origins, console: c.Console, random: random{c.Random},
	}
	h.id = h.random.newClientID()
	h.pool = workers.New(workers.Config{Workers: commandWorkers + max(c.Hooks.AtOnce, 0), Queue: commandQueue,
		Logger: c.Logger})
	if h.openStream = c.OpenStream; h.openStream == nil {
		h.openStream = h.detach
	}
	h.rates.Set(c.Rates)
	h.open(c.Doors)
	h.wheel.lateness.of = c.Late
	return h, nil
}

func (h *Hub) open(doors []Door) {
	h.local, _ = h.bus.(bus.Local)
	h.channels = newChannels(h)
	h.wheel = newWheel(h.clock.Now())
	h.forms = newForms(doors)
	h.lastGone = make(chan struct{})
}

// StartClock lets the hub's time run, until Shutdown: sessions have their pings and deadlines. tick
// is called about every 250 ms, one call at a time; nil: nothing is. It is called once.
func (h *Hub) StartClock(tick func(now time.Time)) {
	h.timerMu.Lock()
	defer h.timerMu.Unlock()
	if h.closed {
		return
	}
	h.stopTimer = h.clock.AfterFunc(wheelSlot, func() {
		h.wheel.sweep(h.clock.Now())
		if tick != nil {
			tick(h.clock.Now())
		}
		h.StartClock(tick)
	})
}

// publish sends p to all subscribers of the channel. When it returns nil, p is queued, and drain
// sends it before it ends the connections. If the caller is at fault, the error is an
// Error. p.Data may be any JSON text in UTF-8 (RFC 8259 §8.1). publish checks the UTF-8
// itself, because encoding/json does not. Data goes into text frames unchanged, and text that is
// not UTF-8 would make every subscriber fail its connection (RFC 6455 §8.1).
func (h *Hub) publish(ctx context.Context, channel string, p bus.Publication) (bus.Position, error) {
	return h.Publish(ctx, channel, p, false, false)
}

// Publish publishes p. With skipHistory the publication is not in the channel's history and
// cannot be recovered. exact is that of publishWith.
func (h *Hub) Publish(ctx context.Context, channel string, p bus.Publication, skipHistory, exact bool) (
	bus.Position, error) {
	keep := h.rules.Of(channel).Retention()
	if skipHistory {
		keep = bus.Retention{}
	}
	return h.publishWith(ctx, channel, p, keep, exact)
}

// publishWith is publish with a Retention instead of the channel's own. exact says that the data
// came as bytes: JSON in them keeps its spaces.
func (h *Hub) publishWith(ctx context.Context, channel string, p bus.Publication, keep bus.Retention, exact bool) (
	bus.Position, error) {
	if err := h.rules.Check(channel); err != nil {
		return bus.Position{}, err
	}
	if len(p.ID) > MaxID {
		return bus.Position{}, ErrBadID
	}
	if p.Version != nil && len(p.Version.Epoch) > MaxID {
		return bus.Position{}, ErrBadVersion
	}
	var ok bool
	if p.Data, ok = checked(&p, exact); !ok || p.Size() > h.limits.Publication {
		return bus.Position{}, ErrBadData
	}
	if !h.gate.enter() {
		return bus.Position{}, answer.ErrDraining
	}
	defer h.gate.leave()
	return h.publishTopic(ctx, bus.Topic{Name: channel, Keep: keep}, p)
}

// publishTopic passes p to the bus. The caller has entered the gate.
func (h *Hub) publishTopic(ctx context.Context, t bus.Topic, p bus.Publication) (bus.Position, error) {
	began := h.clock.Now()
	ctx, cancel := h.deadline(ctx)
	defer cancel()
	at, err := h.bus.Publish(ctx, t, p)
	if err != nil {
		return at, err
	}
	h.count.latency.observe(h.clock.Now().Sub(began))
	h.count.publishes.Add(1)
	return at, nil
}

// checked returns p.Data as a Bus carries it. It is not ok if it is not of p.Kind. JSON allows
// newlines between tokens, but a newline ends a command of the protocol and a field of an event.
func checked(p *bus.Publication, exact bool) (data []byte, ok bool) {
	if p.Kind != bus.Binary && !utf8.Valid(p.Data) {
		return nil, false
	}
	if p.Kind != bus.JSON {
		return p.Data, true
	}
	if exact && !bytes.ContainsAny(p.Data, "\r\n") {
		return bytes.Clone(p.Data), json.Valid(p.Data)
	}
	data, err := CompactJSON(p.Data)
	return data, err == nil
}

// CompactJSON returns JSON without spaces and newlines between its tokens.
func CompactJSON(text []byte) ([]byte, error) {
	var compact bytes.Buffer
	compact.Grow(len(text))
	err := json.Compact(&compact, text)
	return compact.Bytes(), err
}

// busPatience is how long a method of the bus may wait for other nodes. An election among them
// takes up to 9 s.
const busPatience = 15 * time.Second

// deadline returns ctx with an end after busPatience. A bus within this process does not wait, and
// needs none.
func (h *Hub) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if h.local != nil {
		return ctx, func() {}
	}
	return h.within(ctx, busPatience)
}

// within returns ctx with an end after d, as context.WithTimeout does, by the node's clock.
func (h *Hub) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := h.clock.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return timedContext{ctx}, func() {
		stop()
		cancel(nil)
	}
}

// A timedContext returns the cause of its end from Err: context.DeadlineExceeded after its time.
type timedContext struct{ context.Context }

func (c timedContext) Err() error {
	if c.Context.Err() == nil {
		return nil
	}
	return context.Cause(c.Context)
}

// Topic returns the channel with the retention of its rules.
func (h *Hub) Topic(channel string) bus.Topic {
	return bus.Topic{Name: channel, Keep: h.rules.Of(channel).Retention()}
}

// Drain makes the hub refuse publications and clients. It returns when the running publications
// are queued for all subscribers, or with ctx's error.
func (h *Hub) Drain(ctx context.Context) error {
	h.gate.shut()
	return h.gate.wait(ctx)
}

// drain disconnects every client with "shutdown", after everything queued for it. It returns when
// all sessions have ended, or with ctx's error. Clients are disconnected in both cases.
func (h *Hub) drain(ctx context.Context) error {
	_ = h.Drain(ctx) // if publications still run then, ctx has ended
	list := h.wheel.all()
	if err := h.spread(ctx, len(list), func(i int) { list[i].Disconnect(answer.DisconnectShutdown) }); err != nil {
		return err
	}
	h.checkGone()
	select {
	case <-h.lastGone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spreadStep is the time between two parts of a spread.
const spreadStep = 50 * time.Millisecond

// spread calls f with the numbers below count, over Timing.Spread: other nodes get the clients of
// this one a part at a time.
func (h *Hub) spread(ctx context.Context, count int, f func(int)) error {
	steps := max(1, int(h.timing.Spread/spreadStep))
	for step := range steps {
		for i := step * count / steps; i < (step+1)*count/steps; i++ {
			f(i)
		}
		if step == steps-1 || count == 0 {
			continue
		}
		next := make(chan struct{})
		stop := h.clock.AfterFunc(spreadStep, func() { close(next) })
		select {
		case <-next:
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
	}
	return nil
}

func (h *Hub) isDraining() bool { return h.gate.isShut.Load() }

// gone counts a session that has ended.
func (h *Hub) gone(s *Session) {
	h.count.connections.Add(-s.counted())
	h.sessions.Add(-1)
	if h.isDraining() {
		h.checkGone()
	}
}

func (h *Hub) checkGone() {
	if h.sessions.Load() == 0 {
		h.goneOnce.Do(func() { close(h.lastGone) })
	}
}

// Shutdown drains, and then closes the bus: see push.Server.Shutdown.
func (h *Hub) Shutdown(ctx context.Context) error {
	return errors.Join(h.drain(ctx), h.pool.Close(ctx), h.close())
}

// close stops the clock, closes the bus and releases the node's messages. No session may be used
// afterwards.
func (h *Hub) close() error {
	h.timerMu.Lock()
	if h.closed {
		h.timerMu.Unlock()
		return nil
	}
	h.closed = true
	if h.stopTimer != nil {
		h.stopTimer()
	}
	h.timerMu.Unlock()
	h.wheel.sweeping.Lock() // waits for a running sweep
	defer h.wheel.sweeping.Unlock()
	for _, f := range h.forms {
		f.pings.Release()
	}
	return h.bus.Close()
}

// A clientID names a connection in the whole cluster: a random UUID (RFC 9562 §5.4).
type clientID [16]byte

func (id clientID) String() string {
	var b [36]byte
	at := 0
	for i, c := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			b[at] = '-'
			at++
		}
		at += hex.Encode(b[at:], []byte{c})
	}
	return string(b[:])
}

// firstPing returns a random time between half a ping interval and a whole one, so that clients
// that connect together are pinged at different times.
func (h *Hub) firstPing() time.Duration { return h.timing.Ping/2 + h.random.upTo(h.timing.Ping/2) }

// random is a source of randomness, which any goroutine may read.
type random struct{ io.Reader }

func (r random) newClientID() (id clientID) {
	r.fill(id[:])
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// upTo returns a random duration below d.
func (r random) upTo(d time.Duration) time.Duration {
	var b [4]byte
	r.fill(b[:])
	return time.Duration(float64(d) * float64(binary.BigEndian.Uint32(b[:])) / (1 << 32))
}

// fill fills p. It panics if that fails, because client ids must be unpredictable.
func (r random) fill(p []byte) {
	if _, err := io.ReadFull(r.Reader, p); err != nil {
		panic("push: no randomness for client ids: " + err.Error())
	}
}

// A gate counts the publications that run, until it is shut. Its methods may be called by any
// goroutine; only wait waits. The zero gate is open.
type gate struct {
	running atomic.Int64
	isShut  atomic.Bool

	mu      sync.Mutex
	waiters []chan struct{} // closed when none has run after the gate was shut
}

// enter lets a publication run, which ends with leave, unless the gate is shut.
func (g *gate) enter() bool {
	g.running.Add(1)
	if g.isShut.Load() {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.running.Add(-1) > 0 || !g.isShut.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waiters {
		close(w)
	}
	g.waiters = nil
}

func (g *gate) shut() { g.isShut.Store(true) }

// wait returns when no publication runs any more, or with ctx's error. It is called after shut.
func (g *gate) wait(ctx context.Context) error {
	idle := make(chan struct{})
	g.mu.Lock()
	if g.running.Load() == 0 { // leave, which takes the lock after that, would close none
		g.mu.Unlock()
		return nil
	}
	g.waiters = append(g.waiters, idle)
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
