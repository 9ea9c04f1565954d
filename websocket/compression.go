package websocket

import (
	"fmt"
	"sync/atomic"
	"unicode/utf8"

	"github.com/myriad-go/myriad/buf"
)

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

// unpack inflates a message. The reader of messages calls it, one call at a time. w is nil if the
// messages of the connection do not refer to each other.
func (r *readRules) unpack(op Op, p []byte, w *windows) (*buf.Block, error) {
	var window []byte
	if w != nil {
		window = w.in
	}
	b, err := inflate(p, window, r.limit)
	if err != nil {
		return nil, err
	}
	if op == OpText && !utf8.Valid(b.Bytes()) {
		b.Release()
		return nil, notUTF8()
	}
	if w != nil {
		w.in = slide(w.in, b.Bytes(), 1<<r.terms.inBits)
	}
	return b, nil
}
