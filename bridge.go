package myriad

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// bridgeBuffer is what one direction of a bridge copies at a time.
const bridgeBuffer = 32 << 10

// A bridge serves an adopted net.Conn without a descriptor: what copies goes between it (outer) and
// one end of a connected pair (inner), whose other end is the engine's. A half close is carried
// over both ways, and so is an error.
//
// Each direction has a goroutine, which for most kinds of net.Conn lives as long as the bridge. A
// *tls.Conn is treated better (docs/adr/0013): its goroutines live while there is something to
// copy, and a Watcher calls for the next ones.
type bridge struct {
	engine       *Engine
	conn         *Conn
	outer, inner net.Conn
	in, out      direction
	left         atomic.Int32 // directions that have not ended

	mu      sync.Mutex
	readErr error // what ended the input, unless it ended in order
	aborted bool
	cut     bool // the way out has closed outer: the end of the input is our own doing
	peer    net.Addr

	resting sync.Mutex // for callers that set deadlines, and for what follows
	over    bool       // guarded by resting: the engine has let go of its end
}

// newBridge makes the pair; nothing is copied before start. nc is closed on error.
func (e *Engine) newBridge(nc net.Conn) (driver.Socket, *bridge, error) {
	if e.has.Pair == nil {
		return nil, nil, errors.Join(ErrUnsupported, nc.Close())
	}
	sock, inner, err := e.has.Pair()
	if err != nil {
		return nil, nil, errors.Join(err, nc.Close())
	}
	b := &bridge{engine: e, outer: nc, inner: inner}
	b.in, b.out = direction{b: b, src: nc, dst: inner}, direction{b: b, src: inner, dst: nc}
	return sock, b, nil
}

// start begins to copy. c's extra part holds the bridge already.
func (b *bridge) start(c *Conn) {
	b.conn = c
	b.left.Store(2)
	e := b.engine
	e.running.Add(1)
	e.mu.Lock()
	if e.bridges == nil {
		e.bridges = map[*bridge]struct{}{}
	}
	e.bridges[b] = struct{}{}
	b.beWatched()
	e.mu.Unlock()
	e.sys.Go(b.begin)
	e.sys.Go(b.out.run)
}

// beWatched finds out whether goroutines need not wait for what comes. Of crypto/tls it is known
// that a read which times out loses nothing once the handshake is over; of others it is not. The
// engine's mu is held.
func (b *bridge) beWatched() {
	outer, ok := b.outer.(driver.Handshaker)
	if !ok || !b.engine.hasWatcher() {
		return
	}
	in, err := b.engine.watcher.Watch(outer.NetConn(), b.in.awake)
	if err != nil {
		return
	}
	out, err := b.engine.watcher.Watch(b.inner, b.out.awake)
	if err != nil {
		in.Close()
		return
	}
	b.in.watch, b.out.watch = in, out
}

// hasWatcher makes the engine's Watcher if it can have one. It lives as long as there are bridges.
// mu is held.
func (e *Engine) hasWatcher() bool {
	if e.has.NewWatcher != nil && e.watcher == nil {
		if w, err := e.has.NewWatcher(); err == nil {
			e.watcher = w
		}
	}
	return e.watcher != nil
}

// begin is the input's first goroutine. A handshake must not time out, so it comes before all else.
func (b *bridge) begin() { b.in.goOn(b.shakeAndCopy) }

func (b *bridge) shakeAndCopy() (fromSource bool, err error) {
	b.learnPeer()
	if outer, ok := b.outer.(driver.Handshaker); ok && b.in.watch != nil {
		if err := outer.HandshakeContext(context.Background()); err != nil {
			return true, err
		}
	}
	return b.in.copy()
}

// inputEnded ends what goes to the engine. What is not an orderly end is kept for Conn's
// sink.Ended, so that the engine has all bytes before it learns of it.
func (b *bridge) inputEnded(err error) {
	if err != nil {
		b.mu.Lock()
		if !b.cut {
			b.readErr = err
		}
		b.mu.Unlock()
	}
	_ = closeWrite(b.inner)
}

