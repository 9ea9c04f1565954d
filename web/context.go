package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// requestContext is the context of one request, part of its exchange. It ends when the handler
// returns, the client goes away or the base context ends.
type requestContext struct {
	link *link // whose base context is its parent

	watchers atomic.Pointer[watchers] // nil: there have been none; written under mu

	mu  sync.Mutex
	err error // guarded by mu; that of the base context matters, too

	// How the handler stands to its connection, guarded by mu.
	begun    bool // it runs; not known of an inline task
	over     bool // it has ended
	lost     bool // the connection has
	away     bool // the client had gone before: CloseNotify says so
	connGone bool // the handler had not ended then, and counts for Shutdown as the connection did
}

// watchers wait for the end of a context. They have one of package context, made when the first
// comes. That package would start a goroutine for each context that is derived from a foreign one:
// behind a context.WithValue it does not see an AfterFunc method.
type watchers struct {
	context.Context // a child of the base context
	end             context.CancelFunc
	gone            chan bool // of CloseNotify, guarded by mu; nil: not called
}

var _ context.Context = (*requestContext)(nil)

func (c *requestContext) Deadline() (time.Time, bool) { return c.link.from.base.Deadline() }

func (c *requestContext) Value(key any) any {
	switch key {
	case http.LocalAddrContextKey:
		return c.link.c.LocalAddr()
	case ownContextKey{}:
		return c
	}
	if w := c.watchers.Load(); w != nil {
		return w.Value(key)
	}
	return c.link.from.base.Value(key)
}

// String is what net/http's contexts say of themselves. Without it, printing a context would read
// what the loop may be changing.
func (c *requestContext) String() string {
	return fmt.Sprintf("%v.WithValue(net/http context value local-addr, %v).WithCancel.WithCancel", c.link.from.base,
		c.link.c.LocalAddr())
}

func (c *requestContext) Done() <-chan struct{} { return c.watch().Done() }

// watch returns the watchers.
func (c *requestContext) watch() *watchers {
	if w := c.watchers.Load(); w != nil {
		return w
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.watchers.Load(); w != nil {
		return w
	}
	base := c.link.from.base
	if c.err != nil && base.Err() == nil {
		base = context.WithoutCancel(base) // its functions must not run under mu
	}
	w := new(watchers)
	w.Context, w.end = context.WithCancel(base)
	if c.err != nil {
		w.end()
	}
	c.watchers.Store(w)
	return w
}

func (c *requestContext) Err() error {
	if w := c.watchers.Load(); w != nil {
		return w.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return c.link.from.base.Err()
}

// depart is cancel because the client has gone.
func (c *requestContext) depart() {
	c.mu.Lock()
	c.sayGone()
	c.cancelAndUnlock()
}

// sayGone has CloseNotify tell of it, unless the handler has ended. mu is held.
func (c *requestContext) sayGone() {
	if c.away || c.over {
		return
	}
	c.away = true
	if w := c.watchers.Load(); w != nil && w.gone != nil {
		w.gone <- true
	}
}

// closeNotify is the channel of http.CloseNotifier, always the same.
func (c *requestContext) closeNotify() <-chan bool {
	w := c.watch()
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.gone == nil {
		w.gone = make(chan bool, 1)
		if c.away {
			w.gone <- true
		}
	}
	return w.gone
}

// begin is called before a handler of the pool, for those of a chain twice. It reports false if the
// connection had gone before.
func (c *requestContext) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = c.begun || !c.lost
	return c.begun
}

func (c *requestContext) hasBegun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

// end is cancel when the handler has ended.
func (c *requestContext) end() {
	c.mu.Lock()
	c.over = true
	c.cancelAndUnlock()
}

// outlivedConn reports whether the connection was lost before the handler had ended. It is called
// after end.
func (c *requestContext) outlivedConn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connGone
}

// loseConn is cancel when the connection has gone. It reports, once, whether the handler goes on
// without it: it has begun or is due, and has not ended.
func (c *requestContext) loseConn(due bool) (connGone bool) {
	c.mu.Lock()
	connGone = !c.lost && (due || c.begun) && !c.over
	c.lost, c.connGone = true, c.connGone || connGone
	c.sayGone()
	c.cancelAndUnlock()
	return connGone
}

// isLost reports whether the connection has gone.
func (c *requestContext) isLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// cancelAndUnlock ends the context, unless it has ended.
func (c *requestContext) cancelAndUnlock() {
	if c.err == nil {
		c.err = cmp.Or(c.link.from.base.Err(), context.Canceled)
	}
	w := c.watchers.Load()
	c.mu.Unlock()
	if w != nil {
		w.end()
	}
}

// unwatched reports whether the context has ended without a watcher. None can follow. A watcher may
// still copy the request, as http.TimeoutHandler does.
func (c *requestContext) unwatched() bool { return c.watchers.Load() == nil }
