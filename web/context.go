package web

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// requestContext is the context of one request, part of its exchange. It ends when the handler returns, the
// client goes away or the base context ends. Its channel is made only if somebody asks for it.
type requestContext struct {
	x    *exchange
	base context.Context

	mu    sync.Mutex
	err   error
	done  chan struct{}
	after map[*func()]struct{} // functions to call at the end
	stop  func() bool          // the watch on base
}

var _ context.Context = (*requestContext)(nil)

// closedChan is the Done channel of every context that ended before anybody asked.
var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (c *requestContext) Deadline() (time.Time, bool) { return c.base.Deadline() }

func (c *requestContext) Value(key any) any {
	if key == http.LocalAddrContextKey {
		return c.x.transport.conn().LocalAddr()
	}
	return c.base.Value(key)
}

func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		if c.err != nil {
			c.done = closedChan
			return c.done
		}
		c.done = make(chan struct{})
		c.watchBase()
	}
	return c.done
}

func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return c.base.Err()
	}
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
	if c.after == nil {
		c.after = map[*func()]struct{}{}
		c.watchBase()
	}
	key := &f
	c.after[key] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waiting := c.after[key]
		delete(c.after, key)
		return waiting
	}
}

// watchBase has the end of the base context end this one, once somebody listens. mu is held.
func (c *requestContext) watchBase() {
	if c.stop == nil && c.base.Done() != nil {
		c.stop = context.AfterFunc(c.base, func() { c.cancel(c.base.Err()) })
	}
}

func (c *requestContext) cancel(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
	after, stop := c.after, c.stop
	c.after, c.stop = nil, nil
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	for f := range after {
		c.spawn(*f)
	}
}

// spawn runs f on a goroutine of its own, as context.AfterFunc promises.
func (c *requestContext) spawn(f func()) { c.x.lane.st.engine.System().Go(f) }
