// Package std is the driver for systems that have no better one: package net, and goroutines that
// wait in it.
//
// Each connection has a goroutine that reads, and a second one only while output is queued. A
// reader never runs ahead of its owner by more than one receive buffer, and while it waits for a
// quiet peer it holds a small buffer instead, so that a connection costs a goroutine and 2 KiB.
// Each listener has a goroutine that accepts, ahead of its owner by one connection. What they have
// to tell is gathered in the driver's mailbox, and Poll tells it.
//
// Every net.Conn can be imported. What only TCP and unix sockets of a unix system can do is missing
// for the others: output is always queued first, and a reset is not noticed while a connection is
// paused or its peer has ended, until something is written. Where a conn has no CloseWrite, ending
// our side closes it, and its input ends with that.
package std

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

const (
	smallRead     = 2 << 10  // the buffer of a reader whose peer is quiet
	bytesPerWrite = 64 << 10 // what is gathered into one write, and reported as sent together
	vectors       = 64       // blocks in it at most
	filePerWrite  = 1 << 20  // bytes of a file that are reported as sent together
)

// Driver is one mailbox and the goroutines that fill it. See driver.Driver for the contract.
type Driver struct {
	loop      uint8
	room      int // bytes of a receive buffer
	alive     net.KeepAliveConfig
	queueOnly bool // nothing is sent from inside Send, as where the system has no way to
	buffers   sync.Pool
	members   table
	mail      mailbox
	timer     *time.Timer
	polled    int // events emitted in this Poll
	batch     []member
	served    int    // of batch
	serving   member // whose event is being emitted; between two Polls: it did not return
	life      context.Context
	end       context.CancelFunc
	work      sync.WaitGroup // all goroutines
}

// Open makes a driver for one loop.
func Open(loop uint8, o driver.Options) *Driver {
	d := &Driver{loop: loop, room: o.ReadBuffer, alive: keepAlive(o.KeepAlive), members: newTable(), mail: newMailbox(),
		timer: time.NewTimer(time.Hour)}
	d.timer.Stop()
	d.buffers.New = func() any { p := make([]byte, d.room); return &p }
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// keepAlive is package net's setting for driver.Options.KeepAlive.
func keepAlive(silence time.Duration) net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: silence > 0, Idle: silence, Interval: driver.ProbeInterval,
		Count: driver.Probes}
}

// Capabilities implements driver.Driver: any goroutine may take the driver over between two calls.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Cut: d.Cut, Control: d.Control, TakeAccepted: d.takeAccepted}
}

// Control calls f with the descriptor of a connection of package net's own types.
func (d *Driver) Control(id driver.ID, f func(fd uintptr)) error {
	c := d.conn(id)
	if c == nil {
		return driver.ErrStale
	}
	c.mu.Lock()
	raw := c.raw
	c.mu.Unlock()
	if raw == nil {
		return driver.ErrUnsupported
	}
	return raw.Control(f)
}

// Wake ends the Poll that is waiting, or the next one.
func (d *Driver) Wake() { d.mail.wake() }

// Poll implements driver.Driver.
func (d *Driver) Poll(wait time.Duration, ev driver.Events) (int, error) {
	d.polled = 0
	if d.serving != nil {
		d.serving.interrupted()
	}
	if d.served == len(d.batch) {
		d.await(wait)
	}
	for d.served < len(d.batch) {
		d.serving = d.batch[d.served]
		d.served++
		d.serving.report(ev)
		d.serving = nil
	}
	d.mail.giveBack(d.batch)
	d.batch, d.served = nil, 0
	return d.polled, nil
}

// await takes what the mailbox holds, in time.
func (d *Driver) await(wait time.Duration) {
	ready, woken := d.mail.take()
	if len(ready) == 0 && !woken && wait != 0 {
		d.wait(wait)
		ready, _ = d.mail.take()
	}
	d.batch, d.served = ready, 0
}

func (d *Driver) wait(wait time.Duration) {
	if wait < 0 {
		<-d.mail.signal
		return
	}
	d.timer.Reset(wait)
	select {
	case <-d.mail.signal:
	case <-d.timer.C:
	}
	d.timer.Stop()
}

// Shutdown aborts everything and returns when no goroutine is left.
func (d *Driver) Shutdown() error {
	d.end()
	for _, e := range d.members.entries {
		switch m := e.member.(type) {
		case *conn:
			m.leave(aborting, nil)
		case *acceptor:
			m.close()
		}
	}
	d.work.Wait()
	for _, e := range d.members.entries {
		if c, ok := e.member.(*conn); ok && c.leaving == detaching && c.nc != nil {
			c.nc.Close() // it was not reported
		}
	}
	d.members = newTable()
	return nil
}

// start runs a part of a connection or listener.
func (d *Driver) start(f func()) { d.work.Go(f) }
