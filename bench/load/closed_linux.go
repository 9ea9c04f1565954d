package load

import (
	"time"
)

// runClosed keeps every connection busy until the window ends, then takes the last replies.
func (d *driver) runClosed() error {
	open := 0 // requests under way
	d.replied = func(c *conn, now int64) error {
		if d.window.running() {
			d.window.took(now - c.since)
		}
		if c.waiting > 0 {
			return nil
		}
		if d.window.closed != 0 {
			open--
			return nil
		}
		return d.send(c, now)
	}
	for i := range d.conns {
		if err := d.send(&d.conns[i], d.now()); err != nil {
			return err
		}
		open++
	}
	return d.loop(func(now int64) (time.Duration, bool, error) {
		more := d.window.tell(now)
		return until(d.window.mark, now), more || open > 0, nil
	})
}

// runExchange makes every connection send its request and get its replies once, a wave at a time.
// The window is the time that takes. If there is a publisher, it publishes once instead, and every
// connection receives that.
func (d *driver) runExchange() error {
	next, open := 0, 0
	d.window.start, d.window.mark, d.window.end = 0, 0, 1<<62
	if d.spec.Publishers > 0 {
		return d.publishOnce()
	}
	d.replied = func(c *conn, now int64) error {
		d.window.took(now - c.since)
		if c.waiting == 0 {
			open--
		}
		return nil
	}
	return d.loop(func(now int64) (time.Duration, bool, error) {
		d.window.tell(now)
		for ; next < len(d.conns) && open < wave; next++ {
			if err := d.send(&d.conns[next], now); err != nil {
				return 0, false, err
			}
			open++
		}
		if open == 0 {
			d.window.read(now)
		}
		return 100 * time.Millisecond, open > 0, nil
	})
}
