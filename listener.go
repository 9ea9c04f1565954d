package myriad

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Listener accepts connections for one handler.
type Listener struct {
	engine  *Engine
	loop    *Loop
	id      driver.ID // owned by the loop
	inner   driver.Listener
	handler Handler
	shared  net.Addr // the local address of all its conns, unless it listens on a wildcard
	closed  atomic.Bool

	accepting // owned by the loop
}

// listeners are those of a loop, by slot.
type listeners map[uint32]*Listener

// Listen binds addr ("tcp", "tcp4", "tcp6", "unix") and serves every connection with h, whose
// Opened may exchange itself for a handler of the conn's own. One loop accepts and hands
// connections to all loops in turn. At Config.MaxConns or AcceptRate, or without descriptors, it
// keeps peers waiting and goes on by itself; listeners take turns then. On an engine that has been
// shut down it fails with an error that is ErrClosed. Any goroutine but a loop's.
func (e *Engine) Listen(network, addr string, h Handler) (*Listener, error) {
	inner, err := e.sys.Listen(context.Background(), network, addr)
	if err != nil {
		return nil, fmt.Errorf("myriad: Listen: %w", err)
	}
	ln := &Listener{engine: e, inner: inner, handler: h}
	if a := driver.AddrOf(inner.Addr()); !a.Unspecified() {
		ln.shared = inner.Addr()
	}
	ln.loop = e.loops[(e.listenTurn.Add(1)-1)%uint32(len(e.loops))]
	started := e.sys.NewParker()
	if ln.loop.Post(func() { err = ln.start(); started.Unpark() }) {
		started.Park()
	} else {
		err = errShutDown
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("myriad: Listen on %v: %w", inner.Addr(), err), inner.Close())
	}
	return ln, nil
}

// start runs on the loop.
func (ln *Listener) start() error {
	if ln.loop.stopping {
		return errShutDown
	}
	id, err := ln.loop.drv.Listen(ln.inner)
	if err != nil {
		return err
	}
	ln.id = id
	ln.loop.listeners[id.Slot()] = ln
	return nil
}

// Addr is the bound address. Any goroutine.
func (ln *Listener) Addr() net.Addr { return ln.inner.Addr() }

// File duplicates the listening descriptor, for another process to accept from; the address stays
// in use after Close then. It fails with ErrUnsupported where the driver has none. Any goroutine.
func (ln *Listener) File() (*os.File, error) { return ln.inner.File() }

// Close stops listening at once: peers that wait to be accepted are refused, and the address may be
// bound again, unless File was called: then they are left to the duplicate. Connections that were
// accepted live on. A second Close returns ErrClosed. Any goroutine; never blocks.
func (ln *Listener) Close() error {
	if ln.closed.Swap(true) {
		return ErrClosed
	}
	ln.inner.Refuse()
	ln.loop.Post(func() { ln.loop.closeListener(ln) })
	return nil
}

// ended runs on the loop when the driver has let go of the listener.
func (ln *Listener) ended() {
	ln.loop.dropHand(ln)
	_ = ln.inner.Close()
}
