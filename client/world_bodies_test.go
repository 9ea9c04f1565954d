package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file is the contexts and the bodies of a world's requests, in fake time.

// A simContext ends in fake time. Package context starts a goroutine only for what is called at the
// end of one, for which end waits.
type simContext struct {
	context.Context // has the values
	x               *request
	deadline        time.Time
	stop            func() bool
	done            chan struct{}

	mu    sync.Mutex
	err   error
	after map[int]func()
	next  int
}

func (c *simContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }
func (c *simContext) Done() <-chan struct{}       { return c.done }

func (c *simContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc is what package context asks for before it starts a goroutine.
func (c *simContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		panic("AfterFunc on a context that has ended")
	}
	if c.after == nil {
		c.after = map[int]func(){}
	}
	id := c.next
	c.next++
	c.after[id] = f
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, there := c.after[id]
		delete(c.after, id)
		return there
	}
}

func (c *simContext) end(err error) {
	c.x.ending(err)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	close(c.done)
	var all []func()
	for id := range c.next {
		if f := c.after[id]; f != nil {
			all = append(all, f)
		}
	}
	c.after = nil
	c.mu.Unlock()
	for _, f := range all {
		f()
	}
	awaitAfterFuncs()
}

// stacks has room for the stacks of all goroutines.
var stacks = make([]byte, 4<<20)

// awaitAfterFuncs waits for the goroutines on which package context calls functions at the end of a
// context. The world does not know them, and stands still meanwhile.
func awaitAfterFuncs() {
	for {
		runtime.Gosched()
		n := runtime.Stack(stacks, true)
		if !bytes.Contains(stacks[:n], []byte("created by context.(*afterFuncCtx).cancel")) {
			return
		}
	}
}

var errBody = errors.New("the body cannot be read")

// A bodyReader is a request's body that is not in memory. It blocks in fake time.
type bodyReader struct {
	x      *request
	parker driver.Parker

	mu     sync.Mutex
	off    int
	began  bool
	closed bool
}

func (x *request) newBody() *bodyReader {
	b := &bodyReader{x: x, parker: x.w.NewParker()}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bodies++
	x.body = b
	return b
}

func (b *bodyReader) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

var errBodyClosed = errors.New("the body was closed")

func (b *bodyReader) Read(p []byte) (int, error) {
	x := b.x
	b.mu.Lock()
	gap := x.gap
	if !b.began {
		b.began, gap = true, x.first
		now := x.w.Now()
		x.mu.Lock()
		x.readAt1 = now
		x.mu.Unlock()
	}
	off := b.off
	b.mu.Unlock()
	if off == x.hangAt {
		for !b.isClosed() {
			b.parker.Park()
		}
	}
	for until := x.w.Now().Add(gap); gap > 0 && !b.isClosed(); {
		left := until.Sub(x.w.Now())
		if left <= 0 {
			break
		}
		b.parker.ParkFor(left)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return 0, errBodyClosed
	case off == x.failAt:
		return 0, errBody
	case off == x.size:
		return 0, io.EOF
	}
	n := min(len(p), x.piece, x.size-off)
	for _, at := range []int{x.failAt, x.hangAt} {
		if at > off {
			n = min(n, at-off)
		}
	}
	copy(p, text(x.id, off, n))
	b.off += n
	return n, nil
}

func (b *bodyReader) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	if first {
		b.x.mu.Lock()
		b.x.closed++
		b.x.mu.Unlock()
		b.parker.Unpark()
	}
	return nil
}
