// Package bridge carries the bytes of an adopted net.Conn without a descriptor between it and an
// engine, which is given one end of a connected pair. It is all of the engine that waits in Read
// and Write of a foreign net.Conn.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// bridgeBuffer is what one direction of a bridge copies at a time.
const bridgeBuffer = 32 << 10

// Bridges are those of one engine.
type Bridges struct {
	sys          driver.System
	has          driver.Facilities // of sys
	logger       *slog.Logger
	linger       time.Duration // for what has been flushed to reach the peer
	began, ended func()        // are called when a bridge begins and when it has ended

	mu      sync.Mutex
	open    map[*Bridge]struct{}
	watcher driver.Watcher // nil while there are none
}

// NewBridges is the set of an engine's bridges, of which there are none yet. began and ended count
// them.
func NewBridges(sys driver.System, logger *slog.Logger, linger time.Duration, began, ended func()) *Bridges {
	return &Bridges{sys: sys, has: sys.Facilities(), logger: logger, linger: linger, began: began, ended: ended}
}

// A Bridge serves an adopted net.Conn without a descriptor: what copies goes between it (outer) and
// one end of a connected pair (inner), whose other end is the engine's. A half close is carried
// over both ways, and so is an error.
//
// Each direction has a goroutine, which for most kinds of net.Conn lives as long as the bridge. A
// *tls.Conn is treated better (docs/adr/0013): its goroutines live while there is something to
// copy, and a Watcher calls for the next ones.
type Bridge struct {
	all          *Bridges
	abort        func(error) // the engine's end; set by Start, as short is
	short        func() bool
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

// New makes the pair; nothing is copied before Start. nc is closed on error. It fails with
// driver.ErrUnsupported where the system has no pairs.
func (all *Bridges) New(nc net.Conn) (driver.Socket, *Bridge, error) {
	if all.has.Pair == nil {
		return nil, nil, errors.Join(driver.ErrUnsupported, nc.Close())
	}
	sock, inner, err := all.has.Pair()
	if err != nil {
		return nil, nil, errors.Join(err, nc.Close())
	}
	b := &Bridge{all: all, outer: nc, inner: inner}
	b.in, b.out = direction{b: b, src: nc, dst: inner}, direction{b: b, src: inner, dst: nc}
	return sock, b, nil
}

// Start begins to copy. abort resets the engine's end, when the peer takes no more. cut reports
// whether what the engine has sent is not the whole (Conn.CloseTruncated).
func (b *Bridge) Start(abort func(error), cut func() bool) {
	b.abort, b.short = abort, cut
	b.left.Store(2)
	all := b.all
	all.began()
	all.mu.Lock()
	if all.open == nil {
		all.open = map[*Bridge]struct{}{}
	}
	all.open[b] = struct{}{}
	b.beWatched()
	all.mu.Unlock()
	all.sys.Go(b.begin)
	all.sys.Go(b.out.run)
}

// beWatched finds out whether goroutines need not wait for what comes. Of crypto/tls it is known
// that a read which times out loses nothing once the handshake is over; of others it is not. The
// engine's mu is held.
func (b *Bridge) beWatched() {
	outer, ok := b.outer.(driver.Handshaker)
	if !ok || !b.all.hasWatcher() {
		return
	}
	in, err := b.all.watcher.Watch(outer.NetConn(), b.in.awake)
	if err != nil {
		return
	}
	out, err := b.all.watcher.Watch(b.inner, b.out.awake)
	if err != nil {
		in.Close()
		return
	}
	b.in.watch, b.out.watch = in, out
}

// hasWatcher makes the Watcher if the system has one. It lives as long as there are bridges. mu is
// held.
func (all *Bridges) hasWatcher() bool {
	if all.has.NewWatcher != nil && all.watcher == nil {
		if w, err := all.has.NewWatcher(); err == nil {
			all.watcher = w
		}
	}
	return all.watcher != nil
}

// begin is the input's first goroutine. A handshake must not time out, so it comes before all else.
func (b *Bridge) begin() { b.in.goOn(b.shakeAndCopy) }

func (b *Bridge) shakeAndCopy() (fromSource bool, err error) {
	b.learnPeer()
	if outer, ok := b.outer.(driver.Handshaker); ok && b.in.watch != nil {
		if err := outer.HandshakeContext(context.Background()); err != nil {
			return true, err
		}
	}
	return b.in.copy()
}

// inputEnded ends what goes to the engine. What is not an orderly end is kept for Broken, so that
// the engine has all bytes before it learns of it.
func (b *Bridge) inputEnded(err error) {
	if err != nil {
		b.mu.Lock()
		if !b.cut {
			b.readErr = err
		}
		b.mu.Unlock()
	}
	_ = driver.HalfClose(b.inner)
}

// outputEnded ends what goes to the peer.
func (b *Bridge) outputEnded(fromEngine bool, err error) {
	if err != nil && !fromEngine {
		b.abort(err) // the peer takes no more
		return
	}
	end := b.outer
	if b.short() {
		end = driver.BreakOff(end)
	}
	if b.wasAborted() || driver.HalfClose(end) != nil {
		b.mu.Lock()
		b.cut = true
		b.mu.Unlock()
		b.closeOuter() // it cannot end one side alone, or is not to
	}
}

// closeOuter begins below TLS if a close_notify would not be true.
func (b *Bridge) closeOuter() {
	aborted := b.wasAborted()
	if aborted {
		resetOnClose(b.outer)
	}
	if aborted || b.short() {
		driver.CloseBelow(b.outer)
	}
	_ = b.outer.Close()
}

// Abort has the peer see a reset, and no end in order, when the bridge ends. It is called before
// the driver resets the engine's end: from then on the copying goroutine may end the bridge.
func (b *Bridge) Abort() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.aborted = true
}

