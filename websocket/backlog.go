package websocket

import (
	"fmt"
	"runtime/debug"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver"
)

// What waits for the callbacks of one connection is bounded: at either limit it is not read until
// below half. A message larger than the second limit is taken when nothing else waits.
const (
	maxBacklog      = 128
	maxBacklogBytes = 256 << 10
)

// An event is one call of a callback, or something that waits for those before it.
type event struct {
	kind   eventKind
	op     Op
	packed bool       // the payload is to be inflated
	micros uint32     // of a pong: its round trip
	block  *buf.Block // the payload, owned by the event; nil: p
	p      []byte     // valid during the call: inline, or empty
	err    error
}

type eventKind uint8

const (
	opened eventKind = iota
	received
	drained
	ponged
	leaving // not a callback: the answer to what the peer has sent last
	ended
)

// A backlog is the events of one connection that wait for a goroutine, or run on one. It exists
// while there are any and is guarded by Conn.mu except for State, which is the dispatcher's.
type backlog struct {
	dispatch.State
	c       *Conn
	running bool // the dispatcher has it
	queue
}

// A queue is what waits for callbacks, or for Read. It is guarded by Conn.mu except where it says
// otherwise.
type queue struct {
	events []event
	head   int // events before it are done
	bytes  int
	paused bool // the connection is not read
	asked  bool // a request to read on has been sent to the loop

	// received behind the message that reached the limit, in its uncommitted room, because it is
	// still unmasked there
	rest    *buf.Block
	restLen int
}

// message hands a message to its callback, and reports whether enough wait now. On the loop.
func (c *Conn) message(m message) (full bool) {
	switch {
	case c.settings().onMessage == nil && !c.settings().pull || c.is(muted):
		m.release()
		return false
	case (!c.settings().inline || c.settings().pull) && m.block == nil && len(m.payload) > 0:
		m.block = buf.From(m.payload)
	}
	ev := event{kind: received, op: m.op, packed: m.compressed, block: m.block, p: m.payload}
	if c.settings().pull {
		return c.keep(ev)
	}
	return c.dispatch(ev)
}

func (b *queue) push(ev event) {
	if ev.block != nil {
		ev.p = nil
		b.bytes += ev.block.Len()
	}
	if len(b.events) == cap(b.events) && b.head > 0 {
		n := copy(b.events, b.events[b.head:])
		clear(b.events[n:])
		b.events, b.head = b.events[:n], 0
	}
	b.events = append(b.events, ev)
}

func (b *queue) full() bool {
	return len(b.events)-b.head >= maxBacklog || b.bytes >= maxBacklogBytes
}

func (b *queue) belowHalf() bool {
	return len(b.events)-b.head < maxBacklog/2 && b.bytes < maxBacklogBytes/2
}

func (b *queue) empty() bool { return b.head == len(b.events) }

// pop takes the first event, and says whether the loop is to be asked to read on.
func (b *queue) pop() (ev event, resume bool) {
	ev = b.events[b.head]
	b.events[b.head] = event{}
	b.head++
	if ev.block != nil {
		b.bytes -= ev.block.Len()
	}
	if b.paused && !b.asked && b.belowHalf() {
		b.asked, resume = true, true
	}
	return ev, resume
}

// call runs one callback, with nothing held.
func (c *Conn) call(ev event) {
	defer driver.Unlabel() // the goroutine runs callbacks of others next
	switch ev.kind {
	case opened:
		c.settings().onOpen(c)
	case leaving:
		c.leave(ev.err)
	case drained:
		c.settings().onDrained(c)
	case ponged:
		c.callPong(ev)
	case ended:
		c.settings().onClose(c, ev.err)
	default:
		c.callMessage(ev)
	}
}

func (c *Conn) callMessage(ev event) {
	p := ev.p
	if ev.block != nil {
		defer ev.block.Release()
		p = ev.block.Bytes()
	}
	if c.is(muted) {
		return
	}
	if ev.packed {
		b, err := c.unpack(ev.op, p)
		if err != nil {
			c.spoiled(err)
			return
		}
		defer b.Release()
		p = b.Bytes()
	}
	c.settings().onMessage(c, ev.op, p)
}

// callInline runs one callback, and reports whether it has returned rather than panicked.
func (c *Conn) callInline(ev event) (returned bool) {
	defer func() {
		if !returned {
			c.panicked(recover())
		}
	}()
	c.call(ev)
	return true
}

// panicked ends a connection whose callback has failed.
func (c *Conn) panicked(v any) {
	if v == nil {
		v = "the callback ended its goroutine (runtime.Goexit)"
	}
	c.settings().log.Error("websocket: panic in a callback; its connection is closed with 1011",
		"remote", c.nc.RemoteAddr(), "panic", v, "stack", string(debug.Stack()))
	c.fail(StatusInternalError, "internal error",
		fmt.Errorf("websocket: panic in a callback: %v: %w", v, &CloseError{Code: StatusInternalError,
			Reason: "internal error"}))
}

// pause stops reading and keeps p, which came behind the message that filled the backlog. On the
// loop.
func (c *Conn) pause(p []byte) {
	c.nc.Pause()
	if len(p) == 0 {
		return
	}
	rest := buf.Get(len(p))
	n := copy(rest.Extend(), p)
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.held()
	b.rest, b.restLen = rest, n
}

// held is what waits, of callbacks or of Read. It is called under mu.
func (c *Conn) held() *queue {
	if c.settings().pull {
		if c.cold == nil {
			return nil
		}
		return &c.cold.inbox.queue
	}
	if c.backlog == nil {
		return nil
	}
	return &c.backlog.queue
}

// reading reports whether the connection is not paused. On the loop.
func (c *Conn) reading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.held()
	return b == nil || !b.paused
}

// resume reads on if the callbacks have caught up, or if messages are no longer wanted and only the
// peer's close frame is. On the loop.
func (c *Conn) resume() {
	c.mu.Lock()
	b := c.held()
	if b == nil || !b.paused || !b.asked && !c.is(muted) {
		c.mu.Unlock()
		return
	}
	rest, n := b.rest, b.restLen
	b.rest, b.restLen = nil, 0
	b.paused, b.asked = false, false
	c.forget()
	c.mu.Unlock()
	c.heard = c.now()
	if rest != nil {
		c.take(rest.Extend()[:n:n])
		rest.Release()
	}
	if c.reading() {
		c.nc.Resume()
	}
}

// dropRest is for the end of the connection. It is called under mu.
func (c *Conn) dropRest() {
	b := c.held()
	if b == nil {
		return
	}
	if b.rest != nil {
		b.rest.Release()
	}
	b.rest, b.restLen = nil, 0
	b.paused, b.asked = false, false
	c.forget()
}
