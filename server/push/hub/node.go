package hub

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"log/slog"
	"math"
	"time"

	"github.com/myriad-go/myriad/server/push/policy"
)

// A node is what every part of a hub knows: its name in the cluster, the rules and limits, and
// where time and randomness come from.
type node struct {
	id      clientID
	version string
	rules   *policy.Table
	rates   policy.Limiters
	limits  Limits
	timing  Timing
	clock   Clock
	random  random
	log     *slog.Logger
}

// NodeID returns the random id that names this node in the cluster.
func (n *node) NodeID() string { return n.id.String() }

// Version returns Config.Version.
func (n *node) Version() string { return n.version }

// Limits returns the limits with their defaults.
func (n *node) Limits() Limits { return n.limits }

// Timing returns the intervals and timeouts with their defaults.
func (n *node) Timing() Timing { return n.timing }

// Logger returns the logger.
func (n *node) Logger() *slog.Logger { return n.log }

// Table returns the rules of all channels.
func (n *node) Table() *policy.Table { return n.rules }

// SetRules replaces the namespaces and the rates.
func (n *node) SetRules(all policy.Namespaces, rates policy.Rates) {
	n.rates.Set(rates)
	n.rules.Set(all)
}

// Rules returns the rules of a channel. The Namespace is not changed; after Reload, Rules may
// return another.
func (n *node) Rules(channel string) *policy.Namespace { return n.rules.Of(channel) }

// CheckChannel returns an Error for a name that no channel has.
func (n *node) CheckChannel(name string) error { return n.rules.Check(name) }

// IsChannelName reports whether a channel may have the name.
func (n *node) IsChannelName(name string) bool { return n.rules.IsName(name) }

// ChannelRule says why CheckChannel refuses a name, in a sentence about subject.
func (n *node) ChannelRule(subject, name string) string { return n.rules.WhyNot(subject, name) }

// Clock returns the clock.
func (n *node) Clock() Clock { return n.clock }

// Within returns ctx with an end after d, as context.WithTimeout does, by the server's clock.
func (n *node) Within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
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

// TTL returns the whole seconds until ends, at most a year.
func (n *node) TTL(ends time.Time) uint32 {
	const year = 365 * 24 * 3600
	left := math.Ceil(ends.Sub(n.clock.Now()).Seconds())
	return uint32(min(max(left, 0), year))
}

// isPast reports whether a hook has named a time that has passed. 0 is none.
func (n *node) isPast(expireAt int64) bool {
	return expireAt != 0 && !endOf(expireAt).After(n.clock.Now())
}

// endOf returns when what a hook grants ends; zero: never.
func endOf(expireAt int64) time.Time {
	if expireAt == 0 {
		return time.Time{}
	}
	return time.Unix(expireAt, 0)
}

// A Clock is a server's source of time. A simulation replaces it.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once after d, on a new goroutine or on the simulator's. stop prevents the
	// call unless it has begun, and reports whether it did.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// SystemClock is the system's.
type SystemClock struct{}

// Now implements Clock.
func (SystemClock) Now() time.Time { return time.Now() }

// AfterFunc implements Clock.
func (SystemClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

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

// NewID returns a random UUID (RFC 9562 §5.4).
func (n *node) NewID() string { return n.random.newClientID().String() }

// firstPing returns a random time between half a ping interval and a whole one, so that clients
// that connect together are pinged at different times.
func (n *node) firstPing() time.Duration { return n.timing.Ping/2 + n.random.upTo(n.timing.Ping/2) }

// retryAfter is the shortest time that an EventSource is told to wait before it reconnects; the
// longest is twice that. The spread keeps clients from reconnecting all at once after a restart.
const retryAfter = 2 * time.Second

func (n *node) retry() time.Duration { return retryAfter + n.random.upTo(retryAfter) }

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