func (b *Bridge) wasAborted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.aborted
}

// learnPeer asks for the peer's address before the first byte is carried. A net.Conn may wait for
// it, for instance for a PROXY header, and a loop must not wait.
func (b *Bridge) learnPeer() {
	peer := driver.AskAddr(b.outer.RemoteAddr)
	b.mu.Lock()
	b.peer = peer
	b.mu.Unlock()
}

// Remote is the peer's address; nil if outer has none.
func (b *Bridge) Remote() net.Addr {
	b.mu.Lock()
	peer := b.peer
	b.mu.Unlock()
	if peer == nil {
		peer = driver.AskAddr(b.outer.RemoteAddr) // nothing has come yet
	}
	return peer
}

// Broken is why the peer's bytes ended, nil if they ended in order.
func (b *Bridge) Broken() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.readErr
}

// End is for when the engine has let go of its end: input is cut off, and what has been flushed may
// still reach the peer within the linger time, unless abort is set. Any goroutine; does not
// block if outer's SetDeadline does not.
func (b *Bridge) End(abort bool) {
	if abort {
		b.Abort()
	}
	b.resting.Lock()
	defer b.resting.Unlock()
	b.over = true
	b.setLastDeadlines(abort)
	b.in.rouse()
	b.out.rouse()
}

func (b *Bridge) setLastDeadlines(abort bool) {
	now := b.all.sys.Now()
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
	_ = b.outer.SetWriteDeadline(now.Add(b.all.linger))
}

// done closes both ends when both directions have ended.
func (b *Bridge) done() {
	if b.left.Add(-1) > 0 {
		return
	}
	_ = b.inner.Close()
	b.closeOuter()
	b.all.remove(b)
	b.all.ended()
}

// remove forgets a bridge, and with the last one the Watcher.
func (all *Bridges) remove(b *Bridge) {
	all.mu.Lock()
	delete(all.open, b)
	last := driver.Watcher(nil)
	if len(all.open) == 0 {
		last, all.watcher = all.watcher, nil
	}
	all.mu.Unlock()
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

// Abort ends all of them by a reset. Any goroutine.
func (all *Bridges) Abort() {
	all.mu.Lock()
	defer all.mu.Unlock()
	for b := range all.open {
		b.End(true)
	}
}

// Detached is nc, which is the engine's end of the bridge after Detach, as a net.Conn with the
// addresses of what was adopted.
func (b *Bridge) Detached(nc net.Conn) net.Conn { return &detached{nc, b} }

// A detached is the engine's end after Detach: the goroutines go on copying, and end when it is
// closed.
type detached struct {
	net.Conn
	bridge *Bridge
}

func (c *detached) LocalAddr() net.Addr  { return c.bridge.outer.LocalAddr() }
func (c *detached) RemoteAddr() net.Addr { return c.bridge.outer.RemoteAddr() }
func (c *detached) CloseWrite() error    { return driver.HalfClose(c.Conn) }

// NetConn is what was adopted, to be looked at: the goroutines read and write it.
func (c *detached) NetConn() net.Conn { return c.bridge.outer }

// Close ends both directions.
func (c *detached) Close() error {
	err := c.Conn.Close()
	c.bridge.End(false)
	return err
}

// briefly is how long a bridge's reader waits for more before it leaves its connection to a
// Watcher.
const briefly = 10 * time.Millisecond

// A direction is one way of a bridge.
type direction struct {
	b        *Bridge
	src, dst net.Conn
	watch    driver.Watch // of src; nil: its goroutine waits itself
	idle     bool         // guarded by Bridge.resting: it has no goroutine
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
			d.b.all.logger.Error("myriad: panic in an adopted net.Conn",
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
// to its end, and End has set all other deadlines.
func (d *direction) hurry() {
	if d.watch == nil {
		return
	}
	d.b.resting.Lock()
	defer d.b.resting.Unlock()
	switch {
	case !d.b.over:
		_ = d.src.SetReadDeadline(d.b.all.sys.Now().Add(briefly))
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
		d.b.all.sys.Go(d.run)
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

// SyscallConn is that of the net.Conn that was adopted, or of the one below it.
func (b *Bridge) SyscallConn() (syscall.RawConn, error) {
	for nc := any(b.outer); nc != nil; {
		if sc, ok := nc.(syscall.Conn); ok {
			return sc.SyscallConn()
		}
		inside, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		nc = inside.NetConn()
	}
	return nil, fmt.Errorf("myriad: SyscallConn: %w: a %T has no descriptor to show", driver.ErrUnsupported, b.outer)
}
