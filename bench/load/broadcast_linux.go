package load

import (
	"errors"
	"fmt"
	"time"
)

// runBroadcast has one message after the other delivered to all connections. If there is a
// publisher, its reply is waited for too.
func (d *driver) runBroadcast() error {
	members, sender := d.conns[:d.spec.Conns], &d.conns[0]
	if d.spec.Publishers > 0 {
		sender = &d.conns[d.spec.Conns]
	}
	d.counted = members[0].talk
	var sent int64
	missing := 0
	publish := func() error {
		for i := range d.conns {
			d.conns[i].waiting = 1
		}
		sent, missing = d.now(), len(members)
		return d.write(sender, sender.talk.Request)
	}
	separate := d.spec.Publishers > 0
	d.replied = func(c *conn, now int64) error {
		if c.talk == d.counted {
			missing--
			if d.window.running() {
				d.window.delivered(now - sent)
				if missing == 0 {
					d.window.took(now - sent)
				}
			}
		}
		if missing > 0 || separate && sender.waiting > 0 || d.window.closed != 0 {
			return nil
		}
		return publish()
	}
	if err := publish(); err != nil {
		return err
	}
	return d.loop(func(now int64) (time.Duration, bool, error) {
		more := d.window.tell(now)
		return until(d.window.mark, now), more || missing > 0 || separate && sender.waiting > 0, nil
	})
}

// publishOnce is the Exchange of a mode in which connections only receive.
func (d *driver) publishOnce() error {
	d.counted = d.conns[0].talk
	missing := len(d.conns)
	for i := range d.conns {
		d.conns[i].waiting = 1
	}
	sent := d.now()
	d.replied = func(c *conn, now int64) error {
		missing--
		if c.talk == d.counted {
			d.window.took(now - sent)
		}
		return nil
	}
	d.window.tell(sent)
	sender := &d.conns[d.spec.Conns]
	if err := d.write(sender, sender.talk.Request); err != nil {
		return err
	}
	return d.loop(func(now int64) (time.Duration, bool, error) {
		if missing == 0 {
			d.window.read(now)
		}
		return 100 * time.Millisecond, missing > 0, nil
	})
}

// runPublish keeps the publishers busy and counts what members receive.
func (d *driver) runPublish() error {
	members, publishers := d.conns[:d.spec.Conns], d.conns[d.spec.Conns:]
	if len(publishers) == 0 {
		return errors.New("there is no publisher")
	}
	d.counted = publishers[0].talk
	published, missing, open := 0, 0, 0
	publish := func(c *conn, now int64) error {
		for i := range members {
			members[i].waiting++
		}
		published++
		missing += len(members)
		open++
		return d.send(c, now)
	}
	d.replied = func(c *conn, now int64) error {
		if c.talk != d.counted {
			missing--
			return nil
		}
		open--
		if d.window.running() {
			d.window.took(now - c.since)
		}
		if d.window.closed != 0 {
			return nil
		}
		return publish(c, now)
	}
	for i := range publishers {
		if err := publish(&publishers[i], d.now()); err != nil {
			return err
		}
	}
	err := d.loop(func(now int64) (time.Duration, bool, error) {
		more := d.window.tell(now) || open > 0 || missing > 0
		if d.window.closed != 0 && now > d.window.closed+int64(d.late) {
			more = false
		}
		return until(d.window.mark, now), more, nil
	})
	if err == nil && missing > 0 {
		err = fmt.Errorf("%d of %d deliveries are missing", missing, published*len(members))
	}
	return err
}
