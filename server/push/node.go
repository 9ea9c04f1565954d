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

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// errFull is what a transport's send returns when its own limit is reached.
var errFull = errors.New("push: the transport's queue is full")

// Both are what publish returns for a publication that nobody could be sent. A client is told "bad
// request".
var (
	errBadChannel = fmt.Errorf("push: the name of a channel is empty, too long, not UTF-8, or has control "+
		"characters: %w", centrifuge.ErrBadRequest)
	errBadData = fmt.Errorf("push: the data is too large, or not one JSON value in UTF-8: %w",
		centrifuge.ErrBadRequest)
)

// errDraining is what publish returns when the server is going down.
var errDraining = errors.New("push: the server is shutting down: publish to another one, or again later")

// A node is everything of a server that is not HTTP: the sessions, the channels, the bus and the
// time.
type node struct {
	id      clientID // names the node
	rules   namespaces
	bus     Bus
	hub     *hub
	wheel   *wheel
	count   *counters
	tokens  *tokenVerifier // nil: nobody needs one
	limits  Limits
	timing  Timing
	clock   Clock
	log     *slog.Logger
	version string

	denyClientPublish bool

	started  time.Time
	engine   *myriad.Engine // nil: the console shows nothing of it
	sampler  *sampler       // nil: there is no console
	slowest  slowLog        // those that were disconnected
	droppers slowLog        // those that did not get everything, by a policy that drops

	randomMu sync.Mutex
	random   io.Reader

	pings    [wires]*message
	receipts receipts // of publications with an idempotency key

	timerMu   sync.Mutex
	stopTimer func() bool
	closed    bool

	// gate is held for reading by every publish that is under way, and for writing to close it.
	gate     sync.RWMutex
	draining bool
	sessions atomic.Int64  // that have not ended, watchers included
	lastGone chan struct{} // closed when draining and no session is left
}

// counters are what the metrics and the console show.
type counters struct {
	connections atomic.Int64  // clients; an operator who watches in the console is none
	publishes   atomic.Uint64 // publications that were accepted
	messages    atomic.Uint64 // publications that were queued for a subscriber
	slow        atomic.Uint64 // clients that were disconnected because they did not keep up
	latency     latencies     // of publications
	dropped     atomic.Uint64 // publications that slow subscribers did not get, by a policy that drops
}

// open starts the node's clock. close stops it.
func (n *node) open() {
	n.hub = newHub(n)
	n.wheel = newWheel(n.clock.Now())
	n.receipts.most = n.limits.IdempotencyKeys
	for w := range wires {
		n.pings[w] = w.ping()
	}
	n.lastGone = make(chan struct{})
	n.schedule()
}

// schedule makes the wheel turn again after one slot, for as long as the node is open.
func (n *node) schedule() {
	n.timerMu.Lock()
	defer n.timerMu.Unlock()
	if n.closed {
		return
	}
	n.stopTimer = n.clock.AfterFunc(wheelSlot, func() {
		n.wheel.sweep(n.clock.Now())
		n.sampler.tick(n.clock.Now())
		n.receipts.sweep(n.clock.Now())
		n.schedule()
	})
}

// publish gives p to everybody who is subscribed to the channel. When it returns nil, drain will
// not end the connections before they have got it. The error is a centrifuge.Error where the caller
// is at fault. p.Data may be any JSON text. It has to be looked at for UTF-8 (RFC 8259 §8.1), which
// encoding/json does not, because it goes into text frames as it is: one that is not UTF-8 makes
// every subscriber fail its connection (RFC 6455 §8.1).
func (n *node) publish(ctx context.Context, channel string, p Publication) (Position, error) {
	return n.publishWith(ctx, channel, p, n.rules.of(channel).retention())
}

// publishWith is publish with another Retention than that of the channel's rules.
func (n *node) publishWith(ctx context.Context, channel string, p Publication, keep Retention) (Position, error) {
	if !n.validChannel(channel) {
		return Position{}, errBadChannel
	}
	if p.size() > n.limits.Publication || !utf8.Valid(p.Data) {
		return Position{}, errBadData
	}
	// Line ends between tokens are legal JSON, but end a command here and a field of an event
	// there.
	var data bytes.Buffer
	data.Grow(len(p.Data))
	if err := json.Compact(&data, p.Data); err != nil {
		return Position{}, errBadData
	}
	p.Data = data.Bytes()
	n.gate.RLock()
	defer n.gate.RUnlock()
	if n.draining {
		return Position{}, errDraining
	}
	began := n.clock.Now()
	at, err := n.bus.Publish(ctx, channel, p, keep)
	if err != nil {
		return Position{}, err
	}
	n.count.latency.observe(n.clock.Now().Sub(began))
	n.count.publishes.Add(1)
	return at, nil
}

