package websocket

import (
	"context"

	"github.com/myriad-go/myriad/internal/lifetime"
)

// Context returns a context that ends with the connection, before OnClose is called: its cause is
// OnClose's error. The request's own context ends when the handler returns.
//
// It carries the values of the request's context as Accept has met them; there are none with
// Handler and Dial. If middleware has set values, they keep the request in memory as long as the
// connection, 1 to 3 kB; behind a foreign server it is about 600 bytes in any case. Give Accept a
// request with context.Background() to keep none. Without values and without a call Context costs
// nothing.
func (c *Conn) Context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.needCold()
	if r.life == nil {
		r.life = new(lifetime.Lifetime)
		if c.is(closed) {
			r.life.End(r.end)
		}
	}
	return r.life.Context()
}
