// Package bound binds drivers to a thread, for tests: it shows that the owner of a driver with
// Capabilities.ThreadBound keeps what that asks for.
package bound

import (
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// System makes the drivers of another System thread-bound.
type System struct{ driver.System }

// Open implements driver.System.
func (s System) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	d, err := s.System.Open(loop, o)
	if err != nil {
		return nil, err
	}
	return New(d), nil
}

// New binds d to the goroutine and the thread of the first call, other than Wake and Capabilities.
// Every other caller makes it panic.
func New(d driver.Driver) *Driver { return &Driver{inner: d} }

// displacedPolls is how many of the first Polls of a bound driver displace their goroutine.
const displacedPolls = 16

// Driver embeds no driver.Driver, so that a method which is added to the interface must be checked,
// too.
type Driver struct {
	inner     driver.Driver
	goroutine uint64 // that made the first call; 0: there was none
	thread    int
	polls     int
}

// check holds the caller of op against the caller of the first call.
func (d *Driver) check(op string) {
	goroutine, thread := driver.Goroutine(), threadID()
	if d.goroutine == 0 {
		d.goroutine, d.thread = goroutine, thread
	}
	if goroutine != d.goroutine || thread != d.thread {
		panic(fmt.Sprintf("contract: %s on goroutine %d, thread %d; the driver is bound to goroutine %d on thread %d",
			op, goroutine, thread, d.goroutine, d.thread))
	}
}

// displace takes the thread from the calling goroutine unless it is locked to it: another goroutine
// that has locked itself to the thread holds it until release is called.
func displace() (release func()) {
	locked, released := make(chan struct{}), make(chan struct{})
	go holdThread(locked, released)
	<-locked
	return func() { close(released); <-locked }
}

// holdThread never unlocks its thread, which ends with it.
func holdThread(locked chan<- struct{}, released <-chan struct{}) {
	runtime.LockOSThread()
	locked <- struct{}{}
	<-released
	close(locked)
}

// Poll implements driver.Driver.
func (d *Driver) Poll(wait time.Duration, ev driver.Events) (int, error) {
	if d.polls++; d.polls <= displacedPolls {
		d.check("Poll")
		defer displace()()
	}
	d.check("Poll")
	return d.inner.Poll(wait, ev)
}

// Capabilities are those of the inner driver, and ThreadBound.
func (d *Driver) Capabilities() driver.Capabilities {
	c := d.inner.Capabilities()
	c.ThreadBound = true
	if own := c.Own; own != nil {
		c.Own = func() { d.check("Own"); own() }
	}
	if many := c.SendMany; many != nil {
		c.SendMany = func(batch []driver.Outgoing) { d.check("SendMany"); many(batch) }
	}
	if cut := c.Cut; cut != nil {
		c.Cut = func(id driver.ID) { d.check("Cut"); cut(id) }
	}
	if control := c.Control; control != nil {
		c.Control = func(id driver.ID, f func(fd uintptr)) error { d.check("Control"); return control(id, f) }
	}
	if look := c.Look; look != nil {
		c.Look = func(id driver.ID) { d.check("Look"); look(id) }
	}
	if take := c.TakeAccepted; take != nil {
		c.TakeAccepted = func(id driver.ID) driver.Socket { d.check("TakeAccepted"); return take(id) }
	}
	if full := c.Full; full != nil {
		c.Full = func() bool { d.check("Full"); return full() }
	}
	return c
}

// Wake implements driver.Driver. Any goroutine.
func (d *Driver) Wake() { d.inner.Wake() }

// Listen and the following methods implement driver.Driver.
func (d *Driver) Listen(l driver.Listener) (driver.ID, error) {
	d.check("Listen")
	return d.inner.Listen(l)
}

func (d *Driver) Attach(s driver.Socket) (driver.ID, error) {
	d.check("Attach")
	return d.inner.Attach(s)
}

func (d *Driver) Dial(addr net.Addr) (driver.ID, error) {
	d.check("Dial")
	return d.inner.Dial(addr)
}

func (d *Driver) Send(id driver.ID, c *buf.Chain) int64 {
	d.check("Send")
	return d.inner.Send(id, c)
}

func (d *Driver) SendFile(id driver.ID, f driver.File, off, n int64) (int64, error) {
	d.check("SendFile")
	return d.inner.SendFile(id, f, off, n)
}

func (d *Driver) Detach(id driver.ID) error {
	d.check("Detach")
	return d.inner.Detach(id)
}

func (d *Driver) Shutdown() error {
	d.check("Shutdown")
	return d.inner.Shutdown()
}

func (d *Driver) StopAccept(id driver.ID)    { d.check("StopAccept"); d.inner.StopAccept(id) }
func (d *Driver) ResumeAccept(id driver.ID)  { d.check("ResumeAccept"); d.inner.ResumeAccept(id) }
func (d *Driver) CloseListener(id driver.ID) { d.check("CloseListener"); d.inner.CloseListener(id) }
func (d *Driver) CloseWrite(id driver.ID)    { d.check("CloseWrite"); d.inner.CloseWrite(id) }
func (d *Driver) Pause(id driver.ID)         { d.check("Pause"); d.inner.Pause(id) }
func (d *Driver) Resume(id driver.ID)        { d.check("Resume"); d.inner.Resume(id) }
func (d *Driver) Close(id driver.ID)         { d.check("Close"); d.inner.Close(id) }
func (d *Driver) Abort(id driver.ID)         { d.check("Abort"); d.inner.Abort(id) }
