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

// runBroadcast has one message after the other delivered to all connections.
func (d *driver) runBroadcast() error {
	var sent int64
	missing := 0
	publish := func() error {
		for i := range d.conns {
			d.conns[i].waiting = 1
		}
		sent, missing = d.now(), len(d.conns)
		return d.write(&d.conns[0], d.spec.Talk.Request)
	}
	d.replied = func(_ *conn, now int64) error {
		missing--
		if missing > 0 {
			return nil
		}
		if d.window.running() {
			d.window.took(now - sent)
		}
		if d.window.closed != 0 {
			return nil
		}
		return publish()
	}
	if err := publish(); err != nil {
		return err
	}
	return d.loop(func(now int64) (time.Duration, bool, error) {
		more := d.window.tell(now)
		return until(d.window.mark, now), more || missing > 0, nil
	})
}

// runExchange has every connection send its request and get its replies once, a wave at a time. The window is the time that takes.
func (d *driver) runExchange() error {
	next, open := 0, 0
	d.window.start, d.window.mark, d.window.end = 0, 0, 1<<62
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
