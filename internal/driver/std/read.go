package std

import (
	"errors"
	"io"
	"os"
	"time"
)

// watchPause is how often a connection with unread bytes is looked at for a reset, where watch
// cannot wait for one.
const watchPause = time.Second

// read is the reader's goroutine. It reads while its owner wants input and has taken what came
// before; at other times it watches for a reset, where that can be done without reading.
func (c *conn) read() {
	small := make([]byte, min(smallRead, c.d.room))
	var large *[]byte // after a small buffer was filled
	for {
		switch c.nextActivity() {
		case reading:
			p := small
			if large != nil {
				p = *large
			}
			n, err := c.nc.Read(p)
			large = c.received(p[:n], large, n == len(p), err)
		case watching:
			c.watched(watch(c.raw))
		default:
			if large != nil {
				c.d.buffers.Put(large)
			}
			return
		}
	}
}

// nextActivity waits until there is something to do. nothing: the reader has come to its end.
func (c *conn) nextActivity() activity {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		next := nothing
		switch {
		case c.leaving != staying || c.broken != nil || c.ended && c.raw == nil:
			return nothing
		case (c.ended || c.paused) && c.raw != nil && !c.resting:
			next = watching
		case len(c.data) == 0 && !c.ended && !c.paused:
			next = reading
		}
		if next != nothing {
			c.waiting = next
			if c.poked {
				c.poked = false
				_ = c.nc.SetReadDeadline(time.Time{})
			}
			return next
		}
		c.turn.Wait()
	}
}

// received keeps what a read returned for the owner. It returns the pooled buffer to read into
// next, if any.
func (c *conn) received(p []byte, large *[]byte, full bool, err error) *[]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = nothing
	switch {
	case len(p) > 0: // an error comes again
		c.data, c.lent = p, large
		c.list()
		if full && c.d.room > smallRead {
			return c.d.buffers.Get().(*[]byte)
		}
		return nil
	case err == nil || c.poked && errors.Is(err, os.ErrDeadlineExceeded):
	case err == io.EOF || c.cut:
		c.ended = true
		c.list()
	default:
		c.fail(err)
	}
	return large
}

// watched is what watch has returned.
func (c *conn) watched(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = nothing
	switch {
	case c.poked && errors.Is(err, os.ErrDeadlineExceeded):
	case err == nil: // there is something to read: all that some systems can tell
		c.resting = true
		time.AfterFunc(watchPause, c.watchAgain)
	case !c.paused && !c.ended: // input is wanted again: what came before the reset is read first
		c.sendFail = firstOf(c.sendFail, err)
	default:
		c.fail(err)
	}
}

func (c *conn) watchAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resting = false
	c.turn.Signal()
}

// fail notes that nothing more can be received. mu is held.
func (c *conn) fail(err error) {
	if c.leaving > breaking && errors.Is(err, os.ErrDeadlineExceeded) {
		return // the interruption
	}
	c.broken = err
	c.list()
}
