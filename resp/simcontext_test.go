package resp

import (
	"fmt"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A simContext is a context in fake time. Its AfterFunc lets context.AfterFunc do without a
// goroutine that waits.
type simContext struct {
	w     *sim.World
	end   error
	owned any // what the context refers to
	stop  func() bool
	done  chan struct{}

	mu    sync.Mutex
	err   error
	funcs map[int]func()
	next  int
}

func newSimContext(w *sim.World, end error) *simContext {
	return &simContext{w: w, end: end, done: make(chan struct{}), funcs: map[int]func(){}}
}

// endIn lets the world have no strong reference: it may keep its goroutines for some time.
func (c *simContext) endIn(d time.Duration) {
	weakly := weak.Make(c)
	c.stop = c.w.AfterFunc(d, func() {
		if c := weakly.Value(); c != nil {
			c.finish()
		}
	})
}

// release frees what the context holds in the world.
func (c *simContext) release() {
	if c.stop != nil {
		c.stop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.funcs) > 0 {
		panic(fmt.Sprintf("%d functions are still to be called at a context's end", len(c.funcs)))
	}
}

// finish ends the context. What context.AfterFunc was given runs on goroutines of its own, which
// the world does not know: it is over when finish returns.
func (c *simContext) finish() {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = c.end
	close(c.done)
	funcs := make([]func(), 0, len(c.funcs))
	for i := range c.next {
		if f := c.funcs[i]; f != nil {
			funcs = append(funcs, f)
		}
	}
	c.funcs = map[int]func(){}
	c.mu.Unlock()
	before := runtime.NumGoroutine()
	for _, f := range funcs {
		f()
	}
	for runtime.NumGoroutine() > before {
		runtime.Gosched()
	}
}

func (c *simContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c *simContext) Done() <-chan struct{}       { return c.done }
func (c *simContext) Value(any) any               { return nil }

func (c *simContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc is what package context looks for.
func (c *simContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.next
	c.next++
	c.funcs[i] = f
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, pending := c.funcs[i]
		delete(c.funcs, i)
		return pending
	}
}