// outputEnded ends what goes to the peer.
func (b *bridge) outputEnded(fromEngine bool, err error) {
	if err != nil && !fromEngine {
		b.conn.Abort(err) // the peer takes no more
		return
	}
	end := b.outer
	if b.conn.isShort() {
		end = driver.BreakOff(end)
	}
	if b.wasAborted() || closeWrite(end) != nil {
		b.mu.Lock()
		b.cut = true
		b.mu.Unlock()
		b.closeOuter() // it cannot end one side alone, or is not to
	}
}

// closeOuter begins below TLS if a close_notify would not be true.
func (b *bridge) closeOuter() {
	aborted := b.wasAborted()
	if aborted {
		resetOnClose(b.outer)
	}
	if aborted || b.conn.isShort() {
		driver.CloseBelow(b.outer)
	}
	_ = b.outer.Close()
}

// abort has the peer see a reset, and no end in order, when the bridge ends. It is called before
// the driver resets the engine's end: from then on the copying goroutine may end the bridge.
func (b *bridge) abort() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.aborted = true
}

func (b *bridge) wasAborted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.aborted
}

// learnPeer asks for the peer's address before the first byte is carried. A net.Conn may wait for
// it, for instance for a PROXY header, and a loop must not wait.
func (b *bridge) learnPeer() {
	peer := addrFrom(b.outer.RemoteAddr)
	b.mu.Lock()
	b.peer = peer
	b.mu.Unlock()
}

// remote is the peer's address; nil if outer has none.
func (b *bridge) remote() net.Addr {
	b.mu.Lock()
	peer := b.peer
	b.mu.Unlock()
	if peer == nil {
		peer = addrFrom(b.outer.RemoteAddr) // nothing has come yet
	}
	return peer
}

func closeWrite(nc net.Conn) error {
	if hc, ok := nc.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return ErrUnsupported
}

// broken is why the peer's bytes ended, nil if they ended in order.
func (b *bridge) broken() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.readErr
}

// end is for when the engine has let go of its end: input is cut off, and what has been flushed may
// still reach the peer within Config.LingerTimeout, unless abort is set. Any goroutine; does not
// block if outer's SetDeadline does not.
func (b *bridge) end(abort bool) {
	if abort {
		b.abort()
	}
	b.resting.Lock()
	defer b.resting.Unlock()
	b.over = true
	b.setLastDeadlines(abort)
	b.in.rouse()
	b.out.rouse()
}

func (b *bridge) setLastDeadlines(abort bool) {
	now := b.engine.sys.Now()
	past := now.Add(-time.Hour)
	defer func() {
		if recover() != nil { // outer has no deadlines
			_ = b.outer.Close()
		}
	}()
	if abort {
		_ = b.inner.SetDeadline(past)
		_ = b.outer.SetDeadline(past)
		return
	}
	_ = b.inner.SetWriteDeadline(past)
	_ = b.outer.SetReadDeadline(past)
	_ = b.outer.SetWriteDeadline(now.Add(b.engine.cfg.LingerTimeout))
}

// done closes both ends when both directions have ended.
func (b *bridge) done() {
	if b.left.Add(-1) > 0 {
		return
	}
	_ = b.inner.Close()
	b.closeOuter()
	b.engine.leave(b)
	b.engine.ended()
}

// leave forgets a bridge, and with the last one the Watcher.
func (e *Engine) leave(b *bridge) {
	e.mu.Lock()
	delete(e.bridges, b)
	last := driver.Watcher(nil)
	if len(e.bridges) == 0 {
		last, e.watcher = e.watcher, nil
	}
	e.mu.Unlock()
	if last != nil {
		last.Close()
	}
}

// resetOnClose lets the peer of an aborted conn see a reset where there is a TCP connection below.
func resetOnClose(nc net.Conn) {
	if inside, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = inside.NetConn()
	}
	if tcp, ok := nc.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
}

func (e *Engine) abortBridges() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for b := range e.bridges {
		b.end(true)
	}
}

// A bridgedConn is the engine's end after Detach: the goroutines go on copying, and end when it is
// closed.
type bridgedConn struct {
	net.Conn
	bridge *bridge
}

func (c *bridgedConn) LocalAddr() net.Addr  { return c.bridge.outer.LocalAddr() }
func (c *bridgedConn) RemoteAddr() net.Addr { return c.bridge.outer.RemoteAddr() }
func (c *bridgedConn) CloseWrite() error    { return closeWrite(c.Conn) }