// validChannel: a name is UTF-8 without control characters, because it stands in logs, in text
// frames and in lines of SSE. The replacement character is what encoding/json has made of bytes
// that were not UTF-8, so it is none that a caller has meant.
func (n *node) validChannel(name string) bool {
	if name == "" || len(name) > n.limits.ChannelName {
		return false
	}
	for _, r := range name {
		if r < 0x20 || r == 0x7f || r == utf8.RuneError {
			return false
		}
	}
	return true
}

// channelRule says what subject, which validChannel has refused, would have to be.
func (n *node) channelRule(subject string) string {
	return fmt.Sprintf("%s is not a name of 1 to %d bytes of UTF-8 without control characters", subject,
		n.limits.ChannelName)
}

// authenticate returns what the token grants: nothing, to everybody, when the server has no secret.
func (n *node) authenticate(token string) (grant, error) {
	if n.tokens == nil {
		return grant{}, nil
	}
	if token == "" {
		return grant{}, errNoToken
	}
	g, err := n.tokens.verify(token)
	if err != nil {
		return grant{}, err
	}
	for _, name := range g.channels {
		if !n.rules.of(name).SubscribeToken {
			return grant{}, claimError(fmt.Sprintf("the claim channels has %q, and its namespace does not have "+
				"subscribe-token: "+
				"every client may subscribe there, and the server does not subscribe clients by itself", name))
		}
	}
	return g, nil
}

// refuse refuses publications and clients from now on, and returns when the publications under way
// are queued for everybody.
func (n *node) refuse() {
	n.gate.Lock()
	defer n.gate.Unlock()
	n.draining = true
}

// drain sends every client away with "shutdown", behind all that it has queued. It returns when all
// have gone, or with ctx's error.
func (n *node) drain(ctx context.Context) error {
	n.refuse()
	for _, s := range n.wheel.all() {
		s.disconnect(centrifuge.Shutdown)
	}
	n.checkGone()
	select {
	case <-n.lastGone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *node) isDraining() bool {
	n.gate.RLock()
	defer n.gate.RUnlock()
	return n.draining
}

// gone is called when a session has ended.
func (n *node) gone(s *session) {
	n.count.connections.Add(-s.counted())
	n.sessions.Add(-1)
	if n.isDraining() {
		n.checkGone()
	}
}

func (n *node) checkGone() {
	n.gate.Lock()
	defer n.gate.Unlock()
	if n.sessions.Load() > 0 {
		return
	}
	select {
	case <-n.lastGone:
	default:
		close(n.lastGone)
	}
}

// close ends what drain has left: the clock, the bus and the node's own messages. No session may be
// used afterwards.
func (n *node) close() error {
	n.timerMu.Lock()
	if n.closed {
		n.timerMu.Unlock()
		return nil
	}
	n.closed = true
	n.stopTimer()
	n.timerMu.Unlock()
	n.wheel.sweeping.Lock() // a sweep that is under way
	defer n.wheel.sweeping.Unlock()
	for _, m := range n.pings {
		m.release()
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

// firstPing is half a ping interval and up to as much again, so that clients that came at once are
// not pinged at once.
func (n *node) firstPing() time.Duration { return n.timing.Ping/2 + n.upTo(n.timing.Ping/2) }

// upTo is a random part of d.
func (n *node) upTo(d time.Duration) time.Duration {
	var r [4]byte
	n.read(r[:])
	return time.Duration(float64(d) * float64(binary.BigEndian.Uint32(r[:])) / (1 << 32))
}

// read fills p from the node's source of randomness. Without any there is no safe way on.
func (n *node) read(p []byte) {
	n.randomMu.Lock()
	defer n.randomMu.Unlock()
	if _, err := io.ReadFull(n.random, p); err != nil {
		panic("push: no randomness for client ids: " + err.Error())
	}
}

// lockedRandom is the node's source of randomness for others.
type lockedRandom struct{ n *node }

func (r lockedRandom) Read(p []byte) (int, error) {
	r.n.read(p)
	return len(p), nil
}
