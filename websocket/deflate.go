package websocket

import (
	"bytes"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"

	"github.com/myriad-go/myriad/buf"
)

// This file is DEFLATE for messages, RFC 7692 §7.2. All connections of the process share what it
// needs to run, and take it for one message at a time. A connection with a window brings its window
// along.

const (
	// flushTail: the sender "MUST remove 4 octets (that are 0x00 0x00 0xff 0xff) from the tail end"
	// of what a sync flush gives, and the receiver appends them (§7.2.1, §7.2.2).
	flushTail = "\x00\x00\xff\xff"
	// finalTail is an empty last block: behind it the reader ends instead of asking for more.
	finalTail = "\x01\x00\x00\xff\xff"

	// maxStreams is how many DEFLATE streams one message may consist of: a sender may end one with
	// a last block and go on with another (§7.2.3.4), but each costs more work than it has bytes.
	maxStreams = 64

	// keptScratch is how large the room may be that a pooled compressor keeps.
	keptScratch = 64 << 10
)

// A deflater compresses one message at a time. Its result is valid until put.
type deflater struct {
	w    *flate.Writer
	out  []byte
	pool *sync.Pool
}

// Write is for the flate.Writer.
func (d *deflater) Write(p []byte) (int, error) {
	d.out = append(d.out, p...)
	return len(p), nil
}

func (d *deflater) put() {
	if cap(d.out) > keptScratch {
		d.out = nil
	}
	d.pool.Put(d)
}

// maxLevel is the slowest level.
const maxLevel = 9

// deflaters are pooled by level where references may reach through the largest window, and by
// window where they may not.
var deflaters struct {
	byLevel  [maxLevel + 1]sync.Pool
	byWindow [maxWindowBits]sync.Pool
}

func getDeflater(level int, bits uint8) *deflater {
	pool := &deflaters.byLevel[level]
	if bits < maxWindowBits {
		pool = &deflaters.byWindow[bits]
	}
	if d, ok := pool.Get().(*deflater); ok {
		return d
	}
	d := &deflater{pool: pool}
	if bits < maxWindowBits {
		d.w, _ = flate.NewWriterWindow(d, 1<<bits) // cannot fail: 256 to 16,384 are in its range
	} else {
		d.w, _ = flate.NewWriter(d, level) // nor can this
	}
	return d
}

// deflate compresses p, which may refer to window. No reference reaches further than 1<<bits. The
// caller puts the deflater whose out is the result.
func deflate(p, window []byte, level int, bits uint8) *deflater {
	d := getDeflater(level, bits)
	d.out = d.out[:0]
	d.w.ResetDict(d, window) // Reset would go on with the window of the message before
	_, _ = d.w.Write(p)      // neither can fail: our Write does not
	_ = d.w.Flush()
	d.out = bytes.TrimSuffix(d.out, []byte(flushTail))
	if len(d.out) == 0 {
		d.out = append(d.out, 0) // "an empty uncompressed DEFLATE block", §7.2.3.6
	}
	return d
}

// An inflater decompresses one message at a time.
type inflater struct {
	r   io.Reader // that of flate, a flate.Resetter
	in  bytes.Reader
	src []byte // with the tails
}

var inflaters = sync.Pool{New: func() any {
	i := new(inflater)
	i.r = flate.NewReader(&i.in)
	return i
}}

// inflate decompresses a message of which earlier ones, if it may refer to them, are window. It
// fails with StatusMessageTooBig at the first byte above limit, and never holds more than twice as
// much. The caller releases the block.
func inflate(p, window []byte, limit int) (*buf.Block, error) {
	i := inflaters.Get().(*inflater)
	defer i.put()
	i.src = append(append(append(i.src[:0], p...), flushTail...), finalTail...)
	i.in.Reset(i.src)
	out := buf.Get(min(limit, max(256, 4*len(p))))
	for range maxStreams {
		_ = i.r.(flate.Resetter).Reset(&i.in, history(window, out.Bytes())) // it returns nil
		full, err := i.stream(&out, limit)
		switch left := i.in.Len(); {
		case full:
			out.Release()
			return nil, violated(StatusMessageTooBig, "sent a message that inflates above the limit of %d bytes", limit)
		case err != nil:
			out.Release()
			return nil, violated(StatusInvalidFramePayloadData, "sent a compressed message that is damaged: %v", err)
		case left <= len(flushTail)+len(finalTail):
			// The message is used up. Its final block ends with it, or with the bytes that §7.2.2
			// appends.
			return out, nil
		}
	}
	out.Release()
	return nil, violated(StatusInvalidFramePayloadData, "sent a compressed message of more than %d streams", maxStreams)
}

func (i *inflater) put() {
	if cap(i.src) > keptScratch {
		i.src = nil
	}
	i.in.Reset(nil)
	inflaters.Put(i)
}

// stream reads to the end of one DEFLATE stream, and reports whether there was more than out may
// hold.
func (i *inflater) stream(out **buf.Block, limit int) (full bool, err error) {
	for {
		b := *out
		room := b.Extend()[:min(b.Free(), limit-b.Len())]
		if len(room) == 0 {
			if b.Len() == limit {
				return i.more()
			}
			*out = buf.Get(min(limit, 2*b.Cap()))
			(*out).Append(b.Bytes())
			b.Release()
			continue
		}
		n, err := i.r.Read(room)
		b.Commit(n)
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// more reports whether the stream has another byte.
func (i *inflater) more() (bool, error) {
	var one [1]byte
	for {
		n, err := i.r.Read(one[:])
		switch {
		case n > 0:
			return true, nil
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, err
		}
	}
}

// history is what a second stream of a message may refer to.
func history(window, out []byte) []byte {
	if len(out) == 0 {
		return window
	}
	if len(out) < 1<<maxWindowBits && len(window) > 0 {
		return slices.Concat(window, out)
	}
	return out
}

// slide moves a window of at most size bytes over p, which comes behind it. Its memory follows what
// has passed, up to size.
func slide(window, p []byte, size int) []byte {
	if len(p) >= size {
		if cap(window) < size {
			window = make([]byte, 0, size)
		}
		return append(window[:0], p[len(p)-size:]...)
	}
	if over := len(window) + len(p) - size; over > 0 {
		window = window[:copy(window, window[over:])]
	}
	if need := len(window) + len(p); need > cap(window) {
		window = append(make([]byte, 0, min(size, max(256, 2*need))), window...)
	}
	return append(window, p...)
}
