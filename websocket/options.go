package websocket

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/workers"
)

// Defaults of Options.
const (
	DefaultMaxMessage       = 1 << 20
	DefaultHandshakeTimeout = 10 * time.Second
	DefaultPingInterval     = 30 * time.Second
	DefaultPongTimeout      = 20 * time.Second
	DefaultCloseTimeout     = 5 * time.Second
	DefaultWriteTimeout     = 10 * time.Second
)

// maxSubprotocols is what fits the byte in which a Conn remembers its own.
const maxSubprotocols = 255

// Options configure connections. One value serves any number of them; it must not be changed or
// copied once it has been used. The zero value discards all messages: set at least OnMessage.
// Negative durations switch off what they are for.
type Options struct {
	// OnOpen is the first callback of a connection. It may write.
	OnOpen func(c *Conn)
	// OnMessage is called for each message, in order. p is valid until return.
	OnMessage func(c *Conn, op Op, p []byte)
	// OnDrained is called when there is room again after messages were refused with myriad.ErrFull,
	// or dropped: the output is below half of its limit.
	OnDrained func(c *Conn)
	// OnPong is called for each pong that answers a ping of Conn.Ping or PingInterval, in order
	// with messages. rtt is the round trip, up to 71 minutes. It begins when the ping is queued, so
	// it includes the wait behind earlier output. p is the ping's payload, valid until return.
	// Pongs that answer none of the last 16 pings are ignored. If pings have equal payloads, their
	// pongs are taken for answers in order.
	OnPong func(c *Conn, p []byte, rtt time.Duration)
	// OnClose is the last callback, exactly once for every connection that was opened. err is never
	// nil. It is or wraps a *CloseError when a close frame came. CloseStatus returns the code, also
	// when this side closed for a violation. Other errors: what Abort was given; net.ErrClosed
	// after Abort(nil) or the engine's shutdown; io.ErrUnexpectedEOF if the peer left without a
	// close frame; os.ErrDeadlineExceeded if it did not answer a ping or a close frame in time; or
	// an error of the network.
	OnClose func(c *Conn, err error)
	// OnNoAnswer is called when the peer has not answered a message in time, behind OnMessage of
	// all that has come before: see Conn.AwaitAnswer. Nil: the connection is aborted, with an error
	// that is os.ErrDeadlineExceeded.
	OnNoAnswer func(c *Conn)

	// FreezeValue appends to dst what the program keeps for a connection that moves to another
	// process, and ThawValue gets it there, as the first callback in place of OnOpen. Package
	// handover does the rest: see Thawer. An error of FreezeValue keeps the connection here; one of
	// ThawValue ends the whole hand-over. ThawValue may write, which is sent if the connection
	// moves. It copies what it keeps of state, which is a part of a large message. Both run on the
	// connection's loop, whatever Dispatch says, and must not block.
	FreezeValue func(c *Conn, dst []byte) ([]byte, error)
	ThawValue   func(c *Conn, state []byte) error
	// OnMoved is the last callback, in place of OnClose, in the process in which a connection that
	// was frozen or thawed does not go on. It runs on the loop, and must not block.
	OnMoved func(c *Conn)

	// Dispatch chooses where callbacks run. DispatchAuto, the zero value: a pool of goroutines
	// until they have been quick many times in a row. Then the connection's loop, after the turn's
	// events. They may block. A method of this package that waits lets the loop go on first. A
	// callback that waits for anything else is left behind after a millisecond or two, and after
	// two of these the pool runs the callbacks again. DispatchPool: always the pool.
	// DispatchInline: the loop, without a copy of the message; they must not block, because they
	// hold up every other connection of the loop.
	//
	// A callback that panics is logged and its connection closed with 1011; OnClose is still
	// called.
	Dispatch web.Dispatch
	// Workers is the pool of DispatchAuto and DispatchPool. Its owner closes it. If it is closed
	// early, or has no room, callbacks run later or one by one, but none is lost. Nil: one is made
	// for these Options. It needs no closing: its goroutines end when they have had nothing to do
	// for a while.
	Workers *workers.Pool

	// Engine runs connections that Accept takes from a server that is not web's, and those of Dial.
	// Nil: myriad.Default().
	Engine *myriad.Engine
	// Logger gets panics in callbacks. Nil: slog.Default().
	Logger *slog.Logger

	// Subprotocols are those the server speaks, best first, at most 255; for Dial those it offers.
	// Conn.Subprotocol tells the choice.
	Subprotocols []string
	// OriginPatterns allow browsers of other origins than the request's host: "*.example.com" (host
	// and port, in any scheme), "https://example.com", "*". They are patterns of path.Match in
	// which a star matches dots too. A refused origin is answered 403.
	OriginPatterns []string
	// CheckOrigin, if set, alone decides about the origin of a correct handshake: the request's
	// host and Origin are not compared, and OriginPatterns must be empty. It is asked for requests
	// without Origin too, which browsers do not send. False is answered 403. With Handler and
	// AppendUpgrade it must not block, and the request has no RemoteAddr.
	CheckOrigin func(r *http.Request) bool

	// Pull has messages wait for Conn.Read, or for NetConn's, instead of OnMessage, which must be
	// nil. The other callbacks are called. A connection is not read while 128 messages or 256 KiB
	// wait.
	Pull bool

	// MaxMessage is the largest message accepted, in bytes, also of a compressed one's inflated
	// size. 0: 1 MiB.
	MaxMessage int
	// WriteLimit is the high mark of a connection's output in bytes. 0: the engine's
	// Config.WriteLimit, or 256 KiB where Overflow divides it.
	WriteLimit int
	// Overflow says what happens to messages above it. The zero value, OverflowBlock: Write waits
	// for room. Conn.SetOverflow changes both for one connection.
	Overflow Overflow
	// WriteTimeout is for how long OverflowBlock has a Write wait for room, and a member of a
	// Group. 0: 10 s.
	WriteTimeout time.Duration
	// OverflowStatus is the code of OverflowClose. 0: StatusTryAgainLater (1013);
	// StatusPolicyViolation (1008) is the other usual one.
	OverflowStatus StatusCode
	// Compression is permessage-deflate; the zero value is off.
	Compression Compression

	// HandshakeTimeout bounds the opening handshake of Handler and Dial, and of Accept on a
	// hijacked connection. 0: 10 s.
	HandshakeTimeout time.Duration
	// PingInterval is after how much silence of the peer it is sent a ping. 0: 30 s.
	PingInterval time.Duration
	// PongTimeout is how long the peer may then still be silent before the connection is aborted.
	// It begins when the kernel has been offered the ping. 0: 20 s.
	PongTimeout time.Duration
	// AnswerTimeout is how long the peer may take for an answer to a message: see Conn.AwaitAnswer.
	// 0: AwaitAnswer does nothing. At most 24 days.
	AnswerTimeout time.Duration
	// CloseTimeout is how long the peer may take to answer a close frame. While output is queued
	// before the frame, it bounds the time for each 4 KiB of that. Behind the peer's own close
	// frame, or its FIN, it is how long each callback of an earlier message may take: they may
	// still write. 0: 5 s.
	CloseTimeout time.Duration

	compiled atomic.Pointer[settings]
}

