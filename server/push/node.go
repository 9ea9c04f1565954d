package push

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
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/token"
)

// ErrQueueFull is returned by Transport.Send when the transport's queue is full.
var ErrQueueFull = errors.New("push: the transport's queue is full")

// publish returns these for an invalid publication. A client is answered "bad request".
var (
	errBadVersion = fmt.Errorf("push: the epoch of the version has more than %d bytes: %w", maxID, ErrBadRequest)
	errBadID      = fmt.Errorf("push: the ID has more than %d bytes: %w", maxID, ErrBadRequest)
	ErrBadData    = fmt.Errorf("push: the data is too large, or not one JSON value in UTF-8: %w",
		ErrBadRequest)
)

// maxID bounds Publication.ID, in bytes.
const maxID = 256

// A node is the part of a server below HTTP: sessions, channels, bus and time.
type node struct {
	server  *Server  // that the node is the lower part of
	id      clientID // names the node
	name    string   // its name for operators
	rules   *policy.Table
	bus     bus.Bus
	local   bus.Local // bus, if it is one; else nil
	hub     *hub
	wheel   *wheel
	count   *counters
	tokens  *token.Verifier // nil: clients need no token
	limits  Limits
	timing  Timing
	clock   Clock
	log     *slog.Logger
	version string

	onRPC     func(ctx context.Context, client Caller, method string, data []byte) ([]byte, error)
	onMessage func(ctx context.Context, client Caller, data []byte)
	hooks     Hooks
	remember  bool // hooks want to know their callers
	callers   callers
	regexes   policy.RegexCache // of capabilities
	rates     policy.Limiters

	started  time.Time
	engine   *myriad.Engine // nil: the console has no engine figures
	sampler  *sampler       // nil without a console
	slowest  slowLog        // disconnected clients
	droppers slowLog        // clients that missed publications under a policy that drops
	refusals refusals

	randomMu sync.Mutex
	random   io.Reader

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

// counters are what the metrics and the console show.
type counters struct {
	connections atomic.Int64  // clients without watchers
	publishes   atomic.Uint64 // publications accepted
	messages    atomic.Uint64 // publications queued, counted once for each subscriber
	slow        atomic.Uint64 // clients disconnected as slow
	latency     latencies     // of publications
	overflow    outbox.Counts // publications that a policy dropped for slow subscribers
}

// open starts the node's clock. close stops it.
func (n *node) open(doors []Door) {
	n.local, _ = n.bus.(bus.Local)
	n.hub = newHub(n)
	n.wheel = newWheel(n.clock.Now())
	n.forms = newForms(doors)
	n.lastGone = make(chan struct{})
	n.serveQuestions()
	n.schedule()
}

// schedule sweeps the wheel after one slot, and again until the node is closed.
func (n *node) schedule() {
	n.timerMu.Lock()
	defer n.timerMu.Unlock()
	if n.closed {
		return
	}
	n.stopTimer = n.clock.AfterFunc(wheelSlot, func() {
		n.wheel.sweep(n.clock.Now())
		n.sampler.tick(n.clock.Now())
		n.schedule()
	})
}

// publish sends p to all subscribers of the channel. When it returns nil, p is queued, and drain
// sends it before it ends the connections. If the caller is at fault, the error is an
// Error. p.Data may be any JSON text in UTF-8 (RFC 8259 §8.1). publish checks the UTF-8
// itself, because encoding/json does not. Data goes into text frames unchanged, and text that is
// not UTF-8 would make every subscriber fail its connection (RFC 6455 §8.1).
func (n *node) publish(ctx context.Context, channel string, p Publication) (Position, error) {
	return n.publishKept(ctx, channel, p, false, false)
}

// publishKept publishes p. With skipHistory the publication is not in the channel's history and
// cannot be recovered. exact is that of publishWith.
func (n *node) publishKept(ctx context.Context, channel string, p Publication, skipHistory, exact bool) (
	Position, error) {
	keep := n.rules.Of(channel).Retention()
	if skipHistory {
		keep = bus.Retention{}
	}
	return n.publishWith(ctx, channel, p, keep, exact)
}

// publishWith is publish with a Retention instead of the channel's own. exact says that the data
// came as bytes: JSON in them keeps its spaces.
func (n *node) publishWith(ctx context.Context, channel string, p Publication, keep bus.Retention, exact bool) (
	Position, error) {
	if err := n.rules.Check(channel); err != nil {
		return Position{}, err
	}
	if len(p.ID) > maxID {
		return Position{}, errBadID
	}
	if p.Version != nil && len(p.Version.Epoch) > maxID {
		return Position{}, errBadVersion
	}
	var ok bool
	if p.Data, ok = checked(&p, exact); !ok || p.Size() > n.limits.Publication {
		return Position{}, ErrBadData
	}
	if !n.gate.enter() {
		return Position{}, ErrDraining
	}
	defer n.gate.leave()
	return n.publishTopic(ctx, bus.Topic{Name: channel, Keep: keep}, p)
}

// publishTopic passes p to the bus. The caller has entered the gate.
func (n *node) publishTopic(ctx context.Context, t bus.Topic, p Publication) (Position, error) {
	began := n.clock.Now()
	ctx, cancel := n.deadline(ctx)
	defer cancel()
	at, err := n.bus.Publish(ctx, t, p)
	if err != nil {
		return at, err
	}
	n.count.latency.observe(n.clock.Now().Sub(began))
	n.count.publishes.Add(1)
	return at, nil
}

// checked returns p.Data as a Bus carries it. It is not ok if it is not of p.Kind. JSON allows
// newlines between tokens, but a newline ends a command of the protocol and a field of an event.
func checked(p *Publication, exact bool) (data []byte, ok bool) {
	if p.Kind != Binary && !utf8.Valid(p.Data) {
		return nil, false
	}
	if p.Kind != JSON {
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
func (n *node) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if n.local != nil {
		return ctx, func() {}
	}
	return n.within(ctx, busPatience)
}

// within returns ctx with an end after d, as context.WithTimeout does, by the node's clock.
func (n *node) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := n.clock.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
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

// topic returns the channel with the retention of its rules.
func (n *node) topic(channel string) bus.Topic {
	return bus.Topic{Name: channel, Keep: n.rules.Of(channel).Retention()}
}

// authenticates reports whether clients must show who they are, by a token or to Hooks.Connect.
func (n *node) authenticates() bool { return n.tokens != nil || n.hooks.Connect != nil }

// authenticate returns what the token grants. If clients need not show who they are, it returns the
// zero grant.
func (n *node) authenticate(token string) (Grant, error) {
	switch {
	case !n.authenticates():
		return Grant{}, nil
	case token == "" || n.tokens == nil:
		return Grant{}, ErrNoToken
	}
	c, err := n.tokens.Connection(token)
	if err != nil {
		return Grant{}, err
	}
	g := grantOf(c)
	return g, n.checkGrant(&g)
}

// checkGrant returns an error for channels that no client may be subscribed to.
func (n *node) checkGrant(g *Grant) error {
	for _, name := range g.Channels {
		if n.rules.Check(name) != nil {
			return claimError(n.rules.WhyNot(fmt.Sprintf("the claim channels has %q, which", name), name))
		}
	}
	if len(g.Channels) > n.limits.Channels {
		return claimError(fmt.Sprintf("the claim channels has %d names, at most %d are allowed",
			len(g.Channels), n.limits.Channels))
	}
	var err error
	g.caps, err = n.regexes.Capabilities(g.given)
	return err
}

// refuse makes the node refuse publications and clients. It returns when the running publications
// are queued for all subscribers, or with ctx's error.
func (n *node) refuse(ctx context.Context) error {
	n.gate.shut()
	return n.gate.wait(ctx)
}

// drain disconnects every client with "shutdown", after everything queued for it. It returns when
// all sessions have ended, or with ctx's error. Clients are disconnected in both cases.
func (n *node) drain(ctx context.Context) error {
	_ = n.refuse(ctx) // if publications still run then, ctx has ended
	list := n.wheel.all()
	if err := n.spread(ctx, len(list), func(i int) { list[i].Disconnect(answer.DisconnectShutdown) }); err != nil {
		return err
	}
	n.checkGone()
	select {
	case <-n.lastGone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spreadStep is the time between two parts of a spread.
const spreadStep = 50 * time.Millisecond

// spread calls f with the numbers below count, over Timing.Spread: other nodes get the clients of
// this one a part at a time.
func (n *node) spread(ctx context.Context, count int, f func(int)) error {
	steps := max(1, int(n.timing.Spread/spreadStep))
	for step := range steps {
		for i := step * count / steps; i < (step+1)*count/steps; i++ {
			f(i)
		}
		if step == steps-1 || count == 0 {
			continue
		}
		next := make(chan struct{})
		stop := n.clock.AfterFunc(spreadStep, func() { close(next) })
		select {
		case <-next:
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
	}
	return nil
}

func (n *node) isDraining() bool { return n.gate.isShut.Load() }

// gone counts a session that has ended.
func (n *node) gone(s *Session) {
	n.count.connections.Add(-s.counted())
	n.sessions.Add(-1)
	if n.isDraining() {
		n.checkGone()
	}
}

func (n *node) checkGone() {
	if n.sessions.Load() == 0 {
		n.goneOnce.Do(func() { close(n.lastGone) })
	}
}

// close stops the clock, closes the bus and releases the node's messages. No session may be used
// afterwards.
func (n *node) close() error {
	n.timerMu.Lock()
	if n.closed {
		n.timerMu.Unlock()
		return nil
	}
	n.closed = true
	n.stopTimer()
	n.timerMu.Unlock()
	n.wheel.sweeping.Lock() // waits for a running sweep
	defer n.wheel.sweeping.Unlock()
	for _, f := range n.forms {
		f.pings.Release()
	}
	return n.bus.Close()
}

// A clientID names a connection in the whole cluster: a random UUID (RFC 9562 §5.4).
type clientID [16]byte

func (n *node) newClientID() (id clientID) {
	n.read(id[:])
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

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
func (n *node) firstPing() time.Duration { return n.timing.Ping/2 + n.upTo(n.timing.Ping/2) }

// upTo returns a random duration below d.
func (n *node) upTo(d time.Duration) time.Duration {
	var r [4]byte
	n.read(r[:])
	return time.Duration(float64(d) * float64(binary.BigEndian.Uint32(r[:])) / (1 << 32))
}

// read fills p from the node's source of randomness. It panics if that fails, because client ids
// must be unpredictable.
func (n *node) read(p []byte) {
	n.randomMu.Lock()
	defer n.randomMu.Unlock()
	if _, err := io.ReadFull(n.random, p); err != nil {
		panic("push: no randomness for client ids: " + err.Error())
	}
}

// lockedRandom is an io.Reader over the node's source of randomness.
type lockedRandom struct{ n *node }

func (r lockedRandom) Read(p []byte) (int, error) {
	r.n.read(p)
	return len(p), nil
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
