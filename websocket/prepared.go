package websocket

import (
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/buf"
)

// A Prepared message is encoded once, and compressed once if connections want that, and queued on
// any number of them by reference. Its methods may be called from any goroutine.
type Prepared struct {
	op      Op
	frame   *buf.Block
	payload []byte // a view of frame
	refs    atomic.Int32

	mu     sync.Mutex
	packed *buf.Block // the frame for connections with compression, when the first one has asked for it
	tried  bool
}

// Prepare encodes a message. Release gives its memory back.
func Prepare(op Op, p []byte) (*Prepared, error) {
	if err := checkMessage(op, p); err != nil {
		return nil, err
	}
	m := &Prepared{op: op, frame: frameOf(frameHeader{fin: true, op: op}, p)}
	whole := m.frame.Bytes()
	m.payload = whole[len(whole)-len(p):]
	m.refs.Store(1)
	return m, nil
}

// Release ends the use of m, once for Prepare and once for each Retain. Where it is queued it stays
// until it has been sent. Without Release the memory is left to the garbage collector.
func (m *Prepared) Release() {
	if m.refs.Add(-1) > 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frame.Release()
	if m.packed != nil {
		m.packed.Release()
	}
}

// Retain requires one more Release, for another holder of m. It returns m.
func (m *Prepared) Retain() *Prepared {
	m.refs.Add(1)
	return m
}

// pack returns the compressed frame, or nil if it would not be smaller. The first connection's
// level decides.
func (m *Prepared) pack(level int) *buf.Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.tried {
		m.tried = true
		d := deflate(m.payload, nil, level, maxWindowBits)
		defer d.put()
		if len(d.out) < len(m.payload) {
			m.packed = frameOf(frameHeader{fin: true, rsv1: true, op: m.op}, d.out)
		}
	}
	return m.packed
}

// WritePrepared is Write for a prepared message. To a server, where each frame needs a mask of its
// own, it is encoded anew; and so it is for a connection whose window is smaller than the message.
func (c *Conn) WritePrepared(m *Prepared) error {
	return c.write(outgoing{op: m.op, p: m.payload, prepared: m})
}
