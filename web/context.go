package web

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// requestContext is the context of one request, part of its exchange. It ends when the handler
// returns, the client goes away or the base context ends. Its channel is made by the first call of
// Done.
type requestContext struct {
	link *link // whose base context is its parent

	mu       sync.Mutex
	err      error
	watchers *watchers // nil: there have been none

	// How the handler stands to its connection, guarded by mu.
	begun    bool // it runs; not known of an inline task
	over     bool // it has ended
	lost     bool // the connection has
	away     bool // the client had gone before: CloseNotify says so
	connGone bool // the handler had not ended then, and counts for Shutdown as the connection did
}

// watchers wait for the end of a context.
type watchers struct {
	done  chan struct{}        // nil: it was not asked for
	after map[*func()]struct{} // functions to call at the end
	stop  func() bool          // the watch on base
	gone  chan bool            // of CloseNotify; nil: not called
}

var _ context.Context = (*requestContext)(nil)

// closedChan is the Done channel of every context that ended before Done was called.
var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (c *requestContext) Deadline() (time.Time, bool) { return c.link.from.base.Deadline() }

func (c *requestContext) Value(key any) any {
	switch key {
	case http.LocalAddrContextKey:
		return c.link.c.LocalAddr()
	case ownContextKey{}:
		return c
	}
	return c.link.from.base.Value(key)
}

// String is what net/http's contexts say of themselves. Without it, printing a context would read
// what the loop may be changing.
func (c *requestContext) String() string {
	return fmt.Sprintf("%v.WithValue(net/http context value local-addr, %v).WithCancel.WithCancel", c.link.from.base,
		c.link.c.LocalAddr())
}

func (c *requestContext) Done() <-chan struct{} {
	if c.link.from.base.Done() != nil {
		_ = c.Err() // which has it end at once, if base has, and not when a goroutine comes to it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil && (c.watchers == nil || c.watchers.done == nil) {
		return closedChan
	}
	w := c.watch()
	if w.done == nil {
		w.done = make(chan struct{})
	}
	return w.done
}

// Err ends it if the base context has ended: when there is an error, Done must be closed.
func (c *requestContext) Err() error {
	c.mu.Lock()
	if c.err == nil {
		if err := c.link.from.base.Err(); err != nil {
			c.cancelAndUnlock(err)
			return err
		}
	}
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc makes contexts derived from this one cost no goroutine: package context looks for it.
func (c *requestContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		c.spawn(f)
		return func() bool { return false }
	}
	w := c.watch()
	if w.after == nil {
		w.after = map[*func()]struct{}{}
	}
	key := &f
	w.after[key] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waiting := w.after[key]
		delete(w.after, key)
		return waiting
	}
}

// watch lets the end of the base context end this one, now that it has a watcher. mu is held.
func (c *requestContext) watch() *watchers {
	if c.watchers == nil {
		c.watchers = new(watchers)
	}
	if w := c.watchers; w.stop == nil && c.err == nil && c.link.from.base.Done() != nil {
		w.stop = context.AfterFunc(c.link.from.base, func() { c.cancel(c.link.from.base.Err()) })
	}
	return c.watchers
}

// cancel ends it with err, unless it has ended.
func (c *requestContext) cancel(err error) {
	c.mu.Lock()
	c.cancelAndUnlock(err)
}

// depart is cancel because the client has gone.
func (c *requestContext) depart() {
	c.mu.Lock()
	c.sayGone()
	c.cancelAndUnlock(context.Canceled)
}

// sayGone has CloseNotify tell of it, unless the handler has ended. mu is held.
func (c *requestContext) sayGone() {
	if c.away || c.over {
		return
	}
	c.away = true
	if c.watchers != nil && c.watchers.gone != nil {
		c.watchers.gone <- true
	}
}

// closeNotify is the channel of http.CloseNotifier, always the same.
func (c *requestContext) closeNotify() <-chan bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers == nil {
		c.watchers = new(watchers)
	}
	w := c.watchers
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
	c.cancelAndUnlock(context.Canceled)
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
	c.cancelAndUnlock(context.Canceled)
	return connGone
}

// isLost reports whether the connection has gone.
func (c *requestContext) isLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

func (c *requestContext) cancelAndUnlock(err error) {
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	w := c.watchers
	if w == nil {
		c.mu.Unlock()
		return
	}
	if w.done != nil {
		close(w.done)
	}
	after, stop := w.after, w.stop
	w.after, w.stop = nil, nil
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	for f := range after {
		c.spawn(*f)
	}
}

// unwatched reports whether the context has ended without a watcher. None can follow, so there is
// no need to lock. A watcher may still copy the request, as http.TimeoutHandler does.
func (c *requestContext) unwatched() bool { return c.watchers == nil }

// spawn runs f on a goroutine of its own, as context.AfterFunc promises.
func (c *requestContext) spawn(f func()) { c.link.lane.st.engine.System().Go(f) }
