package myriad

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// bridgeBuffer is what one direction of a bridge copies at a time.
const bridgeBuffer = 32 << 10

// A pairer is a driver.System that can make a connected pair: one end for a driver, the other for goroutines.
type pairer interface {
	Pair() (driver.Socket, net.Conn, error)
}

// A bridge serves an adopted net.Conn without a descriptor: two goroutines copy between it (outer) and one end of a
// connected pair (inner), whose other end is the engine's. A half close is carried over both ways, and so is an error.
type bridge struct {
	engine       *Engine
	outer, inner net.Conn
	left         atomic.Int32 // directions still copying

	mu      sync.Mutex
	readErr error // what ended the input, unless it ended in order
	aborted bool
	cut     bool // copyOut has closed outer: the end of the input is our own doing
	peer    net.Addr
}

// newBridge makes the pair; nothing is copied before start. nc is closed on error.
func (e *Engine) newBridge(nc net.Conn) (driver.Socket, *bridge, error) {
	p, ok := e.sys.(pairer)
	if !ok {
		return nil, nil, errors.Join(ErrUnsupported, nc.Close())
	}
	sock, inner, err := p.Pair()
	if err != nil {
		return nil, nil, errors.Join(err, nc.Close())
	}
	return sock, &bridge{engine: e, outer: nc, inner: inner}, nil
}

// start begins to copy. c's extra part holds the bridge already.
func (b *bridge) start(c *Conn) {
	b.left.Store(2)
	b.engine.mu.Lock()
	if b.engine.bridges == nil {
		b.engine.bridges = map[*bridge]struct{}{}
	}
	b.engine.bridges[b] = struct{}{}
	b.engine.mu.Unlock()
	b.engine.running.Add(1)
	b.engine.sys.Go(b.copyIn)
	b.engine.sys.Go(func() { b.copyOut(c) })
}

// copyIn carries what the peer sends to the engine. What is not an orderly end is kept for Conn's sink.Ended, so that the
// engine has all bytes before it hears of it.
func (b *bridge) copyIn() {
	defer b.done()
	b.learnPeer()
	if _, err := copyAll(b.inner, b.outer); err != nil {
		b.mu.Lock()
		if !b.cut {
			b.readErr = err
		}
		b.mu.Unlock()
	}
	_ = closeWrite(b.inner)
}

// learnPeer asks for the peer's address before the first byte is carried: a net.Conn may wait for what tells it, such as a
// PROXY header, and must not be waited for on a loop.
func (b *bridge) learnPeer() {
	peer := b.outer.RemoteAddr()
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
		peer = b.outer.RemoteAddr() // nothing has come yet
	}
	return peer
}

// copyOut carries what the engine sends to the peer.
func (b *bridge) copyOut(c *Conn) {
	defer b.done()
	fromEngine, err := copyAll(b.outer, b.inner)
	if err != nil && !fromEngine {
		c.Abort(err) // the peer takes no more
		return
	}
	if closeWrite(b.outer) != nil {
		b.mu.Lock()
		b.cut = true
		b.mu.Unlock()
		_ = b.outer.Close() // it cannot end one side alone
	}
}

// copyAll copies until the end of src or an error, and says whether the error was that of src.
func copyAll(dst, src net.Conn) (fromSource bool, err error) {
	block := buf.Get(bridgeBuffer)
	defer block.Release()
	p := block.Extend()
	for {
		n, err := src.Read(p)
		if n > 0 {
			if _, err := dst.Write(p[:n]); err != nil {
				return false, err
			}
		}
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return true, err
		}
	}
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

// end is for when the engine has let go of its end: input is cut off, and what has been flushed may still reach the peer
// within Config.LingerTimeout, unless abort is set. Any goroutine; does not block if outer's SetDeadline does not.
func (b *bridge) end(abort bool) {
	now := b.engine.sys.Now()
	past := now.Add(-time.Hour)
	if abort {
		b.mu.Lock()
		b.aborted = true
		b.mu.Unlock()
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
	b.mu.Lock()
	aborted := b.aborted
	b.mu.Unlock()
	if aborted {
		resetOnClose(b.outer)
	}
	_ = b.inner.Close()
	_ = b.outer.Close()
	b.engine.mu.Lock()
	delete(b.engine.bridges, b)
	b.engine.mu.Unlock()
	b.engine.ended()
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

// A bridgedConn is the engine's end after Detach: the goroutines go on copying, and end when it is closed.
type bridgedConn struct {
	net.Conn
	bridge *bridge
}

func (c *bridgedConn) LocalAddr() net.Addr  { return c.bridge.outer.LocalAddr() }
func (c *bridgedConn) RemoteAddr() net.Addr { return c.bridge.outer.RemoteAddr() }
func (c *bridgedConn) CloseWrite() error    { return closeWrite(c.Conn) }

// Close ends both directions.
func (c *bridgedConn) Close() error {
	err := c.Conn.Close()
	c.bridge.end(false)
	return err
}