// NetConn is what was adopted, to be looked at: the goroutines read and write it.
func (c *bridgedConn) NetConn() net.Conn { return c.bridge.outer }

// Close ends both directions.
func (c *bridgedConn) Close() error {
	err := c.Conn.Close()
	c.bridge.end(false)
	return err
}

// abortBridge has the bridge of an adopted conn, if there is one, end by a reset.
func (c *Conn) abortBridge() {
	if b := c.bridged(); b != nil {
		b.abort()
	}
}

func (c *Conn) bridged() *bridge {
	if x := c.extra.Load(); x != nil {
		return x.bridge
	}
	return nil
}

// briefly is how long a bridge's reader waits for more before it leaves its connection to a
// Watcher.
const briefly = 10 * time.Millisecond

// A direction is one way of a bridge.
type direction struct {
	b        *bridge
	src, dst net.Conn
	watch    driver.Watch // of src; nil: its goroutine waits itself
	idle     bool         // guarded by bridge.resting: it has no goroutine
}

// run is the time of one goroutine: until the end, or until nothing comes for a while.
func (d *direction) run() { d.goOn(d.copy) }

// goOn runs a direction's next part, which says whether what ended it was src's error. The net.Conn
// is a user's, and a *tls.Conn has callbacks in its configuration. A panic there, or the end of the
// goroutine, costs this connection alone.
func (d *direction) goOn(part func() (fromSource bool, err error)) {
	returned, fromSource, err := false, true, error(nil)
	defer func() {
		if v := recover(); !returned {
			d.b.engine.cfg.Logger.Error("myriad: panic in an adopted net.Conn",
				"conn", fmt.Sprintf("%T", d.b.outer), "panic", v, "stack", string(debug.Stack()))
			fromSource, err = d == &d.b.in, fmt.Errorf("myriad: panic in an adopted net.Conn: %v", v)
		}
		if err == errRest {
			d.watch.Arm()
			return
		}
		d.end(fromSource, err)
	}()
	fromSource, err = part()
	returned = true
}

// errRest is copy's result when the direction has become idle.
var errRest = errors.New("nothing to copy")

// copy copies until the end of src or an error, and says whether the error was that of src.
func (d *direction) copy() (fromSource bool, err error) {
	block := buf.Get(bridgeBuffer)
	defer block.Release()
	p := block.Extend()
	for {
		d.hurry()
		n, err := d.src.Read(p)
		if n > 0 {
			if _, err := d.dst.Write(p[:n]); err != nil {
				return false, err
			}
		}
		switch {
		case err == nil:
		case err == io.EOF:
			return true, nil
		case d.watch == nil || !errors.Is(err, os.ErrDeadlineExceeded):
			return true, err
		case d.rest():
			return true, errRest
		case d != &d.b.out || d.b.wasAborted():
			return true, err
		}
	}
}

// hurry has the next read end soon, unless the end is near: then what the engine has sent is read
// to its end, and bridge.end has set all other deadlines.
func (d *direction) hurry() {
	if d.watch == nil {
		return
	}
	d.b.resting.Lock()
	defer d.b.resting.Unlock()
	switch {
	case !d.b.over:
		_ = d.src.SetReadDeadline(d.b.engine.sys.Now().Add(briefly))
	case d == &d.b.out && !d.b.wasAborted():
		_ = d.src.SetReadDeadline(time.Time{})
	}
}

// rest makes the direction idle if it may be: the goroutine has only to arm the watch and to go.
func (d *direction) rest() bool {
	d.b.resting.Lock()
	defer d.b.resting.Unlock()
	d.idle = !d.b.over
	return d.idle
}

// awake gives an idle direction a goroutine.
func (d *direction) awake() {
	d.b.resting.Lock()
	defer d.b.resting.Unlock()
	d.rouse()
}

// rouse is awake for callers that hold resting.
func (d *direction) rouse() {
	if d.idle {
		d.idle = false
		d.b.engine.sys.Go(d.run)
	}
}

// end is called once, by the direction's last goroutine.
func (d *direction) end(fromSource bool, err error) {
	if d.watch != nil {
		d.watch.Close()
	}
	if d == &d.b.in {
		d.b.inputEnded(err)
	} else {
		d.b.outputEnded(fromSource, err)
	}
	d.b.done()
}