// settings are Options checked and completed, shared by all their connections and not changed once
// in use. What has a default is here; the rest is read from the Options.
type settings struct {
	*Options
	log    *slog.Logger
	tasks  *dispatch.Dispatcher // callbacks
	spare  sync.Pool            // of *callbacks
	random io.Reader            // of masks; nil for a server

	rules          readRules
	packing        packing
	inline         bool
	overflowStatus StatusCode
	count          outbox.Counts

	handshakeTimeout time.Duration // these are 0 when off
	pingInterval     time.Duration
	pongTimeout      time.Duration
	answerTimeout    int64 // in milliseconds
	closeTimeout     time.Duration
	writeTimeout     time.Duration
	flushWait        time.Duration
}

// settings checks the options when they are first used.
func (o *Options) settings() (*settings, error) {
	if o == nil {
		return nil, errors.New("websocket: the Options are nil: give a pointer to a value that lives as long as its " +
			"connections")
	}
	if s := o.compiled.Load(); s != nil {
		return s, nil
	}
	s, err := o.compile()
	if err != nil {
		return nil, err
	}
	if !o.compiled.CompareAndSwap(nil, s) {
		s = o.compiled.Load()
	}
	return s, nil
}

func (o *Options) compile() (*settings, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &settings{
		Options: o,
		log:     o.Logger,
		rules:   readRules{fromClient: true, limit: o.MaxMessage},
		packing: o.Compression.compile(),
		inline:  o.Dispatch == web.DispatchInline, overflowStatus: o.OverflowStatus,
		handshakeTimeout: orDefault(o.HandshakeTimeout, DefaultHandshakeTimeout),
		pingInterval:     orDefault(o.PingInterval, DefaultPingInterval),
		pongTimeout:      orDefault(o.PongTimeout, DefaultPongTimeout),
		answerTimeout:    min(max(o.AnswerTimeout.Milliseconds(), 0), longestAnswer),
		closeTimeout:     orDefault(o.CloseTimeout, DefaultCloseTimeout),
		writeTimeout:     orDefault(o.WriteTimeout, DefaultWriteTimeout),
		flushWait:        outbox.FlushWait,
	}
	s.rules.settings = s
	if s.rules.limit == 0 {
		s.rules.limit = DefaultMaxMessage
	}
	if s.overflowStatus == 0 {
		s.overflowStatus = StatusTryAgainLater
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.tasks = dispatch.New(s.dispatching(o))
	return s, nil
}

func (o *Options) check() error {
	switch {
	case o.Dispatch >= dispatch.Modes:
		return fmt.Errorf("websocket: Options.Dispatch is %d: use DispatchAuto, DispatchPool or DispatchInline of "+
			"package web", o.Dispatch)
	case o.MaxMessage < 0 || o.MaxMessage > buf.MaxBlock:
		return fmt.Errorf("websocket: Options.MaxMessage is %d: it must be 0 (the default) to %d", o.MaxMessage,
			buf.MaxBlock)
	case o.WriteLimit < 0:
		return fmt.Errorf("websocket: Options.WriteLimit is %d: it must not be negative", o.WriteLimit)
	case o.Overflow >= outbox.Policies:
		return fmt.Errorf("websocket: Options.Overflow is %d: use one of the constants", o.Overflow)
	case o.OverflowStatus != 0 && !o.OverflowStatus.mayTravel():
		return fmt.Errorf("websocket: Options.OverflowStatus is %v: it may not be sent", o.OverflowStatus)
	case o.Pull && o.OnMessage != nil:
		return errors.New("websocket: Options.Pull and OnMessage: messages go to one of them, leave the other out")
	case o.CheckOrigin != nil && len(o.OriginPatterns) > 0:
		return errors.New("websocket: Options.CheckOrigin and OriginPatterns: CheckOrigin decides alone, leave the " +
			"patterns out")
	case len(o.Subprotocols) > maxSubprotocols:
		return fmt.Errorf("websocket: %d Options.Subprotocols: at most %d are remembered", len(o.Subprotocols),
			maxSubprotocols)
	}
	for _, name := range o.Subprotocols {
		if !h1.IsToken(name) {
			return fmt.Errorf("websocket: Options.Subprotocols has %q: a name is a token, RFC 9110 §5.6.2", name)
		}
	}
	if err := o.Compression.check(); err != nil {
		return err
	}
	return checkOriginPatterns(o.OriginPatterns)
}

// orDefault gives 0 for what is switched off.
func orDefault(d, fallback time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return max(d, 0)
}

// on is the engine for connections that have none yet.
func (s *settings) on() (*myriad.Engine, error) {
	if s.Engine != nil {
		return s.Engine, nil
	}
	return myriad.Default()
}

// Stats are counters of all connections of one Options since the first of them.
type Stats struct {
	Refused      uint64 // messages for which Write failed with ErrFull
	Waited       uint64 // messages that waited for room
	Dropped      uint64 // messages that Overflow dropped
	DroppedBytes uint64 // of these, frame headers included
	ClosedSlow   uint64 // connections that OverflowClose closed
}

// Stats are the counters. Any goroutine.
func (o *Options) Stats() Stats { return o.compiled.Load().stats() }

// Stats are the counters. Any goroutine.
func (o *DialOptions) Stats() Stats { return o.dialing.Load().stats() }

// stats may be called on nil settings, of Options that were not used yet.
func (s *settings) stats() Stats {
	if s == nil {
		return Stats{}
	}
	n := &s.count
	return Stats{Refused: n.Refused.Load(), Waited: n.Waited.Load(), Dropped: n.Dropped.Load(),
		DroppedBytes: n.DroppedBytes.Load(), ClosedSlow: n.Closed.Load()}
}

// DefaultThreshold is the smallest message that is compressed when Compression.Threshold is 0, in
// bytes.
const DefaultThreshold = 512

// Compression is permessage-deflate, RFC 7692. The zero value does not negotiate it.
//
// Without the windows, each message is compressed by itself. Compressors belong to the process and
// are borrowed for one message, so a connection costs no more than without compression. With a
// window, messages refer to earlier ones, which pays for small messages that resemble each other.
// The connection then keeps that much memory from its first compressed message on.
//
// What a message inflates to is bounded by Options.MaxMessage while it is inflated.
type Compression struct {
	// Enabled offers and accepts the extension. Peers that do not know it are served without.
	Enabled bool
	// Level is 1 (the quickest) to 9 (the smallest). 0: 1. A window below 15 bits has a level of
	// its own, about 5.
	Level int
	// Threshold is the size in bytes from which messages are compressed. 0: 512. Negative: all are.
	// A message that would not become smaller is sent as it is.
	Threshold int
	// WriteWindowBits keeps a window of 1<<8 to 1<<15 bytes of what this side has sent, for what it
	// sends next. 0: none (no context takeover). The peer may ask for a smaller one or for none.
	WriteWindowBits int
	// ReadWindowBits is the same for what the peer sends. A client that cannot be told to stay
	// within it is told to use none.
	ReadWindowBits int
}

func (o *Compression) check() error {
	switch {
	case o.Level < 0 || o.Level > maxLevel:
		return fmt.Errorf("websocket: Compression.Level is %d: it must be 1 to %d, or 0 for the default", o.Level,
			maxLevel)
	case !isWindow(o.WriteWindowBits):
		return fmt.Errorf("websocket: Compression.WriteWindowBits is %d: it must be 8 to 15, or 0 for no window",
			o.WriteWindowBits)
	case !isWindow(o.ReadWindowBits):
		return fmt.Errorf("websocket: Compression.ReadWindowBits is %d: it must be 8 to 15, or 0 for no window",
			o.ReadWindowBits)
	}
	return nil
}

func isWindow(bits int) bool { return bits == 0 || minWindowBits <= bits && bits <= maxWindowBits }

// packing is Compression checked and completed, and what has been agreed with peers.
type packing struct {
	policy    deflatePolicy
	level     int
	threshold int
	rules     *[maxAgreements]atomic.Pointer[readRules] // each made when it is first agreed on; nil: compression is off
}

// maxAgreements is how many different terms there are.
const maxAgreements = 1 << 8

func (o *Compression) compile() packing {
	if !o.Enabled {
		return packing{}
	}
	k := packing{
		policy:    deflatePolicy{on: true, readBits: uint8(o.ReadWindowBits), writeBits: uint8(o.WriteWindowBits)},
		level:     max(o.Level, 1),
		threshold: o.Threshold,
		rules:     new([maxAgreements]atomic.Pointer[readRules]),
	}
	if k.threshold == 0 {
		k.threshold = DefaultThreshold
	}
	return k
}

// rulesFor are those of connections with these terms. They share one value, so that a connection
// has no memory of its own for what it has negotiated.
func (s *settings) rulesFor(t deflateTerms) *readRules {
	if !t.agreed {
		return &s.rules
	}
	at := &s.packing.rules[t.index()]
	if r := at.Load(); r != nil {
		return r
	}
	r := s.rules
	r.compression, r.terms = true, t
	at.CompareAndSwap(nil, &r)
	return at.Load()
}

// index packs the terms into a byte.
func (t deflateTerms) index() uint8 {
	i := (t.inBits-minWindowBits)<<3 | t.outBits - minWindowBits
	if t.inTakeover {
		i |= 1 << 6
	}
	if t.outTakeover {
		i |= 1 << 7
	}
	return i
}

// packs reports whether a message of n bytes is to be compressed.
func (r *readRules) packs(n int) bool { return r.compression && n >= r.settings.packing.threshold }

// windows are what messages of one connection may refer to.
type windows struct {
	in  []byte // owned by the reader of messages, one at a time
	out []byte // guarded by Conn.mu
}

// pack compresses p into a frame, or gives nil if that is not smaller. window is for connections
// that keep one.
func (r *readRules) pack(op Op, p, window []byte) (*buf.Block, error) {
	d := deflate(p, window, r.settings.packing.level, r.terms.outBits)
	defer d.put()
	if len(d.out) >= len(p) {
		return nil, nil
	}
	return r.settings.encode(frameHeader{fin: true, rsv1: true, op: op}, d.out)
}

// sent notes what the peer's window now has. Conn.mu is held.
func (w *windows) sent(p []byte, r *readRules) { w.out = slide(w.out, p, 1<<r.terms.outBits) }

// dispatching is how the callbacks of o run.
func (s *settings) dispatching(o *Options) dispatch.Config {
	c := dispatch.Config{Mode: dispatch.Mode(o.Dispatch), Workers: workers.Config{Queue: poolQueue, Logger: s.log}}
	if o.Workers != nil {
		c.Pool = o.Workers
	}
	return c
}

// errStalled is for writers to a peer that has not read for as long as a Write waits.
func (s *settings) errStalled() error {
	return fmt.Errorf("websocket: the peer has made no room for %v (Options.WriteTimeout), the message was not "+
		"written: %w, %w",
		s.writeTimeout, myriad.ErrFull, os.ErrDeadlineExceeded)
}

// number is a subprotocol's place among the server's own, from 1, or 0 for none.
func (s *settings) number(subprotocol string) uint8 {
	return uint8(slices.Index(s.Subprotocols, subprotocol) + 1)
}
