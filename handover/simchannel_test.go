package handover

import (
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A simChannel is one end of a socket pair of a simulated world. When send returns, the message is
// in the other end's queue, as in the kernel, and it stays there when the sender is gone.
type simChannel struct {
	w     *sim.World
	mu    *sync.Mutex // of both ends
	other *simChannel

	queue    []message
	closed   bool
	stopped  bool // stopReceiving
	dead     bool // its process
	waiting  driver.Parker
	deadline time.Time
}

func newSimChannels(w *sim.World) (a, b *simChannel) {
	mu := new(sync.Mutex)
	a, b = &simChannel{w: w, mu: mu, waiting: w.NewParker()}, &simChannel{w: w, mu: mu, waiting: w.NewParker()}
	a.other, b.other = b, a
	return a, b
}

func (c *simChannel) send(m message) error {
	m.body = slices.Clone(m.body)
	var shares []driver.Socket
	for _, s := range m.sockets {
		share, err := c.w.Facilities().Moves.Share(s)
		if err != nil {
			closeAll(shares)
			return err
		}
		shares = append(shares, share)
	}
	m.sockets = shares
	if m.listener != nil {
		share, err := c.w.Facilities().Moves.ShareListener(m.listener)
		if err != nil {
			closeAll(shares)
			return err
		}
		m.listener = share
	}
	c.mu.Lock()
	if c.closed || c.other.closed || c.other.stopped {
		c.mu.Unlock()
		m.drop()
		return syscall.EPIPE
	}
	c.other.queue = append(c.other.queue, m)
	c.mu.Unlock()
	c.other.waiting.Unpark()
	return nil
}

func closeAll(sockets []driver.Socket) {
	for _, s := range sockets {
		_ = s.Close()
	}
}

func (c *simChannel) receive() (message, error) {
	for {
		c.mu.Lock()
		if len(c.queue) > 0 {
			m := c.queue[0]
			c.queue = c.queue[1:]
			c.mu.Unlock()
			return m, nil
		}
		end := c.closed || c.stopped || c.other.closed
		c.mu.Unlock()
		if end {
			return message{}, io.EOF
		}
		rest := c.deadline.Sub(c.w.Now())
		if rest <= 0 {
			return message{}, os.ErrDeadlineExceeded
		}
		c.waiting.ParkFor(rest)
	}
}

func (c *simChannel) stopReceiving() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}

func (c *simChannel) otherEnded() bool { return c.other.dead }

func (c *simChannel) setDeadline(t time.Time) { c.deadline = t }

func (c *simChannel) close() {
	c.mu.Lock()
	queue := c.queue
	c.queue, c.closed = nil, true
	c.mu.Unlock()
	for _, m := range queue {
		m.drop()
	}
	c.other.waiting.Unpark()
}
